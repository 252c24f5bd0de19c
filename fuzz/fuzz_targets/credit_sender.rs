//! A sender whose receiver lies, against its model.
#![no_main]

use conn_core::credit::oracle::{WindowOp, Windowed};
use conn_core::exhaustive::Pair;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, u64, Vec<WindowOp>)| {
    let (window, already, ops) = input;
    // Half of the positions: those that a connection reaches in a million years.
    let Ok(mut pair) = Windowed::new(window, already / 2) else { return };
    ops.into_iter().for_each(|op| pair.apply(op));
});
