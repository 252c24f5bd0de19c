use std::{println, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::terms::{TERMS_LEN, Terms, TermsError};
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};
use crate::ring::offer::Place;

/// After every operation, a copy of the connection is brought to rest.
#[derive(Clone)]
struct SettlingDirectWrite(CheckedDirectWrite);

impl CheckedMachine for SettlingDirectWrite {
    type Op = DirectWriteOp;

    fn apply(&mut self, op: DirectWriteOp) {
        self.0.apply(op);
        self.0.clone().settle();
    }
}

#[test]
fn every_short_history_agrees_with_the_model() {
    let alphabet = [
        DirectWriteOp::Send(9),
        DirectWriteOp::Arrive,
        DirectWriteOp::Begin(200),
        DirectWriteOp::Look,
        DirectWriteOp::Free(1),
        DirectWriteOp::Tell(1),
        DirectWriteOp::Hear,
    ];
    let ends = [
        DirectWriteOp::Send(0),
        DirectWriteOp::Arrive,
        DirectWriteOp::Look,
        DirectWriteOp::Close,
        DirectWriteOp::Stop,
        DirectWriteOp::Free(0),
        DirectWriteOp::Tell(2),
    ];
    let mut histories = 0;
    for detection in 0..3 {
        let params = DirectWriteParams { buffers: 1, spare_slots: 1, max_message: 16, detection };
        let start = CheckedDirectWrite::new(params);
        histories += every_history(&start, &alphabet, 7);
        histories += every_history(&SettlingDirectWrite(start), &ends, 5);
    }
    println!("direct_write: {histories} histories");
    assert!(histories > 2_000_000);
}

fn op() -> impl Strategy<Value = DirectWriteOp> {
    let honest = prop_oneof![
        4 => any::<u8>().prop_map(DirectWriteOp::Send),
        4 => Just(DirectWriteOp::Arrive),
        2 => any::<u8>().prop_map(DirectWriteOp::Begin),
        4 => Just(DirectWriteOp::Look),
        3 => any::<u8>().prop_map(DirectWriteOp::Free),
        2 => (0..4u8).prop_map(DirectWriteOp::Tell),
        2 => Just(DirectWriteOp::Hear),
        1 => any::<u8>().prop_map(DirectWriteOp::BeginHear),
    ];
    let lies = prop_oneof![
        (any::<i8>(), any::<u32>()).prop_map(|(by, len)| DirectWriteOp::LieTrailer(by, len)),
        (-1..2i8, 0..40u32).prop_map(|(by, len)| DirectWriteOp::LieTrailer(by, len)),
        (0..3u32).prop_map(DirectWriteOp::LieImmediate),
        any::<i8>().prop_map(DirectWriteOp::LieGoodbye),
        (-1..2i8, any::<u8>()).prop_map(|(by, buffer)| DirectWriteOp::LieSlot(by, buffer)),
        any::<i8>().prop_map(DirectWriteOp::LieStop),
    ];
    prop_oneof![
        40 => honest,
        4 => lies,
        1 => Just(DirectWriteOp::Close),
        1 => Just(DirectWriteOp::Stop),
    ]
}

proptest! {
    #[test]
    fn what_is_sent_is_taken_once_and_in_order(
        (buffers, spare_slots, max_message, detection) in any::<(u8, u8, u8, u8)>(),
        ops in proptest::collection::vec(op(), 0..400),
    ) {
        run(DirectWriteParams { buffers, spare_slots, max_message, detection }, &ops);
    }

    #[test]
    fn any_bytes_are_terms_or_an_error(bytes in any::<Vec<u8>>()) {
        if let Ok((terms, rest)) = Terms::decode(&bytes) {
            prop_assert_eq!(&terms.encode()[..], &bytes[..TERMS_LEN]);
            prop_assert_eq!(rest, &bytes[TERMS_LEN..]);
        }
    }

    #[test]
    fn terms_come_out_as_they_went_in(
        buffers in 1..=MAX_BUFFERS, longest in 0..=MAX_MESSAGE, code in 0..4u8,
        addr in 1..u64::MAX >> 4, rkey in any::<u32>(),
    ) {
        let place = Place { addr: addr * 8, rkey };
        let terms = match Detection::from_code(code) {
            None => Terms::Sender { place, slots: buffers },
            Some(detection) => {
                let layout = Layout::new(buffers, longest).unwrap();
                Terms::Receiver { place, layout, detection }
            }
        };
        let bytes = terms.encode();
        prop_assert_eq!(Terms::decode(&bytes), Ok((terms, &[][..])));
    }
}

#[test]
fn terms_have_these_bytes() {
    let place = Place { addr: 0x0102_0304_0506_0708, rkey: 0x1112_1314 };
    let layout = Layout::new(0x3132, 0x2122_2324).unwrap();
    let bytes = [
        [8, 7, 6, 5],
        [4, 3, 2, 1],
        [0x14, 0x13, 0x12, 0x11],
        [0x32, 0x31, 0, 0],
        [0x24, 0x23, 0x22, 0x21],
        [2, 0, 0, 0],
    ];
    let receiver = Terms::Receiver { place, layout, detection: Detection::ApartTrailer };
    assert_eq!(receiver.encode(), bytes.as_flattened());
    assert_eq!(Terms::decode(bytes.as_flattened()), Ok((receiver, &[][..])));
    let mut bytes = bytes;
    bytes[4..].fill([0; 4]);
    assert_eq!(Terms::Sender { place, slots: 0x3132 }.encode(), bytes.as_flattened());
}

#[test]
fn terms_that_cannot_be_are_named() {
    let place = Place { addr: 4096, rkey: 7 };
    let layout = Layout::new(4, 100).unwrap();
    let good = Terms::Receiver { place, layout, detection: Detection::Trailer }.encode();
    let with = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        Terms::decode(&bytes).map(|_| ()).unwrap_err()
    };
    assert_eq!(with(20, 9), TermsError::Detection(9));
    assert_eq!(with(21, 1), TermsError::NotZero);
    assert_eq!(with(20, 0), TermsError::NotZero, "a sender has no longest message");
    assert_eq!(with(0, 1), TermsError::Memory);
    assert_eq!(with(12, 0), TermsError::Layout(LayoutError::Buffers(0)));
    assert_eq!(with(19, 0x7f), TermsError::Layout(LayoutError::Message(0x7f00_0064)));
    assert_eq!(Terms::decode(&good[..23]), Err(TermsError::TooShort { len: 23 }));
    let end = Place { addr: u64::MAX - 7, rkey: 0 };
    let beyond = Terms::Sender { place: end, slots: 1 }.encode();
    assert_eq!(Terms::decode(&beyond), Err(TermsError::Memory));
}

#[test]
fn each_lie_is_named() {
    let layout = Layout::new(2, 16).unwrap();
    let receiver = |detection| BufferReceiver::new(layout, 2, detection, [0; 2]).unwrap();
    let mut polled = receiver(Detection::Trailer);
    assert_eq!(polled.on_trailer(Some([1, 17])), Err(ArrivalError::TooLong { len: 17 }));
    assert_eq!(polled.on_trailer(Some([2, 0])), Err(ArrivalError::Early { number: 2 }));
    assert_eq!(polled.on_immediate(IMM_MESSAGE), Err(ArrivalError::Immediate(IMM_MESSAGE)));
    assert!(polled.on_trailer(Some([1, 16])).unwrap().is_some());
    assert_eq!(polled.on_goodbye(Some([0, GOODBYE])), Err(ArrivalError::Goodbye { total: 0 }));
    assert!(polled.on_trailer(Some([2, 0])).unwrap().is_some());
    assert_eq!(polled.expected(), None, "neither buffer is free");

    let mut told = receiver(Detection::Immediate);
    assert_eq!(told.expected(), None);
    for _ in 0..2 {
        told.on_immediate(IMM_MESSAGE).unwrap();
    }
    assert_eq!(told.on_immediate(IMM_MESSAGE), Err(ArrivalError::Immediate(IMM_MESSAGE)));
    assert_eq!(told.on_immediate(7), Err(ArrivalError::Immediate(7)));
    assert_eq!(told.on_trailer(None), Err(ArrivalError::Missing));
    assert_eq!(told.on_trailer(Some([0, 0])), Err(ArrivalError::Missing));
    assert!(!told.awaits_goodbye());
    told.on_immediate(IMM_GOODBYE).unwrap();
    assert_eq!(told.on_goodbye(Some([9, 0])), Err(ArrivalError::Missing));
    assert_eq!(told.on_immediate(IMM_GOODBYE), Err(ArrivalError::Immediate(IMM_GOODBYE)));

    let mut sender = BufferSender::new(layout, 3).unwrap();
    assert!(BufferSender::new(layout, 1).is_none());
    assert_eq!([sender.mark_sent(), sender.mark_sent()], [1, 2]);
    assert_eq!(sender.buffer(|_| Some([2, 2])), Err(SlotError::Buffer { buffer: 2 }));
    assert_eq!(sender.buffer(|_| Some([3, 0])), Err(SlotError::Early { number: 3 }));
    assert_eq!(sender.on_stop([3, STOPPED]), Err(SlotError::Taken { taken: 3 }));
    assert_eq!(sender.on_stop([3, 0]), Ok(None));
}

#[test]
fn a_buffer_from_which_nothing_was_taken_is_not_freed() {
    let layout = Layout::new(2, 16).unwrap();
    let mut receiver = BufferReceiver::new(layout, 2, Detection::Trailer, [0; 2]).unwrap();
    receiver.free(0);
    assert_eq!(receiver.slots_due(0), None);
    assert!(receiver.on_trailer(Some([1, 0])).unwrap().is_some());
    receiver.free(9);
    assert_eq!(receiver.slots_due(0), None, "there is no such buffer");
}
