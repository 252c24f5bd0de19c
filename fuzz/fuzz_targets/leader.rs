//! Histories of the steps of threads that wait for events of one source.
#![no_main]

use conn_core::exhaustive::CheckedMachine;
use conn_core::leader::oracle::{CheckedFollowers, FollowersOp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|ops: Vec<FollowersOp>| {
    let mut pair = CheckedFollowers::new();
    ops.into_iter().for_each(|op| pair.apply(op));
});
