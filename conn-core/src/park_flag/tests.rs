use std::println;

use proptest::prelude::*;

use super::oracle::*;
use crate::exhaustive::{CheckedMachine, every_history};

#[test]
fn every_short_history_agrees_with_the_model() {
    let sleeper = [ParkFlagOp::Announce, ParkFlagOp::Look, ParkFlagOp::Retract, ParkFlagOp::WakeUp];
    let publishers =
        [ParkFlagOp::Publish(0), ParkFlagOp::Publish(1), ParkFlagOp::Ask(0), ParkFlagOp::Ask(1)];
    let steps = [sleeper, publishers].concat();
    let histories = every_history(&CheckedParkFlag::new(), &steps, 7);
    println!("park flag: {histories} histories");
    assert!(histories > 1_000_000);
}

fn op() -> impl Strategy<Value = ParkFlagOp> {
    prop_oneof![
        Just(ParkFlagOp::Announce),
        Just(ParkFlagOp::Look),
        Just(ParkFlagOp::Retract),
        Just(ParkFlagOp::WakeUp),
        any::<u8>().prop_map(ParkFlagOp::Publish),
        any::<u8>().prop_map(ParkFlagOp::Ask)
    ]
}

proptest! {
    #[test]
    fn long_histories_agree_with_the_model(ops in proptest::collection::vec(op(), 0..500)) {
        let mut pair = CheckedParkFlag::new();
        ops.into_iter().for_each(|op| pair.apply(op));
    }
}
