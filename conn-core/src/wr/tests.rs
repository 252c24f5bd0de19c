use std::{println, vec, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};

fn config(depth: u32, control_slots: u32, signal_every: u32) -> SendTrackerConfig {
    SendTrackerConfig { depth, control_slots, signal_every }
}

fn alphabet(depth: u8) -> Vec<SendTrackerOp> {
    let mut ops = vec![SendTrackerOp::RollbackBeyond];
    for (control, forced) in [(false, false), (false, true), (true, false), (true, true)] {
        ops.push(SendTrackerOp::Plan { control, forced });
    }
    for n in 0..=depth + 1 {
        ops.extend([SendTrackerOp::Rollback { back: n }, SendTrackerOp::Complete { ahead: n }]);
        ops.push(SendTrackerOp::CompleteFailed { ahead: n });
    }
    ops.extend((2..=depth).map(|n| SendTrackerOp::PlanRun { control: false, n }));
    ops.extend([
        SendTrackerOp::PlanRun { control: false, n: 0 },
        SendTrackerOp::PlanRun { control: true, n: 2 },
    ]);
    ops
}

#[test]
fn every_short_history_agrees_with_the_model() {
    let mut histories = 0;
    for depth in 1..=3 {
        for control in 0..depth {
            for every in 1..=depth + 1 {
                let start = CheckedSendTracker::<1>::new(config(depth, control, every)).unwrap();
                histories += every_history(&start, &alphabet(depth as u8), 4);
            }
        }
    }
    println!("wr: {histories} histories");
    assert!(histories > 1_000_000);
}

/// A queue is filled, with any request forced, and emptied by completions: a full queue without a
/// signalled request would stay full for ever.
#[test]
fn a_full_queue_always_drains() {
    let mut fillings = 0;
    for depth in 1..=7 {
        for (control, every) in (0..depth).flat_map(|c| (1..=depth + 1).map(move |e| (c, e))) {
            for forced in 0u32..1 << depth {
                for offset in 0..every {
                    fill_and_drain(config(depth, control, every), forced, offset);
                    fillings += 1;
                }
            }
        }
    }
    println!("wr: {fillings} fillings");
}

fn fill_and_drain(config: SendTrackerConfig, forced: u32, offset: u32) {
    let mut tracker = SendTracker::<[u64; 1]>::with_storage(config, [0]).unwrap();
    for _ in 0..offset {
        let planned = tracker.plan_signalled(WrClass::Data).unwrap();
        tracker.complete(planned.id).unwrap();
    }
    for class in [WrClass::Data, WrClass::Control] {
        let mut last = WrId(0);
        while tracker.available(class) > 0 {
            let force = forced >> tracker.outstanding() & 1 == 1;
            let planned =
                if force { tracker.plan_signalled(class) } else { tracker.plan(class) }.unwrap();
            last = if planned.signalled { planned.id } else { last };
        }
        assert!(tracker.signalled_outstanding());
        if last != WrId(0) {
            assert_eq!(tracker.clone().complete(last).map(|n| n > 0), Ok(true));
        }
    }
}

#[test]
fn rollback_restores_what_was_before_the_plans() {
    for (every, planned_before, planned_after) in
        (1..=9).flat_map(|e| (0..20).flat_map(move |b| (0..12).map(move |a| (e, b, a))))
    {
        let mut tracker = SendTracker::new(config(32, 2, every)).unwrap();
        for _ in 0..planned_before {
            tracker.plan(WrClass::Data).unwrap();
        }
        let before = tracker.clone();
        for n in 0..planned_after {
            if n % 3 == 0 {
                tracker.plan_signalled(WrClass::Control).unwrap();
            } else {
                tracker.plan(WrClass::Control).unwrap();
            }
        }
        assert_eq!(tracker.rollback(before.next_id()), Ok(planned_after));
        let state = |t: &SendTracker| (t.completed, t.next, t.next_signal, t.last_signalled);
        assert_eq!(state(&tracker), state(&before));
    }
}

#[test]
fn a_config_that_makes_no_queue_is_refused() {
    use SendTrackerConfigError::*;
    let refused = |c| SendTracker::new(c).unwrap_err();
    assert_eq!(refused(config(0, 0, 1)), NoDataSlots);
    assert_eq!(refused(config(4, 4, 1)), NoDataSlots);
    assert_eq!(refused(config(4, 1, 0)), NeverSignalled);
    assert_eq!(refused(config(4097, 1, 1)), StorageTooSmall { needed_words: 128 });
    assert!(SendTracker::new(config(4096, 0, 1)).is_ok());
    assert!(SendTracker::with_storage(config(4097, 1, 1), vec![0; 128]).is_ok());
    assert!(SendTracker::with_storage(config(u32::MAX, 1, 1), [0]).is_err());
}

fn op() -> impl Strategy<Value = SendTrackerOp> {
    prop_oneof![
        6 => any::<(bool, bool)>()
            .prop_map(|(control, forced)| SendTrackerOp::Plan { control, forced }),
        2 => (any::<bool>(), 0..20u8)
            .prop_map(|(control, n)| SendTrackerOp::PlanRun { control, n }),
        1 => (0..70u8).prop_map(|back| SendTrackerOp::Rollback { back }),
        1 => Just(SendTrackerOp::RollbackBeyond),
        2 => (0..70u8).prop_map(|ahead| SendTrackerOp::Complete { ahead }),
        1 => (0..70u8).prop_map(|ahead| SendTrackerOp::CompleteFailed { ahead }),
    ]
}

proptest! {
    #[test]
    fn long_histories_agree_with_the_model(
        depth in 1..130u32, control in 0..8u32, every in 1..140u32,
        ops in proptest::collection::vec(op(), 0..400),
    ) {
        let config = config(depth, control.min(depth - 1), every);
        let mut pair = CheckedSendTracker::<4>::new(config).unwrap();
        for op in ops {
            pair.apply(op);
        }
    }
}
