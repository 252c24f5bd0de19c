//! Histories of both ends of Direct Read and of the network between them: nothing is
//! acknowledged unread, and all is in the end.
#![no_main]

use conn_core::direct_read::oracle::{CheckedDirectRead, DirectReadOp, config};
use conn_core::exhaustive::CheckedMachine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: ([u8; 5], Vec<DirectReadOp>)| {
    let [ack, window, reads, max_read, gather] = input.0;
    let mut pair = CheckedDirectRead::new(config(ack, window, reads, max_read, gather));
    input.1.into_iter().take(64).for_each(|op| pair.apply(op));
});
