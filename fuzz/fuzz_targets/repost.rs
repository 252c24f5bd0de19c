//! Histories of the repost queue as one thread sees them, against its model.
#![no_main]

use conn_core::exhaustive::CheckedMachine;
use conn_core::repost::oracle::{CheckedRepostQueue, RepostQueueOp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, Vec<RepostQueueOp>)| {
    let (buffers, ops) = input;
    let Ok(mut pair) = CheckedRepostQueue::new(buffers.into()) else { return };
    ops.into_iter().for_each(|op| pair.apply(op));
});
