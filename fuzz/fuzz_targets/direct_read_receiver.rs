//! Histories of a Direct Read receiver whose peer sends arbitrary messages, against the model.
#![no_main]

use conn_core::direct_read::oracle::{CheckedReads, ReadsOp, config};
use conn_core::exhaustive::CheckedMachine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: ([u8; 5], Vec<ReadsOp>)| {
    let [ack, window, reads, max_read, gather] = input.0;
    let mut pair = CheckedReads::new(config(ack, window, reads, max_read, gather));
    input.1.into_iter().for_each(|op| pair.apply(op));
});
