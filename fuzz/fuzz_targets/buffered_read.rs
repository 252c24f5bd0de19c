//! Histories of a Buffered Read connection with both its ends, of which either may lie.
#![no_main]

use conn_core::buffered_read::oracle::{Connection, Op, Shape};
use conn_core::exhaustive::Pair;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Shape, Vec<Op>)| {
    let (shape, ops) = input;
    let capacity_log2 = 4 + shape.capacity_log2 % 7;
    let shape = Shape { capacity_log2, reads: 1 + shape.reads % 16, ..shape };
    let Some(mut connection) = Connection::new(shape) else { return };
    ops.into_iter().take(300).for_each(|op| connection.apply(op));
});
