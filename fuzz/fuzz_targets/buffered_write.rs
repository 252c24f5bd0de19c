//! Histories of a Buffered Write connection, of which either end may lie, against its model.
#![no_main]

use conn_core::buffered_write::oracle::{BufferedWriteOp, BufferedWriteParams, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (BufferedWriteParams, Vec<BufferedWriteOp>)| {
    let (params, ops) = input;
    let window = params.window.map(|window| 1 + window % 8);
    let params =
        BufferedWriteParams { capacity_log2: 4 + params.capacity_log2 % 5, window, ..params };
    run(params, &ops[..ops.len().min(300)]);
});
