//! Histories of the send tracker, against its model.
#![no_main]

use conn_core::exhaustive::CheckedMachine;
use conn_core::wr::{
    SendTrackerConfig,
    oracle::{CheckedSendTracker, SendTrackerOp},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, u8, Vec<SendTrackerOp>)| {
    let (depth, control_slots, signal_every, ops) = input;
    let config = SendTrackerConfig {
        depth: depth.into(),
        control_slots: control_slots.into(),
        signal_every: signal_every.into(),
    };
    let Ok(mut pair) = CheckedSendTracker::<4>::new(config) else { return };
    ops.into_iter().for_each(|op| pair.apply(op));
});
