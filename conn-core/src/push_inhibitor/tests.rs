use std::{println, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};

fn rule(every: u32, deadline_ns: u64) -> PushRule {
    PushRule { every: NonZeroU32::new(every).expect("not 0"), deadline_ns }
}

#[test]
fn every_short_history_agrees_with_the_model() {
    let steps = [(0, 1), (0, 3), (1, 2)].map(|(at, by)| PushInhibitorOp::Advance { at, by });
    let others = [
        PushInhibitorOp::Lower(0),
        PushInhibitorOp::Urge,
        PushInhibitorOp::Look(0),
        PushInhibitorOp::Look(6),
        PushInhibitorOp::Push,
    ];
    let alphabet: Vec<PushInhibitorOp> = steps.into_iter().chain(others).collect();
    let mut histories = 0;
    for (every, deadline_ns) in [(1, 10), (2, 0), (3, 10), (5, 7)] {
        histories +=
            every_history(&CheckedPushInhibitor::new(rule(every, deadline_ns), 2), &alphabet, 6);
    }
    println!("push inhibitor: {histories} histories");
    assert!(histories > 1_000_000);
}

/// With k, 1000 messages take one push for each k; a push at the deadline moves no boundary.
#[test]
fn messages_share_a_push() {
    for (every, pushes) in [(1, 1000), (3, 333), (25, 40), (250, 4), (1001, 0)] {
        let mut slots = PushInhibitor::new(rule(every, u64::MAX), [PushCounter::new()]);
        let mut pushed = 0;
        for message in 1..=1000 {
            slots.advance(0, message);
            if let Some(cause) = slots.due(message) {
                assert_eq!(cause, PushCause::Crossed);
                slots.mark_pushed();
                pushed += 1;
            }
        }
        assert_eq!(pushed, pushes, "every {every}");
    }
}

#[test]
fn a_lone_message_waits_for_one_deadline() {
    let mut slots = PushInhibitor::new(rule(100, 150_000), [PushCounter::new()]);
    assert_eq!((slots.due(5), slots.wants_ns()), (None, None), "nothing is inhibited");
    slots.advance(0, 1);
    assert_eq!((slots.due(10), slots.wants_ns()), (None, Some(150_010)));
    slots.advance(0, 2); // company does not move the deadline
    assert_eq!((slots.due(150_009), slots.wants_ns()), (None, Some(150_010)));
    assert_eq!(slots.due(150_010), Some(PushCause::Forced));
    slots.mark_pushed();
    assert_eq!((slots.due(u64::MAX), slots.wants_ns()), (None, None));
    slots.advance(0, 3);
    assert_eq!(slots.due(u64::MAX - 1), None, "a deadline of its own");
    assert_eq!(slots.wants_ns(), Some(u64::MAX), "the last time that there is");
}

#[test]
fn a_flush_does_not_wait() {
    let mut slots = PushInhibitor::new(rule(100, 150_000), [PushCounter::new()]);
    slots.urge();
    assert_eq!(slots.due(0), Some(PushCause::Urged), "though nothing has moved");
    slots.mark_pushed();
    assert_eq!(slots.due(1), None);
}

fn op() -> impl Strategy<Value = PushInhibitorOp> {
    prop_oneof![
        6 => (0..3u8, 0..20u32).prop_map(|(at, by)| PushInhibitorOp::Advance { at, by }),
        1 => (0..3u8, any::<u32>()).prop_map(|(at, by)| PushInhibitorOp::Advance { at, by }),
        1 => (0..3u8).prop_map(PushInhibitorOp::Lower),
        1 => Just(PushInhibitorOp::Urge),
        6 => (0..200u16).prop_map(PushInhibitorOp::Look),
        3 => Just(PushInhibitorOp::Push),
    ]
}

proptest! {
    #[test]
    fn long_histories_agree_with_the_model(
        counters in 1..4usize,
        every in prop_oneof![1..50u32, Just(u32::MAX)],
        deadline_ns in 0..500u64,
        ops in proptest::collection::vec(op(), 0..300),
    ) {
        let mut pair = CheckedPushInhibitor::new(rule(every, deadline_ns), counters);
        ops.into_iter().for_each(|op| pair.apply(op));
    }
}
