//! Histories of a ring's free list as one thread sees them, against its model.
#![no_main]

use conn_core::exhaustive::CheckedMachine;
use conn_core::ring::free::oracle::{CheckedFreeList, FreeListOp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<FreeListOp>)| {
    let (slots, ops) = input;
    let mut pair = CheckedFreeList::new(1 << (slots % 7));
    ops.into_iter().take(300).for_each(|op| pair.apply(op));
});
