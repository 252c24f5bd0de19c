use std::{println, vec, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use crate::exhaustive::{CheckedMachine, every_history};

fn params(is_mirrored: bool, prefetch: bool) -> BufferedReadParams {
    BufferedReadParams {
        capacity_log2: 5,
        is_mirrored,
        head_threshold: 16,
        max_read_bytes: 16,
        reads: 2,
        prefetch,
        head_update_polls: 2,
        gather: 16,
    }
}

#[test]
fn every_short_history_agrees_with_the_model() {
    let alphabet = [
        BufferedReadOp::Send(0),
        BufferedReadOp::Send(8),
        BufferedReadOp::LookAgain,
        BufferedReadOp::Post,
        BufferedReadOp::Complete,
        BufferedReadOp::Polled,
        BufferedReadOp::Take,
        BufferedReadOp::Free,
        BufferedReadOp::LookAtWords { is_torn: true },
        BufferedReadOp::LookAtWords { is_torn: false },
    ];
    let mut histories = 0;
    for (is_mirrored, prefetch) in [(true, true), (true, false), (false, true)] {
        let start = CheckedBufferedRead::new(params(is_mirrored, prefetch)).unwrap();
        histories += every_history(&start, &alphabet, 6);
        let mut going = start.clone();
        [
            BufferedReadOp::Send(8),
            BufferedReadOp::LookAgain,
            BufferedReadOp::Post,
            BufferedReadOp::Complete,
        ]
        .into_iter()
        .for_each(|op| going.apply(op));
        let ends = [
            BufferedReadOp::Finish,
            BufferedReadOp::Stop,
            BufferedReadOp::TellAll,
            BufferedReadOp::Post,
            BufferedReadOp::Complete,
            BufferedReadOp::Take,
        ];
        histories += every_history(&going, &ends, 6);
    }
    println!("buffered read: {histories} histories");
    assert!(histories > 1_500_000);
}

#[test]
fn no_short_history_of_a_receiver_that_sleeps_misses_a_message() {
    let alphabet = [
        BufferedReadOp::Send(8),
        BufferedReadOp::Finish,
        BufferedReadOp::LookAtRequest,
        BufferedReadOp::WakeUp,
        BufferedReadOp::LookAgain,
        BufferedReadOp::PrepareSleep,
        BufferedReadOp::Post,
        BufferedReadOp::Complete,
    ];
    let start = CheckedBufferedRead::new(params(true, true)).unwrap();
    let mut asked = start.clone();
    let ask = [
        BufferedReadOp::PrepareSleep,
        BufferedReadOp::Post,
        BufferedReadOp::Complete,
        BufferedReadOp::Complete,
        BufferedReadOp::PrepareSleep,
    ];
    ask.into_iter().for_each(|op| asked.apply(op));
    let histories = every_history(&start, &alphabet, 7) + every_history(&asked, &alphabet, 7);
    println!("buffered read, sleeping: {histories} histories");
    assert!(histories > 2_000_000);
}

fn ops() -> impl Strategy<Value = Vec<BufferedReadOp>> {
    let op = prop_oneof![
        4 => (0..20_u8).prop_map(BufferedReadOp::Send),
        2 => any::<bool>().prop_map(|is_torn| BufferedReadOp::LookAtWords { is_torn }),
        3 => Just(BufferedReadOp::LookAgain),
        4 => Just(BufferedReadOp::Post),
        5 => Just(BufferedReadOp::Complete),
        2 => Just(BufferedReadOp::Polled),
        4 => Just(BufferedReadOp::Take),
        4 => Just(BufferedReadOp::Free),
        1 => Just(BufferedReadOp::TellAll),
        2 => Just(BufferedReadOp::PrepareSleep),
        2 => Just(BufferedReadOp::LookAtRequest),
        2 => Just(BufferedReadOp::WakeUp),
        1 => (-40..40_i8, -40..40_i8)
            .prop_map(|(head, landed)| BufferedReadOp::LieWords(head, landed)),
    ];
    prop::collection::vec(op, 0..300)
}

/// A receiver that sleeps between messages, and calls of both ends in any order around it.
fn sleepy_ops() -> impl Strategy<Value = Vec<BufferedReadOp>> {
    let op = prop_oneof![
        2 => Just(BufferedReadOp::Send(8)),
        3 => Just(BufferedReadOp::LookAtRequest),
        4 => Just(BufferedReadOp::WakeUp),
        4 => Just(BufferedReadOp::PrepareSleep),
        4 => Just(BufferedReadOp::Post),
        8 => Just(BufferedReadOp::Complete),
        1 => Just(BufferedReadOp::LookAgain),
        2 => Just(BufferedReadOp::Take),
        2 => Just(BufferedReadOp::Free),
    ];
    prop::collection::vec(op, 0..1_000)
}

fn any_params() -> impl Strategy<Value = BufferedReadParams> {
    let reading = (8..80_u32, 1..5_u32, any::<bool>(), 0..64_u64);
    (4..9_u32, any::<bool>(), 0..64_u64, reading, 0..4_u32).prop_map(
        |(capacity_log2, is_mirrored, head_threshold, reading, head_update_polls)| {
            let (max_read_bytes, reads, prefetch, gather) = reading;
            BufferedReadParams {
                capacity_log2,
                is_mirrored,
                head_threshold,
                max_read_bytes,
                reads,
                prefetch,
                head_update_polls,
                gather,
            }
        },
    )
}

proptest! {
    /// However many wake-ups an honest sender has sent, its next message is not slept through.
    #[test]
    fn no_long_history_of_a_receiver_that_sleeps_misses_a_message(ops in sleepy_ops()) {
        let mut connection = CheckedBufferedRead::new(params(true, true)).unwrap();
        ops.into_iter().for_each(|op| connection.apply(op));
    }

    /// After any history, all sent records arrive, the sender learns of it and has its whole ring
    /// again. When it finishes, so does the receiver.
    #[test]
    fn what_was_sent_arrives(params in any_params(), ops in ops(), finish in any::<bool>()) {
        let mut connection = CheckedBufferedRead::new(params).unwrap();
        ops.into_iter().for_each(|op| connection.apply(op));
        if finish {
            connection.apply(BufferedReadOp::Finish);
        }
        connection.settle();
        prop_assert_eq!(connection.unreceived(), 0);
        let (source, reader) = (connection.source(), connection.reader());
        prop_assert!(source.has_landed(source.ring().tail()));
        prop_assert_eq!(source.is_seen(), finish);
        prop_assert_eq!(reader.is_over(), finish);
        prop_assert!(finish || connection.has_room_for_any());
    }

    #[test]
    fn a_receiver_that_stops_says_so(params in any_params(), ops in ops()) {
        let mut connection = CheckedBufferedRead::new(params).unwrap();
        ops.into_iter().for_each(|op| connection.apply(op));
        connection.apply(BufferedReadOp::Stop);
        connection.settle();
        prop_assert!(connection.source().is_stopped());
        prop_assert_eq!(connection.reader().clone().next_request(), None);
    }

    /// No forged tail leads out of bounds.
    #[test]
    fn lies_end_it(params in any_params(), ops in ops(), by in any::<i8>()) {
        let mut connection = CheckedBufferedRead::new(params).unwrap();
        ops.into_iter().for_each(|op| connection.apply(op));
        connection.apply(BufferedReadOp::LookAgain);
        connection.apply(BufferedReadOp::Post);
        connection.apply(BufferedReadOp::LieTail(by));
    }
}

/// Consecutive READs that are posted at once cover contiguous bytes, the tail is read behind them,
/// and nothing but the head is written meanwhile.
#[test]
fn the_tail_comes_with_the_data() {
    use super::{Reader, ReaderConfig, ReaderRequest};
    use crate::ring::fetch::{FetchConfig, Read};
    let fetch = FetchConfig { max_read_bytes: 64, reads: 2 };
    let config =
        ReaderConfig { head_threshold: 64, fetch, prefetch: true, head_update_polls: 1, gather: 0 };
    let geometry = crate::ring::Geometry::mirrored(256, 64).unwrap();
    let mut reader = Reader::new(geometry, config).unwrap();
    let posted = |reader: &mut Reader| std::iter::from_fn(|| reader.next_request()).count();
    assert_eq!(posted(&mut reader), 0, "`look_again` was not called");
    reader.look_again();
    assert_eq!(reader.next_request(), Some(ReaderRequest::Tail));
    reader.look_again();
    assert_eq!(posted(&mut reader), 0, "one look at a time");
    reader.on_completion(|| Some(96)).unwrap();
    assert_eq!(reader.next_request(), Some(ReaderRequest::Data(Read { offset: 0, len: 64 })));
    assert_eq!(reader.next_request(), Some(ReaderRequest::Data(Read { offset: 64, len: 32 })));
    assert_eq!(reader.next_request(), Some(ReaderRequest::Tail));
    assert_eq!(posted(&mut reader), 0);
    reader.on_completion(|| unreachable!()).unwrap();
    reader.on_completion(|| unreachable!()).unwrap();
    reader.on_completion(|| Some(192)).unwrap();
    // Nothing was handed out yet.
    assert_eq!(reader.next_request(), Some(ReaderRequest::Data(Read { offset: 96, len: 64 })));
}

/// A message that arrives alone takes two READs, the tail's and the data's, and is not left to
/// gather. The tail is read with the data again once the first look after data has found something.
#[test]
fn the_tail_comes_alone_while_messages_come_one_at_a_time() {
    use super::{Reader, ReaderConfig, ReaderRequest};
    use crate::ring::fetch::FetchConfig;
    let fetch = FetchConfig { max_read_bytes: 64, reads: 2 };
    let config = ReaderConfig {
        head_threshold: 512,
        fetch,
        prefetch: true,
        head_update_polls: 99,
        gather: 64,
    };
    let geometry = crate::ring::Geometry::mirrored(1024, 64).unwrap();
    let mut reader = Reader::new(geometry, config).unwrap();
    let look = |reader: &mut Reader, tail| {
        reader.look_again();
        assert_eq!(reader.next_request(), Some(ReaderRequest::Tail));
        assert_eq!(reader.next_request(), None);
        reader.on_completion(|| tail).unwrap();
    };
    // Reads a message; returns true if the tail is read with it.
    let read = |reader: &mut Reader| {
        reader.look_again();
        assert!(!reader.is_gathering());
        assert!(matches!(reader.next_request(), Some(ReaderRequest::Data(_))));
        let along = reader.next_request();
        assert!(matches!(along, None | Some(ReaderRequest::Tail)), "{along:?}");
        reader.on_completion(|| unreachable!()).unwrap();
        along.is_some()
    };
    look(&mut reader, Some(0));
    look(&mut reader, Some(24));
    assert!(read(&mut reader), "nothing is known of the sender yet");
    reader.on_completion(|| Some(24)).unwrap();
    for sent in 2..5 {
        look(&mut reader, Some(24 * sent));
        assert!(!read(&mut reader), "the look after the last message found nothing");
        look(&mut reader, Some(24 * sent));
    }
    look(&mut reader, Some(120));
    assert!(!read(&mut reader));
    // The next message is seen by the first look, and then by a look with the data.
    look(&mut reader, Some(144));
    assert!(read(&mut reader));
    reader.on_completion(|| Some(144)).unwrap();
    // A look with the data found nothing: the next one is spared.
    look(&mut reader, Some(168));
    assert!(!read(&mut reader));
    // A tail that is being written is new.
    look(&mut reader, None);
    look(&mut reader, Some(192));
    assert!(read(&mut reader));
}

/// Nothing is fetched ahead as long as each READ has completed by the first look.
#[test]
fn nothing_is_asked_for_ahead_where_it_takes_no_time() {
    use super::{Reader, ReaderConfig, ReaderRequest};
    use crate::ring::fetch::FetchConfig;
    let fetch = FetchConfig { max_read_bytes: 64, reads: 2 };
    let config =
        ReaderConfig { head_threshold: 64, fetch, prefetch: true, head_update_polls: 9, gather: 0 };
    let geometry = crate::ring::Geometry::mirrored(1024, 64).unwrap();
    let mut reader = Reader::new(geometry, config).unwrap();
    let reads = |reader: &mut Reader| {
        let posted = std::iter::from_fn(|| reader.next_request());
        posted.filter(|request| matches!(request, ReaderRequest::Data(_))).count()
    };
    reader.look_again();
    assert_eq!(reads(&mut reader), 0);
    reader.on_completion(|| Some(64)).unwrap();
    reader.polled();
    reader.look_again();
    assert_eq!(reads(&mut reader), 1);
    reader.on_completion(|| unreachable!()).unwrap();
    reader.on_completion(|| Some(128)).unwrap();
    reader.polled();
    assert_eq!(reads(&mut reader), 0, "there is something to hand out");
    reader.look_again();
    assert_eq!(reads(&mut reader), 1);
    reader.polled(); // nothing found
    reader.on_completion(|| unreachable!()).unwrap();
    reader.on_completion(|| Some(192)).unwrap();
    reader.polled();
    assert_eq!(reads(&mut reader), 1, "ahead of what there is to hand out");
    // It was not waited for: when it has landed says nothing.
    reader.on_completion(|| unreachable!()).unwrap();
    reader.on_completion(|| Some(256)).unwrap();
    reader.polled();
    assert_eq!(reads(&mut reader), 1);
}

/// While the sender is active, a few bytes are left to gather; when it pauses, or was idle, all is
/// read at once.
#[test]
fn little_is_left_to_gather_while_the_sender_goes_on() {
    use super::{Reader, ReaderConfig, ReaderRequest};
    use crate::ring::fetch::{FetchConfig, Read};
    let fetch = FetchConfig { max_read_bytes: 64, reads: 2 };
    let config = ReaderConfig {
        head_threshold: 64,
        fetch,
        prefetch: true,
        head_update_polls: 9,
        gather: 32,
    };
    let geometry = crate::ring::Geometry::mirrored(256, 64).unwrap();
    let mut reader = Reader::new(geometry, config).unwrap();
    let look = |reader: &mut Reader, tail: u64| {
        reader.look_again();
        assert_eq!(reader.next_request(), Some(ReaderRequest::Tail));
        reader.on_completion(|| Some(tail)).unwrap();
    };
    look(&mut reader, 0);
    look(&mut reader, 8);
    assert_eq!(reader.next_request(), Some(ReaderRequest::Data(Read { offset: 0, len: 8 })));
    assert_eq!(reader.next_request(), Some(ReaderRequest::Tail));
    reader.on_completion(|| unreachable!()).unwrap();
    reader.on_completion(|| Some(16)).unwrap();
    assert!(reader.is_gathering());
    look(&mut reader, 24);
    assert!(reader.is_gathering());
    look(&mut reader, 24);
    assert!(!reader.is_gathering());
    assert_eq!(reader.next_request(), Some(ReaderRequest::Data(Read { offset: 8, len: 16 })));
}
