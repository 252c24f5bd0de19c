//! Whatever a UDP datagram carries to the port of RoCE v2.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    roce_core::codec::oracle::check_bytes(bytes);
    roce_core::icrc::oracle::check_bytes(bytes);
});
