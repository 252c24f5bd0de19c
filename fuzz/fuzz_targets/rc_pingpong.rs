//! Whatever bytes arrive where ibv_rc_pingpong is expected.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| conn_core::rc_pingpong::oracle::check_bytes(bytes));
