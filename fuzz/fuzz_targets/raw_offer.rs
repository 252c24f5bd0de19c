//! Offers of raw queue pairs, right and wrong, there and back; and arbitrary bytes.
#![no_main]

use conn_core::raw::oracle::{RawOfferSample, check_bytes, check_sample};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (RawOfferSample, Vec<u8>)| {
    check_sample(&input.0);
    check_bytes(&input.1);
});
