//! Memory that is not there yet: the request is not executed, and the requester asks again.

use super::*;
use crate::oracle::MEMORY;

fn rnr(number: i32, msn: u32) -> ResponseSummary {
    (Opcode::RcAck, number, Some(Syndrome::RnrNak { timer: TIMER }), Some(msn), vec![])
}

#[test]
fn a_request_is_executed_once_when_its_memory_is_there() {
    use Opcode::*;
    let mtu = MTU as u32;
    let requests = [
        (only(0), vec![7; 9]),
        (packet(RcSendFirst, 0), vec![7; MTU]),
        (with_memory(RcWriteOnly, 0, 0, 9), vec![7; 9]),
        (with_memory(RcWriteOnlyImm, 0, 0, 9), vec![7; 9]),
        (with_memory(RcWriteFirst, 0, 0, 2 * mtu), vec![7; MTU]),
        (read(0, 0, 9), vec![]),
        (fetch_add(0, WORD), vec![]),
        (atomic_write(0), vec![7; 8]),
    ];
    for (headers, payload) in requests {
        // The key is checked first, then the bytes are copied: either may meet a page that is not there.
        for absent in 1..=2 {
            let mut end = TestResponder::new();
            (end.host.receives, end.host.absent) = (1, absent);
            let memory = end.host.memory.clone();
            for _ in 0..absent {
                assert_eq!(end.take(headers, &payload), Outcome::NotReady);
                assert_eq!((&end.host.memory, end.host.stored), (&memory, 0));
                assert_eq!((end.host.faults, end.host.done.len()), (0, 0));
                assert_eq!(end.answers(), [rnr(0, 0)], "{}", headers.bth.opcode);
            }
            assert_eq!(end.take(headers, &payload), Outcome::Accepted, "{}", headers.bth.opcode);
            assert!(end.answers().iter().all(|answer| answer.2 != rnr(0, 0).2));
            assert!(end.host.stored == payload.len() as u64 && end.host.atomics < 2);
        }
    }
}

/// Only bytes that lie behind those of earlier packets are asked for again.
#[test]
fn the_next_packet_of_a_message_may_wait_for_memory() {
    let mut end = TestResponder::new();
    end.host.receives = 2;
    assert_eq!(end.take(packet(Opcode::RcSendFirst, 0), &[1; MTU]), Outcome::Accepted);
    end.host.absent = 1;
    assert_eq!(end.take(packet(Opcode::RcSendLast, 1), &[2; 3]), Outcome::NotReady);
    // Packets that were sent behind it are not reported: they are sent again.
    assert_eq!(end.take(only(2), &[3]), Outcome::OutOfSequence);
    assert_eq!(end.answers(), [rnr(1, 0)]);
    assert_eq!(end.take(packet(Opcode::RcSendLast, 1), &[2; 3]), Outcome::Accepted);
    assert_eq!(end.take(only(2), &[3]), Outcome::Accepted);
    assert_eq!(end.answers(), [ack(2, 2)]);
    let received: Vec<_> = end.host.done.iter().map(|(done, _)| done.length).collect();
    assert_eq!(received, [MTU as u32 + 3, 1]);
}

/// The receive request that was taken for a message which has not begun fails with the connection.
#[test]
fn a_receive_request_that_is_held_fails_with_the_connection() {
    let mut end = TestResponder::new();
    (end.host.receives, end.host.absent) = (2, 1);
    assert_eq!(end.take(only(0), &[1]), Outcome::NotReady);
    assert_eq!(end.answers(), [rnr(0, 0)]);
    let outcome = end.take(with_memory(Opcode::RcWriteOnly, 0, MEMORY as u64, 1), &[1]);
    end.assert_refused(outcome, Refusal::Access, 0);
    assert_eq!((end.host.faults, end.host.receives), (1, 1));
}

/// The requester asks for the rest, and for all that it has sent behind it.
#[test]
fn a_response_without_its_memory_postpones_all_behind_it() {
    let mut end = TestResponder::new();
    end.host.receives = 1;
    end.host.memory[..3 * MTU].fill(5);
    assert_eq!(end.take(read(0, 0, 3 * MTU as u32), &[]), Outcome::Accepted);
    assert_eq!(end.take(fetch_add(3, WORD), &[]), Outcome::Accepted);
    assert_eq!(end.take(only(4), &[1]), Outcome::Accepted);
    assert_eq!(end.answer().unwrap().1, 0);
    end.host.absent = 1;
    assert_eq!(end.answers(), [rnr(1, 3)]);
    assert!(!end.responder.has_response() && !end.responder.has_failed());
    let rest =
        (end.take(read(1, MTU as u64, 2 * MTU as u32), &[]), end.take(fetch_add(3, WORD), &[]));
    assert_eq!(rest, (Outcome::Duplicate, Outcome::Duplicate));
    assert_eq!(end.take(only(4), &[1]), Outcome::Duplicate);
    let numbers: Vec<_> = end.answers().iter().map(|answer| answer.1).collect();
    assert_eq!((numbers, end.host.atomics), (vec![1, 2, 3, 4], 1));
}
