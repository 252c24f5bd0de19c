//! A pool, honest senders and the wires: every message finds a buffer, and all active senders
//! get credit, however many are silent.
#![no_main]

use conn_core::loan::oracle::{Bank, BankOp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, u8, u8, Vec<BankOp>)| {
    let (places, more, max_loan, active, ops) = input;
    let (places, more) = (u32::from(places) % 6 + 1, u32::from(more));
    let Ok(mut bank) = Bank::new(places, 3 * places + more, u32::from(max_loan) + 1) else {
        return;
    };
    ops.into_iter().for_each(|op| bank.apply_only(op));
    bank.look_ahead(active.into());
});
