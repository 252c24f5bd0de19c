//! Read requests, right and wrong, there and back; and arbitrary bytes, as requests, terms
//! and notices.
#![no_main]

use conn_core::direct_read::oracle::{ReadRequestSample, check_bytes, check_sample};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (ReadRequestSample, Vec<u8>)| {
    check_sample(&input.0);
    check_bytes(&input.1);
});
