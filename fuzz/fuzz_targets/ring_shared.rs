//! Histories of a ring with many senders and many receivers, against its model.
#![no_main]

use conn_core::exhaustive::CheckedMachine;
use conn_core::ring::Geometry;
use conn_core::ring::shared::oracle::{CheckedSharedRing, SharedRingOp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, bool, u8, Vec<SharedRingOp>)| {
    let (capacity_log2, is_mirrored, slots_log2, ops) = input;
    let capacity = 1u64 << (4 + capacity_log2 % 6);
    let make = if is_mirrored { Geometry::mirrored } else { Geometry::plain };
    let Ok(geometry) = make(capacity, (capacity / 2) as u32 - 8) else { return };
    let Some(mut crowd) = CheckedSharedRing::new(geometry, 1 << (slots_log2 % 5)) else { return };
    ops.into_iter().take(300).for_each(|op| crowd.apply(op));
});
