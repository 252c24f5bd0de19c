//! Histories of a Direct Write connection, of which either end may lie, against its model; and
//! arbitrary bytes as its terms.
#![no_main]

use conn_core::direct_write::oracle::{Op, Shape, run};
use conn_core::direct_write::terms::Terms;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Shape, Vec<Op>, Vec<u8>)| {
    let (shape, ops, bytes) = input;
    run(shape, &ops[..ops.len().min(300)]);
    if let Ok((terms, rest)) = Terms::decode(&bytes) {
        assert_eq!([&terms.encode(), rest].concat(), bytes);
    }
});
