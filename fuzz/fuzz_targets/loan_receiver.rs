//! A receiver whose sender lies about loans, against its model.
#![no_main]

use conn_core::exhaustive::Pair;
use conn_core::loan::oracle::{Granting, GrantorOp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, Vec<GrantorOp>)| {
    let (already, ops) = input;
    let mut pair = Granting::new(already / 2);
    ops.into_iter().for_each(|op| pair.apply(op));
});
