use std::{println, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};
use crate::ring::{Consumer, ConsumerConfig, Geometry, Taken};

#[test]
fn every_short_history_agrees_with_the_model() {
    let alphabet = [
        SharedRingOp::Reserve(0),
        SharedRingOp::Reserve(8),
        SharedRingOp::Publish(0),
        SharedRingOp::Publish(1),
        SharedRingOp::GiveUp(0),
        SharedRingOp::Land(1),
        SharedRingOp::Land(u8::MAX),
        SharedRingOp::Take,
        SharedRingOp::Free(0),
        SharedRingOp::TellHead,
    ];
    let mut histories = 0;
    for geometry in [Geometry::mirrored(32, 24), Geometry::plain(32, 8)] {
        for slots in [1, 2] {
            let start = CheckedSharedRing::new(geometry.unwrap(), slots).unwrap();
            histories += every_history(&start, &alphabet, 6);
        }
    }
    println!("shared ring: {histories} histories");
    assert!(histories > 1_000_000);
}

#[test]
fn claims_are_understood_wherever_the_positions_are() {
    for head in [0, 8, (1 << 43) - 8, 1 << 43, (1 << 60) + 24] {
        for ahead in [0, 8, 4096] {
            for count in [0, 1, COUNT] {
                let word = ClaimWord { position: head + ahead, count }.pack();
                let claim = ClaimWord::unpack(word, head, 4096).unwrap();
                assert_eq!((claim.position, claim.count), (head + ahead, count));
            }
            let old = ClaimWord { position: head + ahead, count: 0 }.pack();
            assert!(ClaimWord::unpack(old, head + ahead + 8, 4096).is_none());
        }
    }
}

#[test]
fn storage_is_a_power_of_two() {
    let geometry = Geometry::mirrored(64, 8).unwrap();
    for slots in [0, 3] {
        let storage: Vec<RecordSlot> = (0..slots).map(|_| RecordSlot::new()).collect();
        assert_eq!(Senders::new(geometry, storage).unwrap_err(), FreeListError { slots });
    }
}

fn op() -> impl Strategy<Value = SharedRingOp> {
    prop_oneof![
        5 => (0..70u8).prop_map(SharedRingOp::Reserve),
        5 => (0..4u8).prop_map(SharedRingOp::Publish),
        1 => (0..4u8).prop_map(SharedRingOp::GiveUp),
        2 => (0..8u8).prop_map(SharedRingOp::Land),
        2 => Just(SharedRingOp::Land(u8::MAX)),
        5 => Just(SharedRingOp::Take),
        5 => (0..4u8).prop_map(SharedRingOp::Free),
        3 => Just(SharedRingOp::TellHead),
        1 => any::<i8>().prop_map(SharedRingOp::LieHead),
    ]
}

proptest! {
    #[test]
    fn long_histories_agree_with_the_model(
        capacity_log2 in 4..9u32, is_mirrored: bool, slots_log2 in 0..4u32,
        ops in proptest::collection::vec(op(), 0..200),
    ) {
        let capacity = 1 << capacity_log2;
        let most = (capacity / 2) as u32 - 8;
        let geometry = match is_mirrored {
            true => Geometry::mirrored(capacity, most),
            false => Geometry::plain(capacity, most),
        };
        let mut crowd = CheckedSharedRing::new(geometry.unwrap(), 1 << slots_log2).unwrap();
        ops.into_iter().for_each(|op| crowd.apply(op));
    }
}

/// A skip record that is longer than any payload has a length that still fits.
#[test]
fn the_largest_ring_can_be_skipped_as_a_whole() {
    let geometry = Geometry::mirrored(1 << 32, u32::MAX - 7).unwrap();
    let ring = Senders::new(geometry, [const { RecordSlot::new() }; 2]).unwrap();
    let grant = ring.reserve(u32::MAX - 7).unwrap();
    let (header, before) = ring.unused(&grant);
    assert_eq!((header.word, before), (1 << 63 | u64::from(u32::MAX - 7), None));
    let mut receiver = Consumer::new(geometry, ConsumerConfig { head_threshold: 0 });
    receiver.on_tail_landed(1 << 32).unwrap();
    assert_eq!(receiver.take(header.word), Ok(Taken::Skipped));
    assert_eq!(receiver.read_pointer(), 1 << 32);
}
