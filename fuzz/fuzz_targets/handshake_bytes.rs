//! Whatever bytes arrive on the handshake port.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| conn_core::handshake::oracle::check_bytes(bytes));
