use std::println;

use proptest::prelude::*;

use super::oracle::*;
use crate::exhaustive::{Pair, every_history};

#[test]
fn every_short_history_has_one_leader_and_no_missed_event() {
    let waits = [Op::Join(0, 0), Op::Join(1, 1), Op::JoinAny(2)];
    let others = [Op::Arrive(0), Op::Arrive(1), Op::Lead, Op::Wake(0), Op::Wake(1), Op::Wake(2)];
    let steps = [&waits[..], &others, &[Op::GiveUp(0), Op::GiveUp(1)]].concat();
    let histories = every_history(&Waited::new(), &steps, 6);
    println!("leader: {histories} histories");
    assert!(histories > 1_000_000);
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        any::<(u8, u8)>().prop_map(|(thread, object)| Op::Join(thread, object)),
        any::<u8>().prop_map(Op::JoinAny),
        any::<u8>().prop_map(Op::Arrive),
        Just(Op::Lead),
        any::<u8>().prop_map(Op::Wake),
        any::<u8>().prop_map(Op::GiveUp)
    ]
}

proptest! {
    #[test]
    fn in_long_histories_no_thread_sleeps_through_an_event(
        ops in proptest::collection::vec(op(), 0..500),
    ) {
        let mut pair = Waited::new();
        ops.into_iter().for_each(|op| pair.apply(op));
    }
}
