//! Histories of the steps of threads that wait for events of one source.
#![no_main]

use conn_core::exhaustive::Pair;
use conn_core::leader::oracle::{Op, Waited};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|ops: Vec<Op>| {
    let mut pair = Waited::new();
    ops.into_iter().for_each(|op| pair.apply(op));
});
