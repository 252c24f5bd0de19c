use std::{vec, vec::Vec};

use super::*;
use crate::headers::{AtomicEth, Bth, DEFAULT_PKEY, Headers, Ieth, ImmDt, Reth, Syndrome};
use crate::opcode::Opcode;
use crate::oracle::host::{BASE, Host, INVALIDATED, RKEY};

mod absent;
mod changes;
mod refusals;
mod repetitions;

const MTU: usize = 256;
const FIRST: u32 = 0xff_fffe;
const TIMER: RnrTimer = RnrTimer::new(12).expect("a code");

/// A responder of two READs and atomics, and its target.
struct TestResponder {
    responder: Responder<Vec<ResponseSlot>>,
    host: Host,
}

/// A response: its opcode, its number counted from the first, its syndrome, MSN, and payload.
type ResponseSummary = (Opcode, i32, Option<Syndrome>, Option<u32>, Vec<u8>);

impl TestResponder {
    fn new() -> Self {
        Self::with(2)
    }

    fn with(slots: usize) -> Self {
        let config = ResponderConfig {
            mtu: MTU as u32,
            dest_qpn: 9,
            pkey: DEFAULT_PKEY,
            first_psn: Psn::new(FIRST),
            min_rnr_timer: TIMER,
        };
        let responder = Responder::new(vec![ResponseSlot::new(); slots], config).unwrap();
        Self { responder, host: Host::new() }
    }

    fn take(&mut self, headers: Headers, payload: &[u8]) -> Outcome {
        self.responder.on_request(&headers, payload, &mut self.host)
    }

    /// The next packet to send.
    fn answer(&mut self) -> Option<ResponseSummary> {
        self.host.payload.clear();
        let response = self.responder.next_response(&mut self.host)?;
        let bth = response.headers.bth;
        assert_eq!((bth.dest_qpn, bth.pkey), (9, DEFAULT_PKEY));
        assert_eq!(response.length as usize, self.host.payload.len());
        assert_eq!(u32::from(bth.pad), response.length.next_multiple_of(4) - response.length);
        let (syndrome, msn) = response.headers.aeth.map(|a| (a.syndrome, a.msn)).unzip();
        let number = bth.psn.since(Psn::new(FIRST));
        Some((bth.opcode, number, syndrome, msn, self.host.payload.clone()))
    }

    fn answers(&mut self) -> Vec<ResponseSummary> {
        core::iter::from_fn(|| self.answer()).collect()
    }

    /// A NAK is all that is sent, and nothing is taken after it.
    fn assert_refused(&mut self, outcome: Outcome, refusal: Refusal, number: i32) {
        assert_eq!(outcome, Outcome::Failed(refusal));
        self.assert_dead(refusal, number);
    }

    fn assert_dead(&mut self, refusal: Refusal, number: i32) {
        assert!(self.responder.has_failed());
        let [(opcode, psn, syndrome, ..)] = self.answers()[..] else { panic!("one NAK") };
        let nak = Some(Syndrome::Nak(refusal.nak()));
        assert_eq!((opcode, psn, syndrome), (Opcode::RcAck, number, nak));
        assert_eq!(self.take(only(number as u32), &[1]), Outcome::Dropped);
        assert_eq!(self.take(only(0), &[1]), Outcome::Dropped);
        assert_eq!(self.answers(), []);
    }
}

fn packet(opcode: Opcode, number: u32) -> Headers {
    let bth = Bth::new(opcode, 1, Psn::new(FIRST).wrapping_add(number));
    Headers::new(Bth { ack_req: opcode.ends_message(), ..bth })
}

fn only(number: u32) -> Headers {
    packet(Opcode::RcSendOnly, number)
}

/// A packet that names memory.
fn with_memory(opcode: Opcode, number: u32, offset: u64, len: u32) -> Headers {
    let reth = Some(Reth { va: BASE + offset, rkey: RKEY, len });
    Headers { reth, ..packet(opcode, number) }
}

fn read(number: u32, offset: u64, len: u32) -> Headers {
    with_memory(Opcode::RcReadRequest, number, offset, len)
}

fn fetch_add(number: u32, va: u64) -> Headers {
    let atomic = Some(AtomicEth { va, rkey: RKEY, swap_add: 5, compare: 0 });
    Headers { atomic, ..packet(Opcode::RcFetchAdd, number) }
}

/// A word of the target's memory.
const WORD: u64 = BASE.next_multiple_of(8);

fn atomic_write(number: u32) -> Headers {
    with_memory(Opcode::RcAtomicWrite, number, WORD - BASE, 8)
}

fn ack(number: i32, msn: u32) -> ResponseSummary {
    (Opcode::RcAck, number, Some(Syndrome::ACK), Some(msn), vec![])
}

#[test]
fn a_batch_is_acknowledged_once() {
    let mut end = TestResponder::new();
    end.host.receives = 2;
    assert_eq!(end.take(only(0), &[1]), Outcome::Accepted);
    assert_eq!(end.take(packet(Opcode::RcSendFirst, 1), &[2; MTU]), Outcome::Accepted);
    assert!(end.responder.has_response());
    assert_eq!(end.answers(), [ack(1, 1)], "the second message has not ended");
    assert_eq!(end.take(packet(Opcode::RcSendMiddle, 2), &[3; MTU]), Outcome::Accepted);
    assert_eq!(end.answers(), [], "it did not ask");
    assert_eq!(end.take(packet(Opcode::RcSendLast, 3), &[4]), Outcome::Accepted);
    assert_eq!(end.answers(), [ack(3, 2)]);
    let lengths: Vec<_> = end.host.done.iter().map(|(done, _)| done.length).collect();
    assert_eq!(lengths, [1, 2 * MTU as u32 + 1]);
}

#[test]
fn a_gap_is_reported_once() {
    let mut end = TestResponder::new();
    end.host.receives = 9;
    let nak = |number, msn| {
        let syndrome = Some(Syndrome::Nak(NakCode::PsnSequenceError));
        (Opcode::RcAck, number, syndrome, Some(msn), vec![])
    };
    assert_eq!(end.take(only(0), &[1]), Outcome::Accepted);
    assert_eq!(end.take(only(2), &[1]), Outcome::OutOfSequence);
    assert_eq!(end.answers(), [nak(1, 1)], "it acknowledges, too");
    for number in [2, 3, 4] {
        assert_eq!(end.take(only(number), &[1]), Outcome::OutOfSequence);
    }
    assert_eq!(end.answers(), []);
    assert_eq!(end.take(only(1), &[1]), Outcome::Accepted);
    assert_eq!(end.take(only(3), &[1]), Outcome::OutOfSequence);
    assert_eq!(end.answers(), [nak(2, 2)], "another gap");
    assert_eq!(end.host.done.len(), 2);
}

/// The next packet and `PSN_WINDOW` of those on each side of it, of 2^24 numbers, are answered.
#[test]
fn a_number_that_no_requester_reaches_is_not_answered() {
    const AHEAD: u32 = PSN_WINDOW;
    let is_malformed_answered = |number| {
        let mut end = TestResponder::new();
        end.responder.on_malformed(Psn::new(FIRST).wrapping_add(number), &mut end.host);
        end.responder.has_response()
    };
    for (number, is_answered) in
        [(1, true), (AHEAD, true), (AHEAD + 1, false), (1 << 22, false), ((1 << 23) - 1, false)]
    {
        let mut end = TestResponder::new();
        assert_eq!(end.take(only(number), &[1]), Outcome::OutOfSequence);
        assert_eq!(!end.answers().is_empty(), is_answered, "{number} ahead");
        assert_eq!(is_malformed_answered(number), is_answered, "malformed, {number} ahead");
        // A forged number does not hide a real gap.
        assert_eq!(end.take(only(2), &[1]), Outcome::OutOfSequence);
        assert_eq!(end.answers().is_empty(), is_answered, "behind {number} ahead");
    }
    // As after a million packets.
    let mut end = TestResponder::new();
    end.responder.expected += 1 << 20;
    let before = |behind: u32| only((1 << 20) - behind);
    for (behind, outcome) in [
        (1, Outcome::Duplicate),
        (PSN_WINDOW, Outcome::Duplicate),
        (PSN_WINDOW + 1, Outcome::Dropped),
        (1 << 20, Outcome::Dropped),
    ] {
        assert_eq!(end.take(before(behind), &[1]), outcome, "{behind} behind");
        let is_answered = outcome == Outcome::Duplicate;
        assert_eq!(end.answers().len(), usize::from(is_answered), "{behind} behind");
        let late = end.responder.answer_late(&before(behind));
        assert_eq!(late.is_some(), is_answered, "{behind} behind, late");
    }
}

#[test]
fn a_read_that_is_remembered_is_answered_again_at_any_distance() {
    let mut end = TestResponder::new();
    end.take(read(0, 0, 1), &[]);
    end.answers();
    end.responder.expected += u64::from(PSN_WINDOW);
    assert_eq!(end.take(read(0, 0, 1), &[]), Outcome::Duplicate);
    assert_eq!(end.answers().len(), 1);
}

#[test]
fn a_nak_that_was_not_sent_is_dropped_when_the_packet_comes() {
    let mut end = TestResponder::new();
    end.host.receives = 9;
    end.take(packet(Opcode::RcSendFirst, 0), &[1; MTU]);
    assert_eq!(end.take(only(2), &[1]), Outcome::OutOfSequence);
    assert_eq!(end.take(packet(Opcode::RcSendMiddle, 1), &[1; MTU]), Outcome::Accepted);
    assert_eq!(end.answers(), [ack(1, 0)]);
}

#[test]
fn without_a_receive_request_the_requester_waits() {
    let mut end = TestResponder::new();
    let rnr =
        |number| (Opcode::RcAck, number, Some(Syndrome::RnrNak { timer: TIMER }), Some(0), vec![]);
    assert_eq!(end.take(only(0), &[1]), Outcome::NotReady);
    assert_eq!(end.take(only(1), &[1]), Outcome::OutOfSequence);
    assert_eq!(end.answers(), [rnr(0)], "no NAK for what arrived after it");
    assert_eq!(end.take(only(1), &[1]), Outcome::OutOfSequence);
    assert_eq!(end.answers(), []);
    assert_eq!(end.take(only(0), &[1]), Outcome::NotReady);
    assert_eq!(end.answers(), [rnr(0)], "each try gets one");
    end.host.receives = 1;
    assert_eq!(end.take(only(0), &[7]), Outcome::Accepted);
    assert_eq!(end.answers(), [ack(0, 1)]);
}

#[test]
fn an_immediate_takes_a_receive_before_it_places_bytes() {
    let mut end = TestResponder::new();
    let last = Headers { imm: Some(ImmDt(6)), ..packet(Opcode::RcWriteLastImm, 1) };
    end.take(with_memory(Opcode::RcWriteFirst, 0, 0, MTU as u32 + 1), &[1; MTU]);
    assert_eq!(end.take(last, &[2]), Outcome::NotReady);
    assert_eq!(end.host.memory[MTU], 0);
    end.host.receives = 1;
    assert_eq!(end.take(last, &[2]), Outcome::Accepted);
    assert_eq!(end.host.memory[..MTU + 2], [[1; MTU].as_slice(), &[2, 0]].concat());
    let (done, bytes) = end.host.done.pop_front().unwrap();
    let expected = ReceiveDone {
        length: MTU as u32 + 1,
        imm: Some(6),
        invalidated: None,
        is_solicited: false,
        is_write: true,
    };
    assert_eq!((done, bytes), (expected, vec![]));
}

#[test]
fn a_receive_says_what_the_message_carried() {
    let mut end = TestResponder::new();
    end.host.receives = 2;
    let mut solicited = packet(Opcode::RcSendOnlyInv, 0);
    (solicited.bth.solicited, solicited.ieth) = (true, Some(Ieth { rkey: INVALIDATED }));
    end.take(solicited, &[]);
    end.take(Headers { imm: Some(ImmDt(3)), ..packet(Opcode::RcSendOnlyImm, 1) }, &[4]);
    let done: Vec<_> = end.host.done.iter().map(|(done, _)| *done).collect();
    let plain = ReceiveDone {
        length: 0,
        imm: None,
        invalidated: Some(INVALIDATED),
        is_solicited: true,
        is_write: false,
    };
    let second = ReceiveDone {
        length: 1,
        imm: Some(3),
        invalidated: None,
        is_solicited: false,
        is_write: false,
    };
    assert_eq!(done, [plain, second]);
}

#[test]
fn a_read_is_answered_packet_by_packet() {
    let mut end = TestResponder::new();
    end.host.memory[..3 * MTU].iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8 / 3);
    let memory = end.host.memory.clone();
    assert_eq!(end.take(read(0, 1, 2 * MTU as u32 + 5), &[]), Outcome::Accepted);
    assert_eq!(end.take(read(3, 0, 0), &[]), Outcome::Accepted);
    end.host.receives = 1;
    assert_eq!(end.take(only(4), &[1]), Outcome::Accepted);
    let answers = end.answers();
    let opcodes: Vec<_> = answers.iter().map(|answer| (answer.0, answer.1)).collect();
    assert_eq!(
        opcodes,
        [
            (Opcode::RcReadResponseFirst, 0),
            (Opcode::RcReadResponseMiddle, 1),
            (Opcode::RcReadResponseLast, 2),
            (Opcode::RcReadResponseOnly, 3),
            (Opcode::RcAck, 4),
        ]
    );
    let bytes: Vec<_> = answers.iter().flat_map(|answer| answer.4.clone()).collect();
    assert_eq!(bytes, memory[1..2 * MTU + 6]);
    let msns: Vec<_> = answers.iter().map(|answer| answer.3).collect();
    assert_eq!(msns, [Some(1), None, Some(1), Some(2), Some(3)]);
}

#[test]
fn reads_are_answered_in_the_order_of_their_requests() {
    let mut end = TestResponder::new();
    end.take(read(0, 0, 1), &[]);
    end.take(read(1, 0, 1), &[]);
    for number in 0..5 {
        assert_eq!(end.answer().map(|answer| answer.1), Some(number));
        assert_eq!(end.take(read(number as u32 + 2, 0, 1), &[]), Outcome::Accepted);
    }
    let numbers: Vec<_> = end.answers().iter().map(|answer| answer.1).collect();
    assert_eq!(numbers, [5, 6]);
}

#[test]
fn a_response_acknowledges_what_is_before_it() {
    let mut end = TestResponder::new();
    end.host.receives = 1;
    end.take(only(0), &[1]);
    end.take(fetch_add(1, BASE.next_multiple_of(8)), &[]);
    let answers = end.answers();
    assert_eq!(answers.len(), 1, "no acknowledgement beside it");
    assert_eq!((answers[0].0, answers[0].1), (Opcode::RcAtomicAck, 1));
}

#[test]
fn no_bytes_need_no_key() {
    let mut end = TestResponder::new();
    let nowhere = Some(Reth { va: 3, rkey: 0, len: 0 });
    let write = Headers { reth: nowhere, ..packet(Opcode::RcWriteOnly, 0) };
    assert_eq!(end.take(write, &[]), Outcome::Accepted);
    let read = Headers { reth: nowhere, ..packet(Opcode::RcReadRequest, 1) };
    assert_eq!(end.take(read, &[]), Outcome::Accepted);
}

#[test]
fn what_is_no_request_of_a_reliable_connection_is_dropped() {
    for opcode in crate::opcode::ALL.iter().filter(|opcode| !opcode.is_request()) {
        assert_eq!(
            TestResponder::new().take(packet(*opcode, 0), &[]),
            Outcome::Dropped,
            "{opcode}"
        );
    }
    for opcode in [Opcode::UcSendOnly, Opcode::UdSendOnly] {
        assert_eq!(TestResponder::new().take(packet(opcode, 0), &[]), Outcome::Dropped, "{opcode}");
    }
    assert_eq!(
        Responder::new(
            [ResponseSlot::new()],
            ResponderConfig { mtu: 100, ..TestResponder::new().responder.config }
        )
        .unwrap_err(),
        MtuError(100)
    );
}
