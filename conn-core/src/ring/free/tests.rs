use std::{println, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};

#[test]
fn every_short_history_agrees_with_the_model() {
    let frees = (0..3).flat_map(|at| [true, false].map(|own| FreeListOp::Free { at, own }));
    let alphabet: Vec<FreeListOp> =
        frees.chain([FreeListOp::Lend(0), FreeListOp::Lend(2), FreeListOp::FreeAgain(0)]).collect();
    let mut histories = 0;
    for slots in [1, 2, 4] {
        histories += every_history(&CheckedFreeList::new(slots), &alphabet, 5);
    }
    println!("ring frees: {histories} histories");
    assert!(histories > 100_000);
}

#[test]
fn storage_is_a_power_of_two() {
    for slots in [0, 3, 12] {
        let storage: Vec<RecordSlot> = (0..slots).map(|_| RecordSlot::new()).collect();
        assert_eq!(FreeList::new(storage).unwrap_err(), FreeListError { slots });
    }
}

#[test]
fn a_handle_of_another_list_is_refused() {
    let list = |slots| FreeList::new((0..slots).map(|_| RecordSlot::new()).collect::<Vec<_>>());
    let (small, large) = (list(1).unwrap(), list(4).unwrap());
    let mut front = FreeFront::new();
    let _held = front.lend(&large, 8).unwrap();
    let second = front.lend(&large, 16).unwrap();
    assert_eq!(small.free(second), Err(NotLent));
}

fn op() -> impl Strategy<Value = FreeListOp> {
    prop_oneof![
        4 => (0..9u8).prop_map(FreeListOp::Lend),
        4 => (0..20u8, any::<bool>()).prop_map(|(at, own)| FreeListOp::Free { at, own }),
        1 => (0..40u8).prop_map(FreeListOp::FreeAgain),
        1 => Just(FreeListOp::Head),
    ]
}

proptest! {
    #[test]
    fn long_histories_agree_with_the_model(
        slots in 0..6u32, ops in proptest::collection::vec(op(), 0..200),
    ) {
        let mut pair = CheckedFreeList::new(1 << slots);
        ops.into_iter().for_each(|op| pair.apply(op));
    }
}
