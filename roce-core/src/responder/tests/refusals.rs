//! Requests that end the connection.

use super::*;

#[test]
fn a_message_out_of_order_is_refused() {
    use Opcode::*;
    let begin_send: &[Opcode] = &[RcSendFirst];
    let begin_write: &[Opcode] = &[RcWriteFirst];
    for (before, opcode) in [
        (&[][..], RcSendMiddle),
        (&[], RcSendLast),
        (&[], RcSendLastInv),
        (&[], RcWriteMiddle),
        (&[], RcWriteLastImm),
        (begin_send, RcSendFirst),
        (begin_send, RcSendOnly),
        (begin_send, RcWriteMiddle),
        (begin_send, RcWriteOnly),
        (begin_send, RcReadRequest),
        (begin_send, RcFetchAdd),
        (begin_write, RcWriteFirst),
        (begin_write, RcSendLast),
        (begin_write, RcReadRequest),
        (begin_write, RcCmpSwap),
    ] {
        let mut end = TestResponder::new();
        end.host.receives = 9;
        for (number, opcode) in before.iter().enumerate() {
            let headers = with_memory(*opcode, number as u32, 0, 2000);
            assert_eq!(end.take(headers, &[0; MTU]), Outcome::Accepted);
        }
        let number = before.len() as u32;
        let atomic = fetch_add(0, BASE.next_multiple_of(8)).atomic;
        let headers = Headers { atomic, ..with_memory(opcode, number, 0, MTU as u32) };
        let length = if opcode.is_send() || opcode.is_write() { MTU } else { 0 };
        let outcome = end.take(headers, &vec![0; length]);
        end.assert_refused(outcome, Refusal::Invalid, number as i32);
        assert_eq!(end.host.faults, u32::from(before == begin_send), "{opcode}");
    }
}

#[test]
fn a_length_that_lies_is_refused() {
    use Opcode::*;
    let named = |opcode, len| with_memory(opcode, 0, 0, len);
    let (mtu, mtu_bytes) = (MTU as u32, MTU);
    for (headers, length) in [
        (packet(RcSendFirst, 0), mtu_bytes - 1),
        (packet(RcSendFirst, 0), mtu_bytes + 1),
        (packet(RcSendOnly, 0), mtu_bytes + 1),
        (named(RcWriteOnly, 5), 4),
        (named(RcWriteOnly, 5), 6),
        (named(RcWriteOnly, 0), 1),
        (named(RcWriteFirst, mtu), mtu_bytes),
        (named(RcWriteFirst, mtu - 1), mtu_bytes),
        (named(RcWriteFirst, mtu + 1), mtu_bytes - 1),
        (named(RcWriteFirst, (1 << 31) + 1), mtu_bytes),
        (named(RcReadRequest, (1 << 31) + 1), 0),
        (named(RcReadRequest, 5), 5),
        (packet(RcWriteOnly, 0), 0),
        (packet(RcReadRequest, 0), 0),
        (packet(RcFetchAdd, 0), 0),
    ] {
        let mut end = TestResponder::new();
        end.host.receives = 1;
        let outcome = end.take(headers, &vec![7; length]);
        end.assert_refused(outcome, Refusal::Invalid, 0);
        assert_eq!((end.host.stored, end.host.receives), (0, 1), "{headers:?} {length}");
    }
}

#[test]
fn the_rest_of_a_write_that_lies_is_refused() {
    let mtu = MTU as u32;
    for (named, opcode, length) in [
        (mtu + 5, Opcode::RcWriteLast, 4),
        (mtu + 5, Opcode::RcWriteLast, 6),
        (mtu + 5, Opcode::RcWriteLast, 0),
        (2 * mtu, Opcode::RcWriteMiddle, MTU),
        (mtu + 5, Opcode::RcWriteMiddle, MTU),
        (3 * mtu, Opcode::RcWriteMiddle, MTU - 1),
    ] {
        let mut end = TestResponder::new();
        end.take(with_memory(Opcode::RcWriteFirst, 0, 0, named), &[1; MTU]);
        let outcome = end.take(packet(opcode, 1), &vec![7; length]);
        end.assert_refused(outcome, Refusal::Invalid, 1);
        assert_eq!(end.host.stored, u64::from(mtu), "{named} {opcode} {length}");
    }
}

#[test]
fn a_message_that_does_not_fit_its_receive_request_is_refused() {
    let mut end = TestResponder::new();
    end.host.receives = 2;
    end.take(packet(Opcode::RcSendFirst, 0), &[1; MTU]);
    for number in 1..8 {
        let outcome = end.take(packet(Opcode::RcSendMiddle, number), &[1; MTU]);
        assert_eq!(outcome, Outcome::Accepted);
    }
    let outcome = end.take(packet(Opcode::RcSendLast, 8), &[1]);
    end.assert_refused(outcome, Refusal::Invalid, 8);
    assert_eq!((end.host.faults, end.host.receives), (1, 1));
}

#[test]
fn a_key_is_checked_for_the_whole_length_at_first() {
    let memory = crate::oracle::MEMORY as u64;
    for headers in [
        with_memory(Opcode::RcWriteFirst, 0, memory - MTU as u64, MTU as u32 + 1),
        with_memory(Opcode::RcReadRequest, 0, memory - 1, 2),
        with_memory(Opcode::RcReadRequest, 0, u64::MAX - BASE, 2),
        fetch_add(0, BASE + memory - 7),
    ] {
        let mut end = TestResponder::new();
        let length = if headers.bth.opcode.is_write() { MTU } else { 0 };
        let outcome = end.take(headers, &vec![1; length]);
        end.assert_refused(outcome, Refusal::Access, 0);
        assert_eq!(end.host.stored + end.host.atomics, 0);
    }
}

#[test]
fn a_key_that_goes_in_the_middle_ends_the_connection() {
    let mut end = TestResponder::new();
    end.host.receives = 1;
    end.take(with_memory(Opcode::RcWriteFirst, 0, 0, MTU as u32 + 1), &[1; MTU]);
    end.host.is_valid = false;
    let last = Headers { imm: Some(ImmDt(1)), ..packet(Opcode::RcWriteLastImm, 1) };
    let outcome = end.take(last, &[1]);
    end.assert_refused(outcome, Refusal::Access, 1);
    assert_eq!(end.host.faults, 1, "the receive request of the immediate");

    let mut end = TestResponder::new();
    end.host.receives = 1;
    end.take(read(0, 0, 4 * MTU as u32), &[]);
    end.take(packet(Opcode::RcSendFirst, 4), &[1; MTU]);
    assert_eq!(end.answer().map(|answer| answer.1), Some(0));
    end.host.is_valid = false;
    end.assert_dead_at_the_read();
    assert_eq!(end.host.faults, 1, "that of the SEND that was being received");
}

impl TestResponder {
    /// The next response fails.
    fn assert_dead_at_the_read(&mut self) {
        let (opcode, number, syndrome, ..) = self.answer().expect("a NAK");
        let nak = Some(Syndrome::Nak(NakCode::RemoteAccessError));
        assert_eq!((opcode, number, syndrome), (Opcode::RcAck, 1, nak));
        assert!(self.responder.has_failed());
        assert_eq!(self.answers(), []);
    }
}

#[test]
fn a_key_that_may_not_be_invalidated_ends_the_connection() {
    let mut end = TestResponder::new();
    end.host.receives = 1;
    let headers = Headers { ieth: Some(Ieth { rkey: 1 }), ..packet(Opcode::RcSendOnlyInv, 0) };
    let outcome = end.take(headers, &[1]);
    end.assert_refused(outcome, Refusal::Access, 0);
    assert_eq!((end.host.faults, end.host.done.len()), (1, 0));
}

#[test]
fn an_atomic_that_is_not_aligned_is_refused() {
    let mut end = TestResponder::new();
    let outcome = end.take(fetch_add(0, BASE.next_multiple_of(8) + 4), &[]);
    end.assert_refused(outcome, Refusal::Invalid, 0);
    assert_eq!(end.host.atomics, 0);
}

#[test]
fn more_reads_than_the_requester_may_have_are_refused() {
    let mut end = TestResponder::with(0);
    let outcome = end.take(read(0, 0, 1), &[]);
    end.assert_refused(outcome, Refusal::Invalid, 0);
    let mut end = TestResponder::with(0);
    let outcome = end.take(fetch_add(0, BASE.next_multiple_of(8)), &[]);
    end.assert_refused(outcome, Refusal::Invalid, 0);
    let mut end = TestResponder::new();
    assert_eq!(end.take(read(0, 0, 1), &[]), Outcome::Accepted);
    assert_eq!(end.take(read(1, 0, 1), &[]), Outcome::Accepted);
    assert_eq!(end.take(read(2, 0, 1), &[]), Outcome::Failed(Refusal::Invalid));
    let answers: Vec<_> = end.answers().iter().map(|answer| (answer.0, answer.1)).collect();
    let only = Opcode::RcReadResponseOnly;
    assert_eq!(answers, [(only, 0), (only, 1), (Opcode::RcAck, 2)], "the others are answered");
}

/// An ATOMIC WRITE has eight bytes, says so, and writes to a word of memory that it may write to.
#[test]
fn what_is_no_atomic_write_is_refused() {
    let bad_key = Some(Reth { va: WORD, rkey: RKEY + 1, len: 8 });
    let good = atomic_write(0);
    for (headers, payload, refusal) in [
        (with_memory(Opcode::RcAtomicWrite, 0, WORD - BASE, 7), &[1; 8][..], Refusal::Invalid),
        (with_memory(Opcode::RcAtomicWrite, 0, WORD - BASE, 0), &[1; 8], Refusal::Invalid),
        (with_memory(Opcode::RcAtomicWrite, 0, WORD - BASE, u32::MAX), &[1; 8], Refusal::Invalid),
        (with_memory(Opcode::RcAtomicWrite, 0, WORD - BASE + 4, 8), &[1; 8], Refusal::Invalid),
        (good, &[1; 7], Refusal::Invalid),
        (good, &[], Refusal::Invalid),
        (good, &[1; 16], Refusal::Invalid),
        (Headers { reth: None, ..good }, &[1; 8], Refusal::Invalid),
        (Headers { reth: bad_key, ..good }, &[1; 8], Refusal::Access),
    ] {
        let mut end = TestResponder::new();
        let outcome = end.take(headers, payload);
        end.assert_refused(outcome, refusal, 0);
        assert_eq!(end.host.stored, 0, "{headers:?}");
    }
    // One more than there is room for, and one within another message.
    let mut end = TestResponder::with(0);
    let outcome = end.take(good, &[1; 8]);
    end.assert_refused(outcome, Refusal::Invalid, 0);
    let mut end = TestResponder::new();
    end.host.receives = 1;
    end.take(packet(Opcode::RcSendFirst, 0), &[1; MTU]);
    let outcome = end.take(atomic_write(1), &[1; 8]);
    end.assert_refused(outcome, Refusal::Invalid, 1);
}

#[test]
fn a_malformed_packet_is_refused_when_it_is_the_expected_one() {
    let mut end = TestResponder::new();
    end.host.receives = 1;
    end.take(packet(Opcode::RcSendFirst, 0), &[1; MTU]);
    let malformed = |end: &mut TestResponder, number| {
        let psn = Psn::new(FIRST).wrapping_add(number);
        end.responder.on_malformed(psn, &mut end.host)
    };
    assert_eq!(malformed(&mut end, 0), Outcome::Dropped);
    assert_eq!(malformed(&mut end, 2), Outcome::OutOfSequence);
    let outcome = malformed(&mut end, 1);
    end.assert_refused(outcome, Refusal::Invalid, 1);
    assert_eq!(malformed(&mut end, 1), Outcome::Dropped);
    assert_eq!(end.host.faults, 1);
}

/// The parser gives a packet the headers of its opcode, but another caller may not.
#[test]
fn a_header_that_the_opcode_does_not_have_is_ignored() {
    let mut end = TestResponder::new();
    end.host.receives = 2;
    let first = with_memory(Opcode::RcWriteFirst, 0, 0, MTU as u32 + 1);
    assert_eq!(end.take(Headers { imm: Some(ImmDt(1)), ..first }, &[1; MTU]), Outcome::Accepted);
    let last = Headers { imm: Some(ImmDt(1)), ..packet(Opcode::RcWriteLast, 1) };
    assert_eq!(end.take(last, &[1]), Outcome::Accepted);
    assert_eq!(end.host.receives, 2);
    let extra = Headers { imm: Some(ImmDt(1)), ieth: Some(Ieth { rkey: 1 }), ..only(2) };
    assert_eq!(end.take(extra, &[1]), Outcome::Accepted);
    let (done, _) = end.host.done.pop_front().unwrap();
    assert_eq!((done.imm, done.invalidated), (None, None));
}
