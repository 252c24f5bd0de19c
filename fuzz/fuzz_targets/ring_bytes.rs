//! Whatever bytes lie in a ring, up to whatever tail a peer names.
#![no_main]

use conn_core::ring::{Geometry, oracle::check_parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, bool, u64, u64, &[u8])| {
    let (capacity_log2, is_mirrored, head, tail, bytes) = input;
    let capacity = 1u64 << (4 + capacity_log2 % 7);
    let make = if is_mirrored { Geometry::mirrored } else { Geometry::plain };
    let Ok(geometry) = make(capacity, (capacity / 2) as u32 - 8) else { return };
    let mut memory = bytes.to_vec();
    memory.resize(capacity as usize, 0);
    let head = (head % capacity) & !7;
    // Most tails would be refused, and teach nothing.
    for tail in [tail, head + (tail % (capacity + 1) & !7)] {
        let _ = check_parse(geometry, &memory, head, tail);
    }
});
