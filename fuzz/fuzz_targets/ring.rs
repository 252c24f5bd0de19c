//! Histories of a ring with both its ends, of which either may lie, against its model.
#![no_main]

use conn_core::exhaustive::Pair;
use conn_core::ring::oracle::{Op, Ring, Shape};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Shape, Vec<Op>)| {
    let (shape, ops) = input;
    let capacity_log2 = 4 + shape.capacity_log2 % 7;
    let reads = 1 + shape.reads % 16;
    let max_payload = shape.max_payload.map(|most| most % (1 << 10));
    let shape = Shape { capacity_log2, reads, max_payload, ..shape };
    let Some(mut ring) = Ring::new(shape) else { return };
    ops.into_iter().take(300).for_each(|op| ring.apply(op));
});
