use std::{println, vec, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};

fn modes() -> impl Iterator<Item = ReadsConfig> {
    let config = ReadsConfig { window: 2, ack: AckMode::Write, reads: 2, max_read: 4, gather: 2 };
    AckMode::ALL.into_iter().map(move |ack| ReadsConfig { ack, ..config })
}

#[test]
fn every_short_history_of_a_sender_agrees_with_the_model() {
    use OffersOp as o;
    let alphabet = [
        o::Offer,
        o::Withdraw,
        o::Signal(1),
        o::Signal(0),
        o::Count(1, 0),
        o::Count(2, 1),
        o::Count(-1, 0),
        o::Done(1),
        o::Done(2),
        o::Refused(1),
        o::Refused(2),
        o::Immediate(Notice::Stop(0).encode()),
    ];
    let histories = every_history(&CheckedOffers::new(2), &alphabet, 6);
    println!("direct_read, sender: {histories} histories");
    assert!(histories > 1_000_000);
}

#[test]
fn every_short_history_of_a_receiver_agrees_with_the_model() {
    use ReadsOp as o;
    let alphabet =
        [o::Request(0), o::Read(6), o::Refuse, o::Post, o::Done, o::Ack, o::Wakeup(0), o::Read(0)];
    let mut histories = 0;
    for config in modes() {
        histories += every_history(&CheckedReads::new(config), &alphabet, 6);
    }
    println!("direct_read, receiver: {histories} histories");
    assert!(histories > 1_000_000);
}

#[test]
fn every_short_history_acknowledges_each_message_after_its_read() {
    use DirectReadOp as o;
    let alphabet = [
        o::Offer(6),
        o::ToReceiver,
        o::ToSender,
        o::Execute,
        o::Decide(true),
        o::Decide(false),
        o::Work,
        o::Look,
        o::Sleep,
    ];
    let mut histories = 0;
    for config in modes() {
        let mut begun = CheckedDirectRead::new(config);
        begun.apply(o::Offer(3));
        begun.apply(o::ToReceiver);
        begun.apply(o::Offer(0));
        histories += every_history(&begun, &alphabet, 4);
    }
    println!("direct_read, both: {histories} histories");
    assert!(histories > 30_000);
}

#[test]
fn configurations_that_cannot_work_are_refused() {
    let good = ReadsConfig { window: 2, ack: AckMode::Pull, reads: 1, max_read: 1, gather: 1 };
    let made = |config| Reads::new(config, [ReadSlot::default(); 2]).map(drop);
    assert_eq!(made(good), Ok(()));
    for window in [0, MAX_WINDOW + 1] {
        assert_eq!(made(ReadsConfig { window, ..good }), Err(ReadsConfigError::Window));
        assert_eq!(Offers::new(window), Err(OfferError::Window));
    }
    assert_eq!(made(ReadsConfig { reads: 0, ..good }), Err(ReadsConfigError::Reads));
    assert_eq!(made(ReadsConfig { max_read: 0, ..good }), Err(ReadsConfigError::Reads));
    for gather in [0, 3] {
        assert_eq!(made(ReadsConfig { gather, ..good }), Err(ReadsConfigError::Gather));
    }
    let window = 3;
    assert_eq!(made(ReadsConfig { window, ..good }), Err(ReadsConfigError::StorageTooSmall));
}

#[test]
fn a_count_that_overtakes_a_refusal_waits_for_it() {
    let mut offers = Offers::new(4).unwrap();
    let _ = (offers.offer(), offers.offer(), offers.offer());
    let word = CountWord { count: 3, refusals: 1 };
    assert_eq!(offers.on_count(word), Ok(Acknowledged::default()));
    let told = offers.on_notice(Notice::Refused(2, Refusal::TooLong)).unwrap();
    let then = Some(Outcome::Refused(Refusal::TooLong));
    assert_eq!(told, NoticeEffect::Acknowledged(Acknowledged { read: 1, then }));
    assert_eq!(offers.on_count(word), Ok(Acknowledged { read: 1, then: None }));
}

#[test]
fn numbers_run_over_their_low_bits_without_a_seam() {
    for number in [(1 << 24) - 1, 1 << 24, (1 << 24) + 1, (5 << 24) - 1, 1 << 32] {
        for back in 0..3 {
            assert_eq!(Notice::number(number - back, Notice::low(number)), Some(number));
        }
        assert_eq!(Notice::number(number + 1, Notice::low(number)), None);
    }
}

#[test]
fn each_fault_of_a_request_is_named() {
    let memory = Place { addr: 0x1_0000, rkey: 9 };
    let request = ReadRequest { number: 1, len: 4096, memory, signal: None, app: b"app" };
    let mut good = vec![0; HEADER_LEN + 3];
    request.encode(&mut good).unwrap();
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        ReadRequest::decode(&bytes).map(drop).unwrap_err()
    };
    assert_eq!(ReadRequest::decode(&good[..39]), Err(DecodeError::TooShort { len: 39 }));
    assert_eq!(with(0, 2), DecodeError::Version(2));
    assert_eq!(with(1, 2), DecodeError::Flags(2));
    assert_eq!(with(2, 4), DecodeError::AppLength { said: 4, found: 3 });
    assert_eq!(with(28, 1), DecodeError::NotZero, "a key of no signal");
    let mut beyond = good.clone();
    beyond[16..24].fill(0xff);
    assert_eq!(ReadRequest::decode(&beyond), Err(DecodeError::Wraps));
    let empty = ReadRequest { len: 0, ..request };
    assert_eq!(empty.encode(&mut good), Err(EncodeError::Meaningless), "a place of no bytes");
    let signal = Some(Place { addr: u64::MAX, rkey: 0 });
    let signalled = ReadRequest { signal, ..request };
    assert_eq!(signalled.encode(&mut good), Err(EncodeError::Meaningless));
}

#[test]
fn terms_have_these_bytes() {
    let counts = Some(Place { addr: 0x0102_0304_0506_0708, rkey: 0x1112_1314 });
    let (ack, signal) = (AckMode::Cumulative, SignalAt::Tail);
    let terms = Terms { ack, signal, reads: 16, counts, max_message: 0x2122_2324 };
    let bytes = [
        [3, 1, 16, 0],
        [0x14, 0x13, 0x12, 0x11],
        [8, 7, 6, 5],
        [4, 3, 2, 1],
        [0x24, 0x23, 0x22, 0x21],
    ];
    assert_eq!(terms.encode(), bytes.as_flattened());
    assert_eq!(Terms::decode(bytes.as_flattened()), Ok((terms, &[][..])));
}

fn offer_op() -> impl Strategy<Value = OffersOp> {
    prop_oneof![
        4 => Just(OffersOp::Offer),
        1 => Just(OffersOp::Withdraw),
        2 => (0..5u8).prop_map(OffersOp::Signal),
        2 => (-2..4i8, -2..3i8).prop_map(|(ahead, unreported)| OffersOp::Count(ahead, unreported)),
        1 => (-1..4i8).prop_map(OffersOp::Done),
        1 => (-1..4i8).prop_map(OffersOp::Refused),
        1 => (1..4u32, any::<u32>())
            .prop_map(|(kind, low)| OffersOp::Immediate(kind << 28 | low >> 8)),
    ]
}

fn read_op() -> impl Strategy<Value = ReadsOp> {
    prop_oneof![
        4 => Just(ReadsOp::Request(0)),
        1 => any::<i8>().prop_map(ReadsOp::Request),
        1 => any::<u32>().prop_map(ReadsOp::Immediate),
        1 => (-9..3i8).prop_map(ReadsOp::Wakeup),
        4 => any::<u8>().prop_map(ReadsOp::Read),
        1 => Just(ReadsOp::Refuse),
        5 => Just(ReadsOp::Post),
        5 => Just(ReadsOp::Done),
        4 => Just(ReadsOp::Ack),
    ]
}

fn joined_op() -> impl Strategy<Value = DirectReadOp> {
    use DirectReadOp as o;
    prop_oneof![
        3 => any::<u8>().prop_map(o::Offer),
        3 => Just(o::ToReceiver),
        3 => Just(o::ToSender),
        3 => Just(o::Execute),
        2 => Just(o::Decide(true)),
        1 => Just(o::Decide(false)),
        3 => Just(o::Work),
        3 => Just(o::Look),
        1 => Just(o::Sleep),
    ]
}

fn any_config() -> impl Strategy<Value = ReadsConfig> {
    any::<[u8; 5]>().prop_map(|[a, w, r, m, g]| config(a, w, r, m, g))
}

fn sample() -> impl Strategy<Value = ReadRequestSample> {
    let memory = prop_oneof![
        Just((0, 0, 0)),
        (1..u64::from(u32::MAX), any::<u32>(), any::<u32>()).prop_map(|(len, addr, rkey)| (
            len,
            u64::from(addr),
            rkey
        )),
        any::<(u64, u64, u32)>(),
    ];
    let app = proptest::collection::vec(any::<u8>(), 0..300);
    (any::<u32>(), memory, any::<Option<(u64, u32)>>(), app)
        .prop_map(|(number, memory, signal, app)| ReadRequestSample { number, memory, signal, app })
}

proptest! {
    #[test]
    fn long_histories_of_a_sender_agree_with_the_model(
        window in 1..9u32, ops in proptest::collection::vec(offer_op(), 0..300),
    ) {
        let mut pair = CheckedOffers::new(window);
        ops.into_iter().for_each(|op| pair.apply(op));
    }

    #[test]
    fn long_histories_of_a_receiver_agree_with_the_model(
        config in any_config(), ops in proptest::collection::vec(read_op(), 0..300),
    ) {
        let mut pair = CheckedReads::new(config);
        ops.into_iter().for_each(|op| pair.apply(op));
    }

    #[test]
    fn long_histories_of_both_end_well(
        config in any_config(), ops in proptest::collection::vec(joined_op(), 0..100),
    ) {
        let mut pair = CheckedDirectRead::new(config);
        ops.into_iter().for_each(|op| pair.apply(op));
    }

    #[test]
    fn every_request_goes_there_and_back(sample in sample()) {
        check_sample(&sample);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..80), at in 0..8usize, value: u8,
    ) {
        check_bytes(&bytes);
        let mut changed: Vec<u8> = bytes;
        changed.resize(changed.len().max(16), 0);
        changed[0] = 1;
        changed[at] = value;
        check_bytes(&changed);
    }
}
