//! Histories of the pool's counts, against their model.
#![no_main]

use conn_core::exhaustive::CheckedMachine;
use conn_core::pool::counts::oracle::{CheckedPoolCounts, PoolCountsOp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, Vec<PoolCountsOp>)| {
    let (buffers, repost_batch, ops) = input;
    let Ok(mut pair) = CheckedPoolCounts::new(buffers.into(), repost_batch.into()) else { return };
    ops.into_iter().for_each(|op| pair.apply(op));
});
