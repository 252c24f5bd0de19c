//! Histories of a Shared Write ring, of which senders die at any point, and either end may lie,
//! against its model; and arbitrary bytes as its terms.
#![no_main]

use conn_core::shared_write::oracle::{SharedWriteOp, SharedWriteParams, run};
use conn_core::shared_write::terms::Terms;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (SharedWriteParams, Vec<SharedWriteOp>, Vec<u8>)| {
    let (params, ops, bytes) = input;
    run(params, &ops[..ops.len().min(400)]);
    if let Ok((terms, rest)) = Terms::decode(&bytes) {
        assert_eq!([&terms.encode()[..], rest].concat(), bytes);
    }
});
