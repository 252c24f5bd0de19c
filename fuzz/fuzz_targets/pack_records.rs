//! Histories of the packer, against its model; what was packed is unpacked.
#![no_main]

use conn_core::exhaustive::CheckedMachine;
use conn_core::pack::oracle::{CheckedPacker, PackerOp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, Vec<PackerOp>)| {
    let (capacity, ops) = input;
    let mut pair = CheckedPacker::new(capacity.into());
    ops.into_iter().for_each(|op| pair.apply(op));
});
