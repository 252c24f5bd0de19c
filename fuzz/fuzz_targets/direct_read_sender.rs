//! Histories of a Direct Read sender whose peer sends arbitrary messages, against the model.
#![no_main]

use conn_core::direct_read::oracle::{OfferOp, Offering};
use conn_core::exhaustive::Pair;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<OfferOp>)| {
    let mut pair = Offering::new(u32::from(input.0) % 64 + 1);
    input.1.into_iter().for_each(|op| pair.apply(op));
});
