//! Histories of the pool's counts, against their model.
#![no_main]

use conn_core::exhaustive::Pair;
use conn_core::pool::counts::oracle::{Counted, Op};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, Vec<Op>)| {
    let (buffers, repost_batch, ops) = input;
    let Ok(mut pair) = Counted::new(buffers.into(), repost_batch.into()) else { return };
    ops.into_iter().for_each(|op| pair.apply(op));
});
