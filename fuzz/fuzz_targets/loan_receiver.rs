//! A receiver whose sender lies about loans, against its model.
#![no_main]

use conn_core::exhaustive::CheckedMachine;
use conn_core::loan::oracle::{CheckedLoanGrantor, LoanGrantorOp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, Vec<LoanGrantorOp>)| {
    let (already, ops) = input;
    let mut pair = CheckedLoanGrantor::new(already / 2);
    ops.into_iter().for_each(|op| pair.apply(op));
});
