use std::println;

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};

#[test]
fn every_short_history_agrees_with_the_model() {
    let steps = [
        CombinerOp::Publish(0),
        CombinerOp::Publish(1),
        CombinerOp::Enter(0),
        CombinerOp::Enter(1),
        CombinerOp::Look,
        CombinerOp::Leave,
    ];
    let histories = every_history(&CheckedCombiner::new(), &steps, 8);
    println!("combiner: {histories} histories");
    assert!(histories > 1_000_000);
}

#[test]
fn threads_do_all_that_was_asked_for_one_at_a_time() {
    const EACH: u64 = 2000;
    let (combiner, asked) = (Combiner::new(), AtomicU64::new(0));
    // Two counters that only the one inside changes, and never apart.
    let done = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    asked.fetch_add(1, Ordering::Relaxed);
                    if !combiner.try_enter() {
                        continue;
                    }
                    loop {
                        let [one, other] = [0, 1].map(|i: usize| done[i].load(Ordering::Relaxed));
                        assert_eq!(one, other, "two are inside");
                        let seen = asked.load(Ordering::Relaxed);
                        done.iter().for_each(|done| done.store(seen, Ordering::Relaxed));
                        if !combiner.leave() {
                            break;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(done[0].load(Ordering::Relaxed), 3 * EACH);
    assert!(combiner.try_enter(), "the combiner is free again");
}

fn op() -> impl Strategy<Value = CombinerOp> {
    let thread = any::<u8>();
    prop_oneof![
        thread.prop_map(CombinerOp::Publish),
        thread.prop_map(CombinerOp::Enter),
        Just(CombinerOp::Look),
        Just(CombinerOp::Leave)
    ]
}

proptest! {
    #[test]
    fn long_histories_agree_with_the_model(ops in proptest::collection::vec(op(), 0..500)) {
        let mut pair = CheckedCombiner::new();
        ops.into_iter().for_each(|op| pair.apply(op));
    }
}
