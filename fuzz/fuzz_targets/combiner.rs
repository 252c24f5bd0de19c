//! Histories of the steps of threads that share a combiner, against the model.
#![no_main]

use conn_core::combiner::oracle::{Guarded, Op};
use conn_core::exhaustive::Pair;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|ops: Vec<Op>| {
    let mut pair = Guarded::new();
    ops.into_iter().for_each(|op| pair.apply(op));
});
