use std::{println, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::every_history;
use crate::ring::{AdvertisedCursor, Geometry, HeadError, TailError};

fn params(is_mirrored: bool, window: Option<u32>) -> BufferedWriteParams {
    BufferedWriteParams { capacity_log2: 5, is_mirrored, head_threshold: 16, window }
}

#[test]
fn every_short_history_agrees_with_the_model() {
    let alphabet = [
        BufferedWriteOp::Send(0),
        BufferedWriteOp::Send(8),
        BufferedWriteOp::Push,
        BufferedWriteOp::Arrive,
        BufferedWriteOp::Take,
        BufferedWriteOp::Free,
        BufferedWriteOp::Tell,
        BufferedWriteOp::Hear,
    ];
    let mut histories = 0;
    for is_mirrored in [true, false] {
        for window in [None, Some(1)] {
            let start = CheckedBufferedWrite::new(params(is_mirrored, window)).unwrap();
            histories += every_history(&start, &alphabet, 6);
        }
    }
    println!("ring::write: {histories} histories");
    assert!(histories > 1_000_000);
}

#[test]
fn every_short_end_agrees_with_the_model() {
    let alphabet = [
        BufferedWriteOp::Send(8),
        BufferedWriteOp::Push,
        BufferedWriteOp::Arrive,
        BufferedWriteOp::Take,
        BufferedWriteOp::Free,
        BufferedWriteOp::Close,
        BufferedWriteOp::Stop,
        BufferedWriteOp::Hear,
        BufferedWriteOp::LieTail(8, true),
        BufferedWriteOp::LieTold(8, 1),
    ];
    let mut histories = 0;
    for window in [None, Some(2)] {
        let start = CheckedBufferedWrite::new(params(true, window)).unwrap();
        histories += every_history(&start, &alphabet, 5);
    }
    println!("ring::write: {histories} ends");
}

#[test]
fn each_lie_is_named() {
    let geometry = Geometry::mirrored(64, 40).unwrap();
    let mut sender = WriteSender::new(geometry, Some(1));
    for len in [8, 0] {
        let grant = sender.reserve(len).unwrap();
        sender.commit(grant, len).unwrap();
        if let Some(push) = sender.push() {
            sender.mark_pushed(&push);
        }
    }
    assert_eq!((sender.pushed(), sender.tail(), sender.may_push()), (16, 24, false));
    let beyond = UpdateError::Head(HeadError::BeyondTail { by: 8 });
    assert_eq!(sender.on_update(24, 0), Err(beyond), "committed, and not pushed");
    assert_eq!(sender.on_update(4, 0), Err(UpdateError::Head(HeadError::Misaligned)));
    assert_eq!(sender.on_update(16, 2), Err(UpdateError::Taken { taken: 2 }));
    assert_eq!(sender.on_update(8, 1), Ok(true));
    let back = UpdateError::Head(HeadError::Backwards { by: 8 });
    assert_eq!(sender.on_update(0, 1), Err(back));
    assert_eq!(sender.on_update(8, 0), Err(UpdateError::Taken { taken: 0 }));
    assert_eq!(sender.on_update(16 | 1, 2), Ok(true));
    assert_eq!(sender.taken_messages(), Some(2), "messages, and no immediates");
    assert!(sender.is_stopped());
    assert_eq!(sender.on_update(8, 9), Ok(false), "whatever follows");

    let mut receiver = WriteReceiver::new(geometry, 0, Some(1));
    let told = |position, is_last| AdvertisedCursor { position, is_last };
    assert_eq!(receiver.on_immediate(2), Ok(16));
    assert_eq!(receiver.on_immediate(3), Err(PushedError::Uncredited));
    receiver.mark_told(receiver.update());
    let over = PushedError::Tail(TailError::BeyondCapacity { by: 8 });
    assert_eq!(receiver.on_immediate(9), Err(over));
    assert_eq!(
        receiver.on_tail(told(8, false)),
        Err(PushedError::Tail(TailError::Backwards { by: 8 }))
    );
    let early = PushedError::InlineRecord { by: 8 };
    assert_eq!(receiver.on_inline_tail(told(32, false), 24), Err(early));
    assert_eq!(receiver.on_tail(told(16, true)), Ok(0));
    assert_eq!(receiver.on_tail(told(24, true)), Err(PushedError::AfterEnd));
    assert_eq!(receiver.on_tail(told(16, false)), Err(PushedError::AfterEnd), "goodbye taken back");
    assert_eq!(receiver.on_immediate(3), Err(PushedError::AfterEnd));
}

fn op() -> impl Strategy<Value = BufferedWriteOp> {
    prop_oneof![
        6 => (0..70u8).prop_map(BufferedWriteOp::Send),
        4 => Just(BufferedWriteOp::Push),
        4 => Just(BufferedWriteOp::Arrive),
        6 => Just(BufferedWriteOp::Take),
        4 => Just(BufferedWriteOp::Free),
        4 => Just(BufferedWriteOp::Tell),
        4 => Just(BufferedWriteOp::Hear),
        1 => any::<(i8, bool)>().prop_map(|(by, last)| BufferedWriteOp::LieTail(by, last)),
        1 => any::<u32>().prop_map(BufferedWriteOp::LieImmediate),
        1 => any::<(i8, i8)>().prop_map(|(head, taken)| BufferedWriteOp::LieTold(head, taken)),
    ]
}

proptest! {
    #[test]
    fn long_histories_agree_with_the_model(
        ops in proptest::collection::vec(op(), 0..400),
        capacity_log2 in 4..9u32, is_mirrored: bool, head_threshold in 0..100u64,
        window in proptest::option::of(1..5u32), closes: bool,
    ) {
        let params = BufferedWriteParams { capacity_log2, is_mirrored, head_threshold, window };
        let mut ops: Vec<BufferedWriteOp> = ops;
        if closes {
            ops.push(BufferedWriteOp::Close);
        }
        run(params, &ops);
    }
}
