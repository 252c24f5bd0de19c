//! Histories of a Buffered Read connection with both its ends, of which either may lie.
#![no_main]

use conn_core::buffered_read::oracle::{BufferedReadOp, BufferedReadParams, CheckedBufferedRead};
use conn_core::exhaustive::CheckedMachine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (BufferedReadParams, Vec<BufferedReadOp>)| {
    let (params, ops) = input;
    let capacity_log2 = 4 + params.capacity_log2 % 7;
    let params = BufferedReadParams { capacity_log2, reads: 1 + params.reads % 16, ..params };
    let Some(mut connection) = CheckedBufferedRead::new(params) else { return };
    ops.into_iter().take(300).for_each(|op| connection.apply(op));
});
