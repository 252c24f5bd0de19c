use std::{println, vec, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};

/// Numbers of the first fragment of a test: 0, and just before the numbers on the wire wrap.
const EDGES: [u64; 3] = [0, (1 << 32) - 2, (1 << 40) - 1];

#[test]
fn every_short_history_delivers_each_message_once_and_in_order() {
    use DatagramOp::*;
    let alphabet =
        [Cut, Transmit, Arrive(0), Arrive(1), ArriveTwice(0), Lose(0), Take, Ack, ArriveAck(0)];
    let mut histories = 0;
    for (window, already) in (1..=3).flat_map(|w| EDGES.map(|edge| (w, edge))) {
        let mut start = CheckedDatagrams::new(window, already).unwrap();
        [Cut, Cut, Transmit, Transmit].into_iter().for_each(|op| start.apply(op));
        histories += every_history(&start, &alphabet, 5);
    }
    println!("datagram, joined: {histories} histories");
}

#[test]
fn every_short_history_of_lies_agrees_with_the_models() {
    let claim =
        |(ahead, message_bytes, offset, len)| ForgedFragment { ahead, message_bytes, offset, len };
    let claims: Vec<ForgedFragment> = [
        (0, 0, 0, 0),
        (0, 1, 0, 1),
        (0, 8, 0, 4),
        (0, 8, 4, 4),
        (0, 8, 4, 5),
        (0, 9, 4, 4),
        (0, 15, 0, 4),
        (1, 8, 4, 4),
        (1, 1, 0, 1),
        (1, 1, 0, 0),
        (2, 8, 0, 4),
        (-1, 1, 0, 1),
        (-1, 1, 1, 1),
        (3, 1, 0, 1),
    ]
    .map(claim)
    .into();
    let acks: Vec<ForgedAck> =
        [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (3, 0), (-1, 0), (-1, 7)]
            .iter()
            .flat_map(|&(ahead, there)| [0, 1, 2].map(|sent| ForgedAck { ahead, there, sent }))
            .chain([ForgedAck { ahead: 0, there: 1 << 63, sent: 1 }])
            .collect();
    let mut histories = 0;
    for (window, already) in (1..=3).flat_map(|w| EDGES.map(|edge| (w, edge))) {
        histories +=
            every_history(&CheckedFragmentReceiver::new(window, already).unwrap(), &claims, 4);
        histories += every_history(&CheckedFragmentSender::new(window, already).unwrap(), &acks, 3);
    }
    println!("datagram, each end: {histories} histories");
}

proptest! {
    #[test]
    fn any_network_is_repaired(
        window in 1..=MAX_WINDOW,
        edge in 0..EDGES.len(),
        ops in prop::collection::vec(any_op(), 0..400),
    ) {
        let mut joined = CheckedDatagrams::new(window, EDGES[edge]).unwrap();
        ops.into_iter().for_each(|op| joined.apply(op));
        joined.finish();
    }

    #[test]
    fn any_bytes_are_refused_or_taken(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let storage = vec![0; 4 * 32];
        let mut receiver = FragmentReceiver::new(4, 32, 64, storage.clone()).unwrap();
        let mut sender = FragmentSender::new(
            SenderConfig { window: 4, ..SenderConfig::default() }, 32, storage).unwrap();
        let _ = receiver.arrive(&bytes);
        let _ = sender.on_ack(&bytes, 0);
    }
}

/// Any step; steps that advance messages are more likely than those that hold them up.
fn any_op() -> impl Strategy<Value = DatagramOp> {
    use DatagramOp::*;
    prop_oneof![
        6 => Just(Cut),
        8 => Just(Transmit),
        8 => any::<u8>().prop_map(Arrive),
        1 => any::<u8>().prop_map(ArriveTwice),
        1 => any::<u8>().prop_map(Lose),
        4 => Just(Take),
        3 => Just(Ack),
        3 => any::<u8>().prop_map(ArriveAck),
        1 => any::<u8>().prop_map(LoseAck),
        1 => any::<u8>().prop_map(Wait),
    ]
}

const BYTES: usize = HEADER_LEN + 4;

fn sender(window: u32) -> FragmentSender<Vec<u8>> {
    let config = SenderConfig { window, ..SenderConfig::default() };
    FragmentSender::new(config, BYTES, vec![0; window as usize * BYTES]).unwrap()
}

/// Transmits all fragments that are due now, and returns their numbers.
fn transmitted(sender: &mut FragmentSender<Vec<u8>>, now_ns: u64) -> Vec<u32> {
    let mut out = [0; BYTES];
    let mut numbers = Vec::new();
    while let Some(len) = sender.transmit(now_ns, &mut out) {
        numbers.push(FragmentHeader::decode(&out[..len]).unwrap().0.number);
    }
    numbers
}

fn cut_all(sender: &mut FragmentSender<Vec<u8>>) {
    while sender.cut(&[7; 4], 0).is_some() {}
}

#[test]
fn a_gap_of_three_repeats_a_fragment_and_two_do_not() {
    let mut sender = sender(8);
    cut_all(&mut sender);
    assert_eq!(transmitted(&mut sender, 0), (0..8).collect::<Vec<_>>());
    // 0 is missing; 1 and 2 are there.
    assert_eq!(sender.on_ack(&encode(ACK, 0, 0b11), 1), Ok(2));
    assert_eq!(transmitted(&mut sender, 1), []);
    assert_eq!(sender.on_ack(&encode(ACK, 0, 0b111), 2), Ok(1));
    assert_eq!(transmitted(&mut sender, 2), [0]);
    // Only once: fragments sent before the repetition do not show that it is lost.
    assert_eq!(sender.on_ack(&encode(ACK, 0, 0b111_1111), 3), Ok(4));
    assert_eq!(transmitted(&mut sender, 3), []);
    assert_eq!(sender.repeated(), 1);
}

#[test]
fn timeouts_double_until_the_peer_is_gone() {
    let mut sender = sender(2);
    cut_all(&mut sender);
    assert_eq!(sender.wants_ns(), None);
    assert_eq!(transmitted(&mut sender, 0), [0, 1]);
    let mut gaps = Vec::new();
    let mut now_ns = 0;
    while sender.check_peer(now_ns).is_ok() {
        let wants = sender.wants_ns().unwrap();
        assert_eq!(transmitted(&mut sender, wants - 1), []);
        assert_eq!(transmitted(&mut sender, wants), [0], "the oldest one alone");
        gaps.push((wants - now_ns) / 1_000_000);
        now_ns = wants;
    }
    assert_eq!(gaps, [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120]);
    assert_eq!(sender.check_peer(now_ns), Err(PeerSilent { unacked: 2 }));
    // An answer after all. It does not tell which transmission arrived: the timeout stays.
    assert_eq!(sender.on_ack(&encode(ACK, 1, 0), now_ns), Ok(1));
    assert_eq!(sender.check_peer(now_ns), Ok(()));
    assert_eq!(sender.wants_ns(), Some(8_000_000_000), "that of fragment 1, which is overdue");
    // Fragment 1 was sent once: its answer tells a round trip, and the doubling starts again.
    assert_eq!(sender.on_ack(&encode(ACK, 2, 0), now_ns), Ok(1));
    cut_all(&mut sender);
    assert_eq!(transmitted(&mut sender, now_ns), [2, 3]);
    assert!(
        sender.wants_ns().unwrap() > now_ns + 8_000_000_000 - 1,
        "the round trip was that long"
    );
}

#[test]
fn a_round_trip_beyond_the_first_timeout_is_learned() {
    let (mut sender, mut now_ns) = (sender(1), 0);
    for number in 0..20 {
        cut_all(&mut sender);
        let answer = now_ns + 15_000_000;
        assert_eq!(transmitted(&mut sender, now_ns), [number]);
        while sender.wants_ns().unwrap() < answer {
            let wants = sender.wants_ns().unwrap();
            assert_eq!(transmitted(&mut sender, wants), [number]);
        }
        assert_eq!(sender.on_ack(&encode(ACK, number + 1, 0), answer), Ok(1));
        now_ns = answer;
    }
    assert_eq!(sender.repeated(), 1, "the first one alone");
}

#[test]
fn no_timeout_is_so_short_that_transmissions_do_not_end() {
    let config = SenderConfig { window: 1, min_timeout_ns: 0, patience_ns: 0 };
    let mut sender = FragmentSender::new(config, BYTES, vec![0; BYTES]).unwrap();
    cut_all(&mut sender);
    assert_eq!(transmitted(&mut sender, 7), [0]);
    assert_eq!(sender.on_ack(&encode(ACK, 1, 0), 7), Ok(1));
    cut_all(&mut sender);
    assert_eq!(transmitted(&mut sender, 7), [1], "once at one time");
}

#[test]
fn the_timeout_follows_the_round_trip() {
    let mut sender = sender(1);
    for at in 0..50 {
        let now_ns = at * 10_000_000;
        cut_all(&mut sender);
        assert_eq!(transmitted(&mut sender, now_ns), [at as u32]);
        assert_eq!(sender.on_ack(&encode(ACK, at as u32 + 1, 0), now_ns + 5_000_000), Ok(1));
    }
    cut_all(&mut sender);
    assert_eq!(transmitted(&mut sender, 0).len(), 1);
    let timeout = sender.wants_ns().unwrap();
    assert!((5_000_000..5_100_000).contains(&timeout), "{timeout}");
    // A repeated fragment tells no round trip (Karn's algorithm).
    assert_eq!(transmitted(&mut sender, timeout), [50]);
    assert_eq!(sender.on_ack(&encode(ACK, 51, 0), 10 * timeout), Ok(1));
    cut_all(&mut sender);
    assert_eq!(transmitted(&mut sender, 0).len(), 1);
    assert_eq!(sender.wants_ns(), Some(2 * timeout), "still doubled, and of the same round trip");
}

#[test]
fn an_acknowledgement_is_due_at_a_quarter_of_the_window_or_at_a_gap() {
    let mut sender = sender(8);
    let mut receiver = FragmentReceiver::new(8, BYTES, 100, vec![0; 8 * BYTES]).unwrap();
    cut_all(&mut sender);
    let mut out = [0; BYTES];
    for arrived in 1..=3 {
        sender.transmit(0, &mut out).unwrap();
        assert!(receiver.arrive(&out).unwrap().is_some());
        assert_eq!((receiver.unacked(), receiver.ack_is_due()), (arrived, arrived > 2));
    }
    assert_eq!(receiver.ack(), encode(ACK, 3, 0));
    assert!(!receiver.ack_is_due());
    assert_eq!(receiver.arrive(&out), Ok(None), "repeated");
    assert!(receiver.ack_is_due());
    receiver.ack();
    sender.transmit(0, &mut out).unwrap();
    sender.transmit(0, &mut out).unwrap();
    assert_eq!(receiver.arrive(&out), Ok(None), "early");
    assert!(receiver.ack_is_due());
    assert_eq!(receiver.ack(), encode(ACK, 3, 1));
}

#[test]
fn both_datagrams_have_these_bytes() {
    let (number, message_bytes, offset) = (0x0102_0304, 0x1112_1314, 0x2122_2324);
    let header = FragmentHeader { number, message_bytes, offset };
    let (low, high) = ([0x14, 0x13, 0x12, 0x11], [0x24, 0x23, 0x22, 0x21]);
    let mut bytes = [[1, 0, 0, 0], [4, 3, 2, 1], low, high];
    assert_eq!(header.encode(), bytes.as_flattened());
    assert_eq!(FragmentHeader::decode(bytes.as_flattened()), Some((header, &[][..])));
    assert!(!is_ack(bytes.as_flattened()) && !is_ack(&[]));
    bytes[0][0] = 2;
    assert!(is_ack(bytes.as_flattened()));
    assert_eq!(encode(ACK, number, 0x2122_2324_1112_1314), bytes.as_flattened());
    assert_eq!(FragmentHeader::decode(bytes.as_flattened()), None, "an acknowledgement");
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let new = |window, bytes, storage: usize| {
        FragmentReceiver::new(window, bytes, 0, vec![0; storage]).map(drop)
    };
    assert_eq!(new(0, BYTES, 99), Err(ConfigError::Window(0)));
    assert_eq!(new(65, BYTES, 9999), Err(ConfigError::Window(65)));
    assert_eq!(new(1, HEADER_LEN, 99), Err(ConfigError::DatagramBytes(HEADER_LEN)));
    assert_eq!(new(2, BYTES, 39), Err(ConfigError::Storage { need: 40, given: 39 }));
    assert_eq!(new(2, BYTES, 40), Ok(()));
}
