//! Histories of the repost queue as one thread sees them, against its model.
#![no_main]

use conn_core::exhaustive::Pair;
use conn_core::repost::oracle::{Op, Queued};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, Vec<Op>)| {
    let (buffers, ops) = input;
    let Ok(mut pair) = Queued::new(buffers.into()) else { return };
    ops.into_iter().for_each(|op| pair.apply(op));
});
