//! A sender whose receiver lies about loans, against its model.
#![no_main]

use conn_core::exhaustive::CheckedMachine;
use conn_core::loan::oracle::{BorrowerOp, CheckedBorrower};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, u64, Vec<BorrowerOp>)| {
    let (max_loan, already, ops) = input;
    // Half of the positions: those that a connection reaches in a million years.
    let Ok(mut pair) = CheckedBorrower::new(max_loan, already / 2) else { return };
    ops.into_iter().for_each(|op| pair.apply(op));
});
