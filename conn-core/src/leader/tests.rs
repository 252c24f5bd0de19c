use std::println;

use proptest::prelude::*;

use super::oracle::*;
use crate::exhaustive::{CheckedMachine, every_history};

#[test]
fn every_short_history_has_one_leader_and_no_missed_event() {
    let waits = [FollowersOp::Join(0, 0), FollowersOp::Join(1, 1), FollowersOp::JoinAny(2)];
    let others = [
        FollowersOp::Arrive(0),
        FollowersOp::Arrive(1),
        FollowersOp::Lead,
        FollowersOp::Wake(0),
        FollowersOp::Wake(1),
        FollowersOp::Wake(2),
    ];
    let steps = [&waits[..], &others, &[FollowersOp::GiveUp(0), FollowersOp::GiveUp(1)]].concat();
    let histories = every_history(&CheckedFollowers::new(), &steps, 6);
    println!("leader: {histories} histories");
    assert!(histories > 1_000_000);
}

fn op() -> impl Strategy<Value = FollowersOp> {
    prop_oneof![
        any::<(u8, u8)>().prop_map(|(thread, object)| FollowersOp::Join(thread, object)),
        any::<u8>().prop_map(FollowersOp::JoinAny),
        any::<u8>().prop_map(FollowersOp::Arrive),
        Just(FollowersOp::Lead),
        any::<u8>().prop_map(FollowersOp::Wake),
        any::<u8>().prop_map(FollowersOp::GiveUp)
    ]
}

proptest! {
    #[test]
    fn in_long_histories_no_thread_sleeps_through_an_event(
        ops in proptest::collection::vec(op(), 0..500),
    ) {
        let mut pair = CheckedFollowers::new();
        ops.into_iter().for_each(|op| pair.apply(op));
    }
}
