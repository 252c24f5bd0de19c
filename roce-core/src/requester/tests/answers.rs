//! Requests that answers complete, and those that they do not.

use super::*;

#[test]
fn one_acknowledgement_covers_all_before_it() {
    let mut requester = sent(CONFIG, &[send(1), send(3 * MTU), send(1), send(1)]);
    requester.on_response(&ack(2), 0, 1);
    assert_eq!(
        completions(&mut requester),
        [(0, CompletionStatus::Success)],
        "the second has 3 packets"
    );
    requester.on_response(&ack(4), 0, 2);
    assert_eq!(
        completions(&mut requester),
        [(1, CompletionStatus::Success), (2, CompletionStatus::Success)]
    );
}

#[test]
fn old_and_ghost_answers_change_nothing() {
    let mut requester = sent(CONFIG, &[send(1), send(1), read(1), send(4 * MTU)]);
    requester.on_response(&ack(0), 0, 1);
    requester.next_completion();
    let before = requester.clone();
    for stale in [
        ack(0),
        nak(0, NakCode::RemoteAccessError),
        rnr(0),
        read_response(Opcode::RcReadResponseOnly, 0),
        ack(7),
        nak(7, NakCode::InvalidRequest),
        ack(0x80_0000),
        response(Opcode::RcSendOnly, 1, Syndrome::ACK),
    ] {
        assert_eq!(requester.on_response(&stale, 0, 2), Received::Ignored, "{stale:?}");
        assert_eq!(requester, before, "{stale:?}");
    }
}

#[test]
fn an_answer_past_an_unfinished_read_implies_its_loss() {
    let reads = [send(1), read(2 * MTU), send(1)];
    for answer in [ack(3), ack(2), ack(1), nak(3, NakCode::RemoteAccessError), rnr(3)] {
        let mut requester = sent(CONFIG, &reads);
        requester.on_response(&answer, 0, 1);
        assert_eq!(completions(&mut requester), [(0, CompletionStatus::Success)], "{answer:?}");
        let packets = drain(&mut requester, 1);
        assert_eq!(numbers(&packets), [1, 3], "{answer:?}");
        assert_eq!(packets[0].headers.bth.opcode, Opcode::RcReadRequest);
    }
}

#[test]
fn a_missing_response_is_asked_for_to_the_end_of_its_part() {
    let mut requester = sent(CONFIG, &[read(6 * MTU)]);
    requester.on_response(&read_response(Opcode::RcReadResponseFirst, 0), MTU, 1);
    let gap = read_response(Opcode::RcReadResponseMiddle, 2);
    assert_eq!(requester.on_response(&gap, MTU, 1), Received::Noted);
    let packets = drain(&mut requester, 1);
    assert_eq!(numbers(&packets), [1, 4]);
    let lens: Vec<_> = packets.iter().map(|packet| packet.headers.reth.unwrap().len).collect();
    assert_eq!(lens, [3 * MTU, 2 * MTU]);
    let va = packets[0].headers.reth.unwrap().va;
    assert_eq!(va, 0x1000 + u64::from(MTU));
    // The last response that was sent the first time arrives late.
    let late = read_response(Opcode::RcReadResponseMiddle, 1);
    let offset = MTU;
    let placed = Received::Place { index: WqeIndex(0), offset, length: MTU };
    assert_eq!(requester.on_response(&late, MTU, 2), placed);
}

#[test]
fn an_atomic_gives_what_it_found_once() {
    let atomic = Request::new(Operation::CmpSwap { compare: 1, swap: 2 }, 0, 8, 5);
    let mut requester = machine(CONFIG);
    requester.post(atomic).unwrap();
    let packet = requester.next_packet(0).unwrap();
    let operands = packet.headers.atomic.unwrap();
    assert_eq!((operands.compare, operands.swap_add, operands.va, operands.rkey), (1, 2, 8, 5));
    let answer = Headers {
        atomic_ack: Some(AtomicAckEth { original: 77 }),
        ..response(Opcode::RcAtomicAck, 0, Syndrome::ACK)
    };
    let found = Received::Original { index: WqeIndex(0), value: 77 };
    assert_eq!(requester.on_response(&answer, 0, 1), found);
    assert_eq!(requester.on_response(&answer, 0, 1), Received::Ignored);
    assert_eq!(completions(&mut requester), [(0, CompletionStatus::Success)]);
}

/// It is answered as a READ of no bytes; an acknowledgement alone says that the response is lost.
#[test]
fn an_atomic_write_waits_for_its_own_response() {
    let write = Request::new(Operation::AtomicWrite, 8, 16, 5);
    for length in [0, 7, 9, MTU] {
        let mut requester = machine(CONFIG);
        let before = requester.clone();
        let posted = requester.post(Request { length, ..write });
        assert_eq!(posted, Err(PostError::NotAWord(length)));
        assert_eq!(requester, before);
    }
    let mut none = machine(RequesterConfig { max_rd_atomic: 0, ..CONFIG });
    assert_eq!(none.post(write), Err(PostError::NoReads));

    let mut requester = machine(CONFIG);
    requester.post(write).unwrap();
    requester.post(send(1)).unwrap();
    let packet = requester.next_packet(0).unwrap();
    assert_eq!(packet.headers.bth.opcode, Opcode::RcAtomicWrite);
    assert_eq!(packet.headers.reth, Some(Reth { va: 16, rkey: 5, len: 8 }));
    assert_eq!((packet.offset, packet.length), (0, 8));
    requester.next_packet(0).unwrap();
    assert_eq!(requester.on_response(&ack(1), 0, 1), Received::Noted);
    assert_eq!(completions(&mut requester), []);
    assert_eq!(requester.next_packet(1).unwrap().headers.bth, packet.headers.bth, "again");
    requester.next_packet(1).unwrap();
    let answer = read_response(Opcode::RcReadResponseOnly, 0);
    assert_eq!(requester.on_response(&answer, 0, 2), Received::Noted);
    assert_eq!(requester.on_response(&answer, 0, 2), Received::Ignored);
    assert_eq!(completions(&mut requester), [(0, CompletionStatus::Success)]);
    requester.on_response(&ack(1), 0, 3);
    assert_eq!(completions(&mut requester), [(1, CompletionStatus::Success)]);
}

#[test]
fn a_nak_ends_the_request_that_it_names() {
    for (code, status) in [
        (NakCode::InvalidRequest, CompletionStatus::RemoteInvalidRequest),
        (NakCode::RemoteAccessError, CompletionStatus::RemoteAccess),
        (NakCode::RemoteOperationalError, CompletionStatus::RemoteOperation),
        (NakCode::InvalidRdRequest, CompletionStatus::BadResponse),
    ] {
        let mut requester = sent(CONFIG, &[send(1), send(3 * MTU), send(1)]);
        requester.on_response(&nak(2, code), 0, 1);
        assert_eq!(completions(&mut requester), [(0, CompletionStatus::Success), (1, status)]);
        assert!(requester.has_failed());
        let before = requester.clone();
        assert_eq!(requester.on_response(&ack(4), 0, 2), Received::Ignored);
        requester.on_timer(u64::MAX);
        assert_eq!((requester.next_packet(3), requester.deadline_ns()), (None, None));
        assert_eq!(requester.post(send(1)), Err(PostError::Failed));
        assert_eq!(requester, before, "nothing happens any more");
    }
}

#[test]
fn a_response_that_does_not_fit_ends_the_request() {
    use Opcode::*;
    let atomic = Request::new(Operation::FetchAdd { add: 1 }, 0, 0, 0);
    let write = Request::new(Operation::AtomicWrite, 8, 0, 0);
    for (request, opcode, number, length, status) in [
        (read(2 * MTU), RcReadResponseFirst, 0, MTU - 1, CompletionStatus::LocalLength),
        (read(2 * MTU), RcReadResponseFirst, 0, MTU + 1, CompletionStatus::LocalLength),
        (read(MTU - 1), RcReadResponseOnly, 0, MTU, CompletionStatus::LocalLength),
        (read(2 * MTU), RcReadResponseOnly, 0, MTU, CompletionStatus::BadResponse),
        (read(2 * MTU), RcReadResponseLast, 0, MTU, CompletionStatus::BadResponse),
        (read(MTU), RcReadResponseFirst, 0, MTU, CompletionStatus::BadResponse),
        (send(1), RcReadResponseOnly, 0, 1, CompletionStatus::BadResponse),
        (atomic, RcReadResponseOnly, 0, 8, CompletionStatus::BadResponse),
        (write, RcReadResponseOnly, 0, 8, CompletionStatus::LocalLength),
        (write, RcReadResponseFirst, 0, 0, CompletionStatus::BadResponse),
        (write, RcAtomicAck, 0, 0, CompletionStatus::BadResponse),
        (send(1), RcAtomicAck, 0, 0, CompletionStatus::BadResponse),
        (read(1), RcAtomicAck, 0, 0, CompletionStatus::BadResponse),
    ] {
        let mut requester = sent(CONFIG, &[request]);
        let answer = read_response(opcode, number);
        assert_eq!(requester.on_response(&answer, length, 1), Received::Noted);
        assert_eq!(completions(&mut requester), [(0, status)], "{request:?} {opcode}");
    }
}
