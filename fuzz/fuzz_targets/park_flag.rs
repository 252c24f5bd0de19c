//! Histories of the steps of a sleeper and its publishers, against the model.
#![no_main]

use conn_core::exhaustive::CheckedMachine;
use conn_core::park_flag::oracle::{CheckedParkFlag, ParkFlagOp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|ops: Vec<ParkFlagOp>| {
    let mut pair = CheckedParkFlag::new();
    ops.into_iter().for_each(|op| pair.apply(op));
});
