//! Two honest ends over a network that loses, repeats and reorders: every message arrives once, in
//! order, and no end waits for ever.
#![no_main]

use conn_core::datagram::oracle::{CheckedDatagrams, DatagramOp};
use conn_core::exhaustive::CheckedMachine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u64, Vec<DatagramOp>)| {
    let (window, already, ops) = input;
    let window = u32::from(window) % conn_core::datagram::MAX_WINDOW + 1;
    let mut joined = CheckedDatagrams::new(window, already / 2).expect("a window that can be");
    ops.into_iter().for_each(|op| joined.apply(op));
    joined.finish();
});
