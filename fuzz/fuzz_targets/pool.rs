//! Histories of the buffer pool, against its model.
#![no_main]

use conn_core::exhaustive::CheckedMachine;
use conn_core::pool::oracle::{BufferPoolOp, CheckedBufferPool};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, Vec<BufferPoolOp>)| {
    let (buffers, repost_batch, ops) = input;
    let Ok(mut pair) = CheckedBufferPool::new(buffers.into(), repost_batch.into()) else { return };
    ops.into_iter().for_each(|op| pair.apply(op));
});
