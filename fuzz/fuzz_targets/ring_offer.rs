//! Offers of ring connections, right and wrong, there and back; and arbitrary bytes.
#![no_main]

use conn_core::ring::offer::oracle::{RingOfferSample, check_bytes, check_sample};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (RingOfferSample, Vec<u8>)| {
    check_sample(&input.0);
    check_bytes(&input.1);
});
