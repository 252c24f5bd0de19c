//! A receiver whose sender lies, against its model.
#![no_main]

use conn_core::credit::oracle::{Granted, GrantorOp};
use conn_core::exhaustive::Pair;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, u32, u64, Vec<GrantorOp>)| {
    let (window, threshold, already, ops) = input;
    let Ok(mut pair) = Granted::new(window, threshold, already / 2) else { return };
    ops.into_iter().for_each(|op| pair.apply(op));
});
