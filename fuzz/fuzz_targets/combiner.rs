//! Histories of the steps of threads that share a combiner, against the model.
#![no_main]

use conn_core::combiner::oracle::{CheckedCombiner, CombinerOp};
use conn_core::exhaustive::CheckedMachine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|ops: Vec<CombinerOp>| {
    let mut pair = CheckedCombiner::new();
    ops.into_iter().for_each(|op| pair.apply(op));
});
