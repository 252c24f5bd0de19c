//! Histories of the steps of a sleeper and its publishers, against the model.
#![no_main]

use conn_core::exhaustive::Pair;
use conn_core::park_flag::oracle::{Op, Slept};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|ops: Vec<Op>| {
    let mut pair = Slept::new();
    ops.into_iter().for_each(|op| pair.apply(op));
});
