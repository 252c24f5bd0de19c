//! Histories of a Buffered Write connection, of which either end may lie, against its model.
#![no_main]

use conn_core::buffered_write::oracle::{Op, Shape, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Shape, Vec<Op>)| {
    let (shape, ops) = input;
    let window = shape.window.map(|window| 1 + window % 8);
    let shape = Shape { capacity_log2: 4 + shape.capacity_log2 % 5, window, ..shape };
    run(shape, &ops[..ops.len().min(300)]);
});
