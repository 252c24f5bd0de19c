//! Histories of a Direct Read sender whose peer sends arbitrary messages, against the model.
#![no_main]

use conn_core::direct_read::oracle::{CheckedOffers, OffersOp};
use conn_core::exhaustive::CheckedMachine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<OffersOp>)| {
    let mut pair = CheckedOffers::new(u32::from(input.0) % 64 + 1);
    input.1.into_iter().for_each(|op| pair.apply(op));
});
