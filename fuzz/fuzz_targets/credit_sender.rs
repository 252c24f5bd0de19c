//! A sender whose receiver lies, against its model.
#![no_main]

use conn_core::credit::oracle::{CheckedCreditWindow, CreditWindowOp};
use conn_core::exhaustive::CheckedMachine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, u64, Vec<CreditWindowOp>)| {
    let (window, already, ops) = input;
    // Half of the positions: those that a connection reaches in a million years.
    let Ok(mut pair) = CheckedCreditWindow::new(window, already / 2) else { return };
    ops.into_iter().for_each(|op| pair.apply(op));
});
