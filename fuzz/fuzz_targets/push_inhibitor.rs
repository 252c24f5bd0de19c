//! Histories of the counters of one write, against the model of when it is pushed.
#![no_main]

use core::num::NonZeroU32;

use conn_core::exhaustive::CheckedMachine;
use conn_core::push_inhibitor::PushRule;
use conn_core::push_inhibitor::oracle::{CheckedPushInhibitor, PushInhibitorOp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, NonZeroU32, u16, Vec<PushInhibitorOp>)| {
    let (counters, every, deadline_ns, ops) = input;
    let rule = PushRule { every, deadline_ns: deadline_ns.into() };
    let mut pair = CheckedPushInhibitor::new(rule, usize::from(counters % 4) + 1);
    ops.into_iter().take(300).for_each(|op| pair.apply(op));
});
