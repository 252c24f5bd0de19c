//! Repeated requests.

use super::*;

#[test]
fn a_write_or_send_is_executed_once() {
    let mut end = TestResponder::new();
    end.host.receives = 2;
    let write = with_memory(Opcode::RcWriteOnly, 0, 0, 1);
    assert_eq!(end.take(write, &[1]), Outcome::Accepted);
    assert_eq!(end.take(only(1), &[1]), Outcome::Accepted);
    end.answers();
    end.host.memory[0] = 9;
    assert_eq!(end.take(write, &[1]), Outcome::Duplicate);
    assert_eq!(end.take(only(1), &[1]), Outcome::Duplicate);
    assert_eq!((end.host.memory[0], end.host.receives), (9, 1));
    assert_eq!(end.answers(), [ack(1, 2)], "one acknowledgement, of all");
}

/// A requester that takes an acknowledgement with the number of a READ for its response would complete
/// it without data.
#[test]
fn what_is_acknowledged_again_is_no_read_and_no_atomic() {
    let mut end = TestResponder::new();
    end.host.receives = 1;
    end.take(only(0), &[1]);
    end.take(read(1, 0, 2 * MTU as u32), &[]);
    end.take(fetch_add(3, WORD), &[]);
    end.answers();
    assert_eq!(end.take(only(0), &[1]), Outcome::Duplicate);
    assert_eq!(end.answers(), [ack(0, 1)]);
    let late = end.responder.answer_late(&only(0)).unwrap();
    assert_eq!(late.bth.psn.since(Psn::new(FIRST)), 0);
}

#[test]
fn what_precedes_the_first_packet_is_dropped() {
    let mut end = TestResponder::new();
    end.host.receives = 2;
    assert_eq!(end.take(only(0xff_ffff), &[1]), Outcome::Dropped);
    end.take(only(0), &[1]);
    assert_eq!(end.take(only(0xff_ffff), &[1]), Outcome::Dropped);
    assert_eq!(end.answers(), [ack(0, 1)]);
}

#[test]
fn a_repetition_does_not_hide_a_nak() {
    let mut end = TestResponder::new();
    end.host.receives = 1;
    end.take(only(0), &[1]);
    end.take(only(2), &[1]);
    end.take(only(0), &[1]);
    assert_eq!(end.answers()[0].2, Some(Syndrome::Nak(NakCode::PsnSequenceError)));
}

#[test]
fn a_read_is_read_again_from_where_it_is_asked_for() {
    let mut end = TestResponder::new();
    assert_eq!(end.take(read(0, 0, 4 * MTU as u32), &[]), Outcome::Accepted);
    assert_eq!(end.answers().len(), 4);
    end.host.memory.fill(8);
    let rest = read(2, 2 * MTU as u64, 2 * MTU as u32);
    assert_eq!(end.take(rest, &[]), Outcome::Duplicate);
    let answers = end.answers();
    assert_eq!(
        answers.iter().map(|answer| (answer.0, answer.1)).collect::<Vec<_>>(),
        [(Opcode::RcReadResponseFirst, 2), (Opcode::RcReadResponseLast, 3)]
    );
    assert!(answers.iter().all(|answer| answer.4 == [8; MTU]));
    // What is about to be sent anyway is sent once.
    assert_eq!(end.take(read(4, 0, 2 * MTU as u32), &[]), Outcome::Accepted);
    assert_eq!(end.take(read(5, MTU as u64, MTU as u32), &[]), Outcome::Duplicate);
    let numbers: Vec<_> = end.answers().iter().map(|answer| answer.1).collect();
    assert_eq!(numbers, [4, 5]);
}

#[test]
fn a_read_begins_again_while_it_is_answered() {
    let mut end = TestResponder::new();
    end.take(read(0, 0, 4 * MTU as u32), &[]);
    end.answer();
    end.answer();
    assert_eq!(end.take(read(1, MTU as u64, 3 * MTU as u32), &[]), Outcome::Duplicate);
    let numbers: Vec<_> = end.answers().iter().map(|answer| answer.1).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

#[test]
fn a_repeated_read_stays_within_the_first() {
    let mtu = MTU as u32;
    let other_key = Reth { va: BASE, rkey: RKEY + 1, len: 1 };
    for again in [
        read(1, MTU as u64, 2 * mtu + 1),
        read(1, 0, mtu),
        read(0, 1, mtu),
        read(2, 2 * MTU as u64, u32::MAX),
        Headers { reth: Some(other_key), ..read(0, 0, 1) },
        Headers { reth: None, ..read(0, 0, 1) },
        fetch_add(1, BASE.next_multiple_of(8)),
    ] {
        let mut end = TestResponder::new();
        end.take(read(0, 0, 3 * mtu), &[]);
        end.answers();
        assert_eq!(end.take(again, &[]), Outcome::Dropped, "{again:?}");
        assert_eq!(end.answers(), []);
    }
}

#[test]
fn a_repeated_read_checks_its_key_again() {
    let mut end = TestResponder::new();
    end.host.receives = 1;
    end.take(read(0, 0, 3 * MTU as u32), &[]);
    end.answers();
    end.host.is_valid = false;
    end.take(read(1, MTU as u64, 2 * MTU as u32), &[]);
    let nak = Some(Syndrome::Nak(NakCode::RemoteAccessError));
    assert_eq!(end.answers(), [(Opcode::RcAck, 1, nak, Some(1), vec![])]);
    // It may have been a late copy: the requester ignores the NAK then, and continues.
    assert!(!end.responder.has_failed());
    assert_eq!(end.take(only(3), &[1]), Outcome::Accepted);
    assert_eq!(end.answers(), [ack(3, 2)]);
}

#[test]
fn an_atomic_is_executed_once_and_answered_again() {
    let (mut end, word) = (TestResponder::new(), BASE.next_multiple_of(8));
    let original = |end: &mut TestResponder| {
        let response = end.responder.next_response(&mut end.host).expect("a response");
        response.headers.atomic_ack.map(|ack| ack.original)
    };
    for number in 0..3 {
        assert_eq!(end.take(fetch_add(number, word), &[]), Outcome::Accepted);
        assert_eq!(original(&mut end), Some(5 * u64::from(number)));
    }
    for number in [1, 2, 1] {
        assert_eq!(end.take(fetch_add(number, word), &[]), Outcome::Duplicate);
        assert_eq!(original(&mut end), Some(5 * u64::from(number)));
    }
    assert_eq!(end.take(fetch_add(0, word), &[]), Outcome::Dropped, "only two are remembered");
    assert_eq!(end.take(read(1, 0, 1), &[]), Outcome::Dropped, "it was an atomic");
    assert_eq!((end.host.atomics, end.answers()), (3, vec![]));
}

#[test]
fn an_atomic_write_is_executed_once_and_answered_again() {
    let mut end = TestResponder::new();
    let at = (WORD - BASE) as usize;
    let response =
        |number, msn| (Opcode::RcReadResponseOnly, number, Some(Syndrome::ACK), Some(msn), vec![]);
    for number in 0..3 {
        let payload = [number as u8; 8];
        assert_eq!(end.take(atomic_write(number), &payload), Outcome::Accepted);
        assert_eq!(end.host.memory[at..at + 8], payload);
        assert_eq!(end.answers(), [response(number as i32, number + 1)]);
    }
    end.host.memory[at] = 77;
    for number in [1, 2, 1] {
        assert_eq!(end.take(atomic_write(number), &[9; 8]), Outcome::Duplicate);
        assert_eq!(end.answers(), [response(number as i32, number + 1)]);
    }
    assert_eq!(end.take(atomic_write(0), &[9; 8]), Outcome::Dropped, "only two are remembered");
    assert_eq!(end.take(read(1, 0, 8), &[]), Outcome::Dropped, "it was no READ");
    assert_eq!(end.take(fetch_add(1, WORD), &[]), Outcome::Dropped, "and no atomic");
    assert_eq!((end.host.memory[at], end.answers()), (77, vec![]));
    // Requests that arrive after the end.
    let late = |headers: &Headers| end.responder.answer_late(headers).map(|late| late.bth);
    let answer = late(&atomic_write(1)).unwrap();
    let number = answer.psn.since(Psn::new(FIRST));
    assert_eq!((answer.opcode, number), (Opcode::RcReadResponseOnly, 1));
    assert_eq!(late(&fetch_add(1, WORD)), None, "that was no atomic");
}

/// It is answered behind what was asked for before, and acknowledges that.
#[test]
fn an_atomic_write_has_its_place_among_responses() {
    let mut end = TestResponder::new();
    end.host.receives = 1;
    end.take(only(0), &[1]);
    end.take(read(1, 0, 2 * MTU as u32), &[]);
    end.take(atomic_write(3), &[1; 8]);
    let numbers: Vec<_> = end.answers().iter().map(|answer| (answer.0, answer.1)).collect();
    use Opcode::*;
    assert_eq!(
        numbers,
        [(RcReadResponseFirst, 1), (RcReadResponseLast, 2), (RcReadResponseOnly, 3)]
    );
}

#[test]
fn a_late_copy_does_not_keep_a_new_read_out() {
    let mut end = TestResponder::new();
    for number in 0..2 {
        end.take(read(number, 0, 1), &[]);
    }
    end.answers();
    assert_eq!(end.take(read(0, 0, 1), &[]), Outcome::Duplicate);
    assert_eq!(end.take(read(2, 0, 1), &[]), Outcome::Accepted);
    let numbers: Vec<_> = end.answers().iter().map(|answer| answer.1).collect();
    assert_eq!(numbers, [2]);
}

#[test]
fn what_comes_when_all_is_over_is_acknowledged_and_not_executed() {
    let mut end = TestResponder::new();
    end.host.receives = 3;
    let late = |end: &TestResponder, headers: &Headers| {
        let answer = end.responder.answer_late(headers)?;
        let number = answer.bth.psn.since(Psn::new(FIRST));
        Some((answer.bth.opcode, number, answer.atomic_ack.map(|ack| ack.original)))
    };
    assert_eq!(late(&end, &only(0)), None, "it is the next one");
    end.take(only(0), &[1]);
    end.host.memory[..8].copy_from_slice(&7_u64.to_ne_bytes());
    let add = fetch_add(1, BASE.next_multiple_of(8));
    assert_eq!(end.take(add, &[]), Outcome::Accepted);
    let original = end.responder.next_response(&mut end.host).unwrap().headers.atomic_ack;
    end.take(read(2, 0, 4), &[]);
    end.answers();
    assert_eq!(late(&end, &only(0)), Some((Opcode::RcAck, 0, None)), "all that has no response");
    let atomic = Some((Opcode::RcAtomicAck, 1, original.map(|ack| ack.original)));
    assert_eq!(late(&end, &add), atomic, "what it found then");
    assert_eq!(late(&end, &read(2, 0, 4)), None, "its memory may have gone");
    assert_eq!(late(&end, &only(3)), None, "it was not executed");
    assert_eq!(late(&end, &only(0xff_ffff)), None, "it precedes the first");
    assert_eq!(late(&end, &fetch_add(0, BASE)), None, "that was no atomic");
    assert_eq!(end.answers(), [], "nothing has changed");
}
