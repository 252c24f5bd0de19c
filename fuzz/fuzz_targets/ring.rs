//! Histories of a ring with both its ends, of which either may lie, against its model.
#![no_main]

use conn_core::exhaustive::CheckedMachine;
use conn_core::ring::oracle::{CheckedRing, RingOp, RingParams};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (RingParams, Vec<RingOp>)| {
    let (params, ops) = input;
    let capacity_log2 = 4 + params.capacity_log2 % 7;
    let reads = 1 + params.reads % 16;
    let max_payload = params.max_payload.map(|most| most % (1 << 10));
    let params = RingParams { capacity_log2, reads, max_payload, ..params };
    let Some(mut ring) = CheckedRing::new(params) else { return };
    ops.into_iter().take(300).for_each(|op| ring.apply(op));
});
