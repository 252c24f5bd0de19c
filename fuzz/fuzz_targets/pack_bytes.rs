//! Whatever bytes arrive as a packed message.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = conn_core::pack::oracle::check_unpack(bytes);
});
