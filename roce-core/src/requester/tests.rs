use std::{vec, vec::Vec};

use super::*;
use crate::headers::{
    Aeth, AtomicAckEth, Bth, DEFAULT_PKEY, Headers, NakCode, Reth, RnrTimer, Syndrome,
};
use crate::opcode::Opcode;
use crate::request::{Operation, Outgoing};

mod answers;
mod changes;
mod congestion;
mod retries;

const FIRST: u32 = 0xff_fffe;
const MTU: u32 = 1024;
/// 4.096 µs * 2^10
const TIMEOUT_NS: u64 = 4_194_304;

const CONFIG: RequesterConfig = RequesterConfig {
    mtu: MTU,
    dest_qpn: 7,
    pkey: DEFAULT_PKEY,
    first_psn: Psn::new(FIRST),
    timeout: 10,
    retry_cnt: 3,
    rnr_retry: 2,
    max_rd_atomic: 2,
    max_window: 16,
    read_packets: 4,
};

type TestRequester = Requester<[SendSlot; 8]>;

fn machine(config: RequesterConfig) -> TestRequester {
    Requester::new([SendSlot::new(); 8], config).expect("a configuration")
}

/// A machine whose requests were posted and, as far as they may be, sent at time 0.
fn sent(config: RequesterConfig, requests: &[Request]) -> TestRequester {
    let mut requester = machine(config);
    for request in requests {
        requester.post(*request).expect("room");
    }
    drain(&mut requester, 0);
    requester
}

/// All that may be sent now.
fn drain(requester: &mut TestRequester, now_ns: u64) -> Vec<Outgoing> {
    core::iter::from_fn(|| requester.next_packet(now_ns)).collect()
}

/// The packets' numbers, counted from the first.
fn numbers(packets: &[Outgoing]) -> Vec<i32> {
    packets.iter().map(|packet| packet.headers.bth.psn.since(Psn::new(FIRST))).collect()
}

fn response(opcode: Opcode, number: u32, syndrome: Syndrome) -> Headers {
    let bth = Bth::new(opcode, 1, Psn::new(FIRST).wrapping_add(number));
    Headers { aeth: Some(Aeth { syndrome, msn: 0 }), ..Headers::new(bth) }
}

fn ack(number: u32) -> Headers {
    response(Opcode::RcAck, number, Syndrome::ACK)
}

fn nak(number: u32, code: NakCode) -> Headers {
    response(Opcode::RcAck, number, Syndrome::Nak(code))
}

fn rnr(number: u32) -> Headers {
    let timer = RnrTimer::new(2).expect("20 µs");
    response(Opcode::RcAck, number, Syndrome::RnrNak { timer })
}

fn read_response(opcode: Opcode, number: u32) -> Headers {
    response(opcode, number, Syndrome::ACK)
}

fn completions(requester: &mut TestRequester) -> Vec<(u64, CompletionStatus)> {
    let next = core::iter::from_fn(|| requester.next_completion());
    next.map(|done| (done.index.0, done.status)).collect()
}

fn send(length: u32) -> Request {
    Request::new(Operation::Send, length, 0, 0)
}

fn read(length: u32) -> Request {
    Request::new(Operation::Read, length, 0x1000, 5)
}

#[test]
fn a_send_is_cut_into_packets() {
    let mut requester = machine(CONFIG);
    let request =
        Request { is_solicited: true, ..Request::new(Operation::SendImm(9), 2 * MTU + 2, 0, 0) };
    requester.post(request).unwrap();
    let packets = drain(&mut requester, 0);
    assert_eq!(numbers(&packets), [0, 1, 2]);
    let [first, middle, last] = packets[..] else { unreachable!("three") };
    assert_eq!(first.headers.bth.opcode, Opcode::RcSendFirst);
    assert_eq!(middle.headers.bth.opcode, Opcode::RcSendMiddle);
    assert_eq!(last.headers.bth.opcode, Opcode::RcSendLastImm);
    assert_eq!(
        packets.iter().map(|p| (p.offset, p.length)).collect::<Vec<_>>(),
        [(0, MTU), (MTU, MTU), (2 * MTU, 2)]
    );
    assert_eq!(last.headers.bth.psn, Psn::new(0), "the number wraps");
    assert_eq!(last.headers.imm.map(|imm| imm.0), Some(9));
    assert_eq!(packets.iter().map(|p| p.headers.bth.pad).collect::<Vec<_>>(), [0, 0, 2]);
    for packet in &packets {
        let (bth, is_last) = (packet.headers.bth, packet.offset == 2 * MTU);
        assert_eq!((bth.solicited, bth.ack_req), (is_last, is_last));
        assert_eq!((bth.dest_qpn, bth.pkey, bth.mig_req), (7, DEFAULT_PKEY, true));
        assert_eq!(packet.headers.imm.is_some(), is_last);
        assert_eq!(packet.headers.reth, None);
    }
}

#[test]
fn a_write_names_its_whole_length_once() {
    let mut requester = machine(CONFIG);
    for (kind, length, va) in
        [(Operation::Write, MTU + 1, u64::MAX - 4), (Operation::WriteImm(1), 0, 8)]
    {
        let request = Request { is_solicited: true, ..Request::new(kind, length, va, 3) };
        requester.post(request).unwrap();
    }
    let packets = drain(&mut requester, 0);
    let reth = |va, len| Some(Reth { va, rkey: 3, len });
    assert_eq!(
        packets.iter().map(|p| p.headers.reth).collect::<Vec<_>>(),
        [reth(u64::MAX - 4, MTU + 1), None, reth(8, 0)]
    );
    assert_eq!(packets[2].headers.bth.opcode, Opcode::RcWriteOnlyImm);
    assert_eq!(numbers(&packets), [0, 1, 2], "no bytes take a number, too");
    let solicited: Vec<_> = packets.iter().map(|packet| packet.headers.bth.solicited).collect();
    assert_eq!(solicited, [false, false, true], "nothing completes behind a plain WRITE");
}

#[test]
fn a_read_is_asked_for_in_parts() {
    let mut requester = machine(CONFIG);
    requester.post(read(8 * MTU + 1)).unwrap();
    let packets = drain(&mut requester, 0);
    assert_eq!(numbers(&packets), [0, 4], "max_rd_atomic is 2");
    let reth = |va, len| Some(Reth { va, rkey: 5, len });
    assert_eq!(packets[0].headers.reth, reth(0x1000, 4 * MTU));
    assert_eq!(packets[1].headers.reth, reth(0x1000 + u64::from(4 * MTU), 4 * MTU));
    assert_eq!([packets[0].length, packets[1].length], [0, 0]);
    for (number, opcode) in [
        (0, Opcode::RcReadResponseFirst),
        (1, Opcode::RcReadResponseMiddle),
        (2, Opcode::RcReadResponseMiddle),
        (3, Opcode::RcReadResponseLast),
    ] {
        assert_eq!(drain(&mut requester, 1), [], "before the first part is complete");
        let placed = requester.on_response(&read_response(opcode, number), MTU, 1);
        let offset = number * MTU;
        assert_eq!(placed, Received::Place { index: WqeIndex(0), offset, length: MTU });
    }
    let packets = drain(&mut requester, 1);
    assert_eq!(numbers(&packets), [8]);
    assert_eq!(packets[0].headers.reth, reth(0x1000 + u64::from(8 * MTU), 1));
}

#[test]
fn a_read_without_bytes_takes_a_number() {
    let mut requester = sent(CONFIG, &[read(0), send(1)]);
    let placed = requester.on_response(&read_response(Opcode::RcReadResponseOnly, 0), 0, 1);
    assert_eq!(placed, Received::Place { index: WqeIndex(0), offset: 0, length: 0 });
    assert_eq!(requester.on_response(&ack(1), 0, 1), Received::Noted);
    assert_eq!(
        completions(&mut requester),
        [(0, CompletionStatus::Success), (1, CompletionStatus::Success)]
    );
    assert_eq!(requester.deadline_ns(), None, "nothing is under way");
}

#[test]
fn each_quarter_of_the_window_asks_for_an_acknowledgement() {
    let mut requester = machine(CONFIG);
    requester.post(send(40 * MTU)).unwrap();
    let packets = drain(&mut requester, 0);
    assert_eq!(packets.len(), 16, "the window");
    let asking: Vec<_> = packets.iter().map(|packet| packet.headers.bth.ack_req).collect();
    assert_eq!(asking, [[false, false, false, true]; 4].concat());
    requester.on_response(&ack(0), 0, 1);
    let packets = drain(&mut requester, 1);
    assert_eq!(numbers(&packets), [16]);
    assert!(packets[0].headers.bth.ack_req, "it fills the window");
}

#[test]
fn of_requests_that_nobody_waits_for_only_some_ask() {
    const SOON: u64 = 10_000;
    const LATER: u64 = 10_000_000;
    let config = RequesterConfig { max_window: 1_024, ..CONFIG };
    let mut requester = Requester::new([SendSlot::new(); 70], config).expect("a configuration");
    let mut asks = |request, now_ns| {
        requester.post(request).unwrap();
        let packets: Vec<_> = core::iter::from_fn(|| requester.next_packet(now_ns)).collect();
        let asked = packets.last().unwrap().headers.bth.ack_req;
        while requester.next_completion().is_some() {}
        let last = packets.last().unwrap().headers.bth.psn;
        if asked {
            let number = last.since(Psn::new(FIRST)).cast_unsigned();
            requester.on_response(&ack(number), 0, now_ns + 1);
        }
        while requester.next_completion().is_some() {}
        asked
    };
    let silent = Request { is_signaled: false, ..send(3) };
    assert!(asks(silent, LATER), "nothing has been sent for long");
    for _ in 0..2 {
        for nth in 0..63 {
            assert!(!asks(silent, LATER + SOON), "{nth}");
        }
        assert!(asks(silent, LATER + SOON), "one of 64");
    }
    assert!(!asks(silent, LATER + SOON));
    assert!(asks(send(3), LATER + SOON), "its completion is awaited");
    assert!(asks(silent, 2 * LATER), "nothing has been sent for long");
    assert!(!asks(silent, 2 * LATER + SOON));
    // What is sent again asks.
    requester.on_timer(requester.deadline_ns().unwrap());
    assert!(requester.next_packet(3 * LATER).unwrap().headers.bth.ack_req);
}

#[test]
fn the_window_halves_once_for_a_loss_and_grows_again() {
    let mut requester = sent(RequesterConfig { max_window: 64, ..CONFIG }, &[send(200 * MTU)]);
    requester.on_response(&nak(2, NakCode::PsnSequenceError), 0, 1);
    assert_eq!(requester.window(), 32);
    assert_eq!(numbers(&drain(&mut requester, 1)), (2..34).collect::<Vec<_>>());
    // Two are acknowledged; those that are lost were sent before the first loss was known.
    requester.on_response(&nak(4, NakCode::PsnSequenceError), 0, 2);
    assert_eq!(requester.window(), 34, "by each, up to 56");
    for (number, window) in [(25, 56), (31, 56), (32, 57), (38, 57), (39, 58)] {
        drain(&mut requester, 2);
        requester.on_response(&ack(number), 0, 3);
        assert_eq!(requester.window(), window, "by one for 7, at {number}");
    }
    drain(&mut requester, 4);
    requester.on_response(&nak(70, NakCode::PsnSequenceError), 0, 5);
    assert_eq!(requester.window(), 31, "half of 62");
    let mut long = sent(RequesterConfig { max_window: 2, ..CONFIG }, &[send(40 * MTU)]);
    for at in 0..30 {
        long.on_response(&ack(at), 0, 1);
        drain(&mut long, 1);
        assert_eq!(long.window(), 2, "no more than the largest");
    }
}

#[test]
fn a_fenced_request_waits_for_reads() {
    let fenced = Request { is_fenced: true, ..send(3) };
    let mut requester = machine(CONFIG);
    for request in [send(1), read(5), fenced] {
        requester.post(request).unwrap();
    }
    assert_eq!(numbers(&drain(&mut requester, 0)), [0, 1]);
    requester.on_response(&ack(0), 0, 1);
    assert_eq!(drain(&mut requester, 1), []);
    requester.on_response(&read_response(Opcode::RcReadResponseOnly, 1), 5, 1);
    assert_eq!(numbers(&drain(&mut requester, 1)), [2]);
}

#[test]
fn a_refused_post_changes_nothing() {
    let mut requester = machine(CONFIG);
    (0..8).for_each(|_| _ = requester.post(send(1)).unwrap());
    let refused = |config, requests: usize, request, error| {
        let mut requester = machine(config);
        (0..requests).for_each(|_| _ = requester.post(send(1)).unwrap());
        let before = requester.clone();
        assert_eq!(requester.post(request), Err(error));
        assert_eq!(requester, before);
    };
    refused(CONFIG, 8, send(1), PostError::Full);
    refused(CONFIG, 0, send(MAX_MESSAGE + 1), PostError::TooLong(MAX_MESSAGE + 1));
    refused(RequesterConfig { max_rd_atomic: 0, ..CONFIG }, 0, read(1), PostError::NoReads);
    let mut full = sent(CONFIG, &[send(1); 8]);
    full.on_response(&ack(2), 0, 1);
    assert_eq!(full.post(send(1)), Err(PostError::Full), "no completion was taken");
    full.next_completion();
    assert_eq!(full.post(send(1)), Ok(WqeIndex(8)));
}

#[test]
fn what_makes_no_requester_is_refused() {
    let new = |config| Requester::new([SendSlot::new(); 1], config).unwrap_err();
    assert_eq!(new(RequesterConfig { mtu: 1000, ..CONFIG }), ConfigError::Mtu(1000));
    assert_eq!(new(RequesterConfig { timeout: 32, ..CONFIG }), ConfigError::Timeout(32));
    assert_eq!(new(RequesterConfig { max_window: 0, ..CONFIG }), ConfigError::Window(0));
    let read_packets = MAX_WINDOW + 1;
    assert_eq!(new(RequesterConfig { read_packets, ..CONFIG }), ConfigError::Window(read_packets));
    assert_eq!(Requester::new(vec![], CONFIG).unwrap_err(), ConfigError::NoSlots);
}

#[test]
fn the_window_stays_within_its_bounds() {
    let (mut window, round_trip) = (CongestionWindow::new(4), RttEstimator::default());
    for loss in 0..5 {
        window.on_loss(loss, loss, &round_trip);
    }
    assert_eq!((window.size(), window.quarter()), (1, 1), "one packet may always go");
    window.on_congestion(9, 1, 1);
    assert_eq!(window.size(), 1);
    window.on_ack(1000, &round_trip);
    assert_eq!(window.size(), 4);
}

/// A round trip of 10 µs, and later of 100 µs, 42.5 of which are taken for no queue.
#[test]
fn a_queue_on_the_path_keeps_the_window_small_after_a_loss() {
    let mut round_trip = RttEstimator::default();
    for took_ns in [10_000].into_iter().chain([100_000; 200]) {
        round_trip.on_send(0, 0);
        round_trip.on_progress(1, took_ns);
    }
    let mut window = CongestionWindow::new(200);
    window.on_loss(0, 200, &round_trip);
    window.on_ack(1, &round_trip);
    window.on_ack(500, &round_trip);
    // 100 were half of it; then one in a round trip.
    assert_eq!(window.size(), 104);
    window.on_loss(200, 400, &round_trip);
    window.on_loss(400, 600, &round_trip);
    assert_eq!(window.size(), 26);
    // As many as both ends need for a batch it has soon.
    window.on_ack(20, &round_trip);
    assert_eq!(window.size(), 46);
    (0..30).for_each(|_| window.on_ack(4, &round_trip));
    assert_eq!(window.size(), 64);
    (0..32).for_each(|_| window.on_ack(4, &round_trip));
    assert_eq!(window.size(), 66);
}
