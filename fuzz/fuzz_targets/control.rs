//! Every immediate that a peer may send.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|immediate: u32| conn_core::control::oracle::check(immediate));
