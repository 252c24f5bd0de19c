//! Histories of a Direct Write connection, of which either end may lie, against its model; and
//! arbitrary bytes as its terms.
#![no_main]

use conn_core::direct_write::oracle::{DirectWriteOp, DirectWriteParams, run};
use conn_core::direct_write::terms::Terms;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (DirectWriteParams, Vec<DirectWriteOp>, Vec<u8>)| {
    let (params, ops, bytes) = input;
    run(params, &ops[..ops.len().min(300)]);
    if let Ok((terms, rest)) = Terms::decode(&bytes) {
        assert_eq!([&terms.encode(), rest].concat(), bytes);
    }
});
