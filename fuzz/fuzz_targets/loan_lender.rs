//! Histories of a lender, against its model.
#![no_main]

use conn_core::exhaustive::CheckedMachine;
use conn_core::loan::oracle::{CheckedLender, LenderOp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u16, Vec<LenderOp>)| {
    let (members, buffers, ops) = input;
    let Ok(mut pair) = CheckedLender::new(members.into(), buffers.into()) else { return };
    ops.into_iter().for_each(|op| pair.apply(op));
});
