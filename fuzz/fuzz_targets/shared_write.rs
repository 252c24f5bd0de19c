//! Histories of a Shared Write ring, of which senders die at any point, and either end may lie,
//! against its model; and arbitrary bytes as its terms.
#![no_main]

use conn_core::shared_write::oracle::{Op, Shape, run};
use conn_core::shared_write::terms::Terms;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Shape, Vec<Op>, Vec<u8>)| {
    let (shape, ops, bytes) = input;
    run(shape, &ops[..ops.len().min(400)]);
    if let Ok((terms, rest)) = Terms::decode(&bytes) {
        assert_eq!([&terms.encode()[..], rest].concat(), bytes);
    }
});
