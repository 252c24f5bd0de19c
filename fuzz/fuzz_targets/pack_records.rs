//! Histories of the packer, against its model; what was packed is unpacked.
#![no_main]

use conn_core::exhaustive::Pair;
use conn_core::pack::oracle::{Op, Packed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, Vec<Op>)| {
    let (capacity, ops) = input;
    let mut pair = Packed::new(capacity.into());
    ops.into_iter().for_each(|op| pair.apply(op));
});
