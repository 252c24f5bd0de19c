//! Attributes that change while the connection works.

use super::*;

#[test]
fn the_new_rnr_timer_is_in_the_next_nak() {
    let mut end = TestResponder::new();
    let other = RnrTimer::new(3).unwrap();
    end.responder.set_min_rnr_timer(other);
    assert_eq!(end.take(only(0), &[1]), Outcome::NotReady);
    assert_eq!(end.answer().unwrap().2, Some(Syndrome::RnrNak { timer: other }));
}

/// Reports whether an atomic that is repeated is answered with the value that it found.
fn is_remembered(end: &mut TestResponder, number: u32) -> bool {
    let is_repeated = end.take(fetch_add(number, BASE), &[]) == Outcome::Duplicate;
    is_repeated && end.answers().iter().any(|answer| answer.0 == Opcode::RcAtomicAck)
}

#[test]
fn with_other_slots_the_newest_requests_are_remembered() {
    for (slots, remembered) in [(0, 0), (1, 1), (2, 2), (3, 2), (8, 2)] {
        let mut end = TestResponder::with(2);
        for number in 0..3 {
            assert_eq!(end.take(fetch_add(number, BASE), &[]), Outcome::Accepted);
            end.answers();
        }
        end.responder.replace_slots(vec![ResponseSlot::new(); slots]);
        let all: Vec<_> = (0..3).filter(|number| is_remembered(&mut end, *number)).collect();
        assert!(all.iter().copied().eq(3 - remembered..3), "{slots} slots: {all:?}");
    }
}

#[test]
fn added_slots_take_more_reads_and_keep_their_order() {
    let mut end = TestResponder::with(2);
    for number in 0..2 {
        assert_eq!(end.take(read(number, 0, 1), &[]), Outcome::Accepted);
    }
    end.responder.replace_slots(vec![ResponseSlot::new(); 4]);
    for number in 2..4 {
        assert_eq!(end.take(read(number, 0, 1), &[]), Outcome::Accepted);
    }
    let numbers: Vec<_> = end.answers().iter().map(|answer| answer.1).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    assert!(!end.responder.has_response());
}
