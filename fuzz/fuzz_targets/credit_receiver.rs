//! A receiver whose sender lies, against its model.
#![no_main]

use conn_core::credit::oracle::{CheckedCreditGrantor, CreditGrantorOp};
use conn_core::exhaustive::CheckedMachine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, u32, u64, Vec<CreditGrantorOp>)| {
    let (window, threshold, already, ops) = input;
    let Ok(mut pair) = CheckedCreditGrantor::new(window, threshold, already / 2) else { return };
    ops.into_iter().for_each(|op| pair.apply(op));
});
