//! Two honest ends and the wire: every message finds a buffer, and no end waits for ever.
#![no_main]

use conn_core::credit::oracle::{CheckedCreditLink, CreditLinkOp};
use conn_core::exhaustive::CheckedMachine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, u64, Vec<CreditLinkOp>)| {
    let (threshold, repost_batch, already, ops) = input;
    let (threshold, repost_batch) = (u32::from(threshold) + 1, u32::from(repost_batch) + 1);
    let mut link = CheckedCreditLink::new(threshold, repost_batch, already / 2);
    ops.into_iter().for_each(|op| link.apply(op));
});
