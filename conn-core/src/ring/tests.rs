use std::{println, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};

fn params(capacity_log2: u32, is_mirrored: bool) -> RingParams {
    RingParams {
        capacity_log2,
        max_payload: None,
        is_mirrored,
        head_threshold: 0,
        max_read_bytes: 16,
        reads: 2,
    }
}

/// Receiving takes several steps, which go together here.
#[test]
fn every_short_history_agrees_with_the_model() {
    let send = |len| RingOp::Send { len, spare: 0 };
    let alphabet = [
        send(0),
        send(8),
        RingOp::LookAtTail,
        RingOp::Fetch,
        RingOp::Land,
        RingOp::Take,
        RingOp::Free(0),
        RingOp::TellHead,
    ];
    let mut histories = 0;
    for is_mirrored in [true, false] {
        for head_threshold in [0, 16] {
            let params = RingParams { head_threshold, ..params(5, is_mirrored) };
            histories += every_history(&CheckedRing::new(params).unwrap(), &alphabet, 6);
        }
    }
    println!("ring: {histories} histories");
    assert!(histories > 1_000_000);
}

/// Messages are sent, received and freed at once until the positions have gone round,
/// for every length, so that the longest message meets every head there can be.
#[test]
fn the_longest_message_fits_after_every_head() {
    for is_mirrored in [true, false] {
        for capacity_log2 in 4..=7 {
            let capacity = 1u8 << capacity_log2;
            for first in (0..capacity).step_by(8) {
                for len in 0..=capacity {
                    let mut ring = CheckedRing::new(params(capacity_log2, is_mirrored)).unwrap();
                    let through = |ring: &mut CheckedRing, len| {
                        ring.apply(RingOp::Send { len, spare: 0 });
                        ring.apply(RingOp::LookAtTail);
                        for op in
                            [RingOp::Fetch, RingOp::Land].repeat(usize::from(capacity) / 16 + 2)
                        {
                            ring.apply(op);
                        }
                        [RingOp::Take, RingOp::Free(0), RingOp::TellHead]
                            .into_iter()
                            .for_each(|op| ring.apply(op));
                    };
                    through(&mut ring, first);
                    through(&mut ring, len);
                }
            }
        }
    }
}

#[test]
fn a_ring_has_a_power_of_two_bytes_and_fits_its_messages() {
    for bytes in [0, 8, 24, 1 << 33] {
        assert_eq!(Geometry::mirrored(bytes, 0), Err(GeometryError::Capacity { bytes }));
    }
    assert!(Geometry::mirrored(64, 56).is_ok());
    let most = |most| Err(GeometryError::MessageTooLong { most });
    assert_eq!(Geometry::mirrored(64, 57), most(56));
    assert!(Geometry::plain(64, 24).is_ok());
    assert_eq!(Geometry::plain(64, 25), most(24));
    assert!(Geometry::mirrored(1 << 32, u32::MAX - 7).is_ok());
}

#[test]
fn old_grants_are_refused() {
    let mut ring = Producer::new(Geometry::mirrored(64, 24).unwrap());
    let (old, new) = (ring.reserve(8).unwrap(), ring.reserve(8).unwrap());
    assert_eq!(ring.commit(ring.reserve(8).unwrap(), 9), Err(CommitError));
    ring.commit(new, 8).unwrap();
    let before = ring.clone();
    assert_eq!(ring.commit(old, 8), Err(CommitError));
    assert_eq!(ring, before);
}

#[test]
fn lies_are_told_apart() {
    let geometry = Geometry::mirrored(64, 24).unwrap();
    let mut receiver = Consumer::new(geometry, ConsumerConfig { head_threshold: 0 });
    assert_eq!(receiver.on_tail(16), Ok(16));
    assert_eq!(receiver.on_tail(8), Err(TailError::Backwards { by: 8 }));
    assert_eq!(receiver.on_tail(72), Err(TailError::BeyondCapacity { by: 8 }));
    assert_eq!(receiver.on_tail(20), Err(TailError::Misaligned));
    receiver.on_landed(16).unwrap();
    let word = |position: u64, len: u64| (position / 8) << 32 | len;
    for (lie, error) in [
        (word(8, 8), RecordError::Mark { position: 0 }),
        (word(0, 25), RecordError::TooLong { claimed: 25, most: 24 }),
        (word(0, 9), RecordError::BeyondTail { by: 8 }),
        (word(0, 7) | 1 << 63, RecordError::Wrap),
        (word(0, 16) | 1 << 63, RecordError::BeyondTail { by: 8 }),
        (word(0, u32::MAX.into()), RecordError::TooLong { claimed: u32::MAX, most: 24 }),
    ] {
        assert_eq!(receiver.take(lie), Err(error));
    }
    let mut sender = Producer::new(geometry);
    sender.commit(sender.reserve(8).unwrap(), 8).unwrap();
    assert_eq!(sender.on_head(8), Ok(8));
    assert_eq!(sender.on_head(0), Err(HeadError::Backwards { by: 8 }));
    assert_eq!(sender.on_head(24), Err(HeadError::BeyondTail { by: 8 }));
    assert_eq!(sender.on_head(12), Err(HeadError::Misaligned));
}

/// Every ring of 32 bytes with words that are records, skip records or neither, and with every
/// head.
#[test]
fn every_small_ring_parses_as_the_model_says() {
    const LENGTHS: [u32; 7] = [0, 1, 8, 9, 16, 24, u32::MAX];
    let mut rings = 0u64;
    for (is_mirrored, head) in
        [true, false].into_iter().flat_map(|is| [0, 8, 16, 24].map(|h| (is, h)))
    {
        let most = if is_mirrored { 24 } else { 8 };
        let geometry = Geometry::new(32, most, is_mirrored).unwrap();
        for n in 0..(2 * LENGTHS.len()).pow(4) {
            let choice = |at: u32| n / (2 * LENGTHS.len()).pow(at) % (2 * LENGTHS.len());
            let word = |at: u32| {
                let len = u64::from(LENGTHS[choice(at) % LENGTHS.len()]);
                let skip = (choice(at) / LENGTHS.len()) as u64;
                skip << 63 | u64::from(mark(at, head, 4)) << 32 | len
            };
            let memory: Vec<u8> = (0..4).flat_map(|at| word(at).to_le_bytes()).collect();
            for tail in (head..=head + 32).step_by(8) {
                let _ = check_parse(geometry, &memory, head, tail);
                rings += 1;
            }
        }
    }
    println!("ring: {rings} rings parsed");
}

/// The mark of the word `at`, in a ring of `words` words with a head in the first lap.
fn mark(at: u32, head: u64, words: u32) -> u32 {
    if u64::from(at) * 8 < head { at + words } else { at }
}

fn op() -> impl Strategy<Value = RingOp> {
    prop_oneof![
        6 => (0..90u8, 0..9u8).prop_map(|(len, spare)| RingOp::Send { len, spare }),
        3 => Just(RingOp::LookAtTail),
        4 => Just(RingOp::Fetch),
        4 => Just(RingOp::Land),
        6 => Just(RingOp::Take),
        6 => (0..4u8).prop_map(RingOp::Free),
        3 => Just(RingOp::TellHead),
        1 => any::<i8>().prop_map(RingOp::LieTail),
        1 => any::<i8>().prop_map(RingOp::LieHead),
    ]
}

proptest! {
    #[test]
    fn long_histories_agree_with_the_model(
        capacity_log2 in 4..9u32,
        is_mirrored: bool,
        max_payload in proptest::option::of(0..100u32),
        head_threshold in 0..200u64,
        max_read_bytes in 8..300u32,
        reads in 1..6u32,
        ops in proptest::collection::vec(op(), 0..150),
    ) {
        let params = RingParams {
            capacity_log2, max_payload, is_mirrored, head_threshold, max_read_bytes, reads,
        };
        if let Some(mut ring) = CheckedRing::new(params) {
            ops.into_iter().for_each(|op| ring.apply(op));
        }
    }

    #[test]
    fn arbitrary_bytes_parse_as_the_model_says(
        is_mirrored: bool,
        words in proptest::collection::vec((any::<bool>(), 0..40u32, any::<u32>()), 16),
        head in 0..16u64,
        tail in 0..20u64,
    ) {
        let geometry = Geometry::new(128, 40, is_mirrored).unwrap();
        let word = |(at, (is_marked, len, any)): (usize, (bool, u32, u32))| {
            let here = mark(at as u32, head * 8, 16);
            let mark = if is_marked { here | any & 1 << 31 } else { any };
            u64::from(mark) << 32 | u64::from(len)
        };
        let memory: Vec<u8> = words.into_iter().enumerate().map(word).flat_map(u64::to_le_bytes).collect();
        let _ = check_parse(geometry, &memory, head * 8, (head + tail) * 8);
    }
}
