use std::println;

use proptest::prelude::*;

use super::oracle::*;
use crate::exhaustive::{Pair, every_history};

#[test]
fn every_short_history_agrees_with_the_model() {
    let sleeper = [Op::Announce, Op::Look, Op::Retract, Op::WakeUp];
    let publishers = [Op::Publish(0), Op::Publish(1), Op::Ask(0), Op::Ask(1)];
    let steps = [sleeper, publishers].concat();
    let histories = every_history(&Slept::new(), &steps, 7);
    println!("park flag: {histories} histories");
    assert!(histories > 1_000_000);
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        Just(Op::Announce),
        Just(Op::Look),
        Just(Op::Retract),
        Just(Op::WakeUp),
        any::<u8>().prop_map(Op::Publish),
        any::<u8>().prop_map(Op::Ask)
    ]
}

proptest! {
    #[test]
    fn long_histories_agree_with_the_model(ops in proptest::collection::vec(op(), 0..500)) {
        let mut pair = Slept::new();
        ops.into_iter().for_each(|op| pair.apply(op));
    }
}
