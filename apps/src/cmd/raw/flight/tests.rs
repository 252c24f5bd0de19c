use super::*;

const TICK: Duration = Duration::from_millis(1);

fn flight(window: u32, sent: u64) -> (Flight, Instant) {
    let (mut flight, start) = (Flight::new(window), Instant::now());
    (0..sent).for_each(|i| flight.depart(start + TICK * i as u32));
    (flight, start)
}

#[test]
fn a_reliable_transport_answers_the_oldest_first() {
    let (mut flight, start) = flight(4, 4);
    assert!(!flight.has_room());
    for i in 0..4 {
        assert_eq!(flight.arrive(), Some(start + TICK * i));
    }
    assert_eq!((flight.arrive(), flight.faults()), (None, FaultCounts::default()));
    assert!(flight.has_room() && !flight.is_waiting());
}

#[test]
fn an_answer_that_was_overtaken_is_counted_and_no_loss() {
    let (mut flight, start) = flight(4, 3);
    for number in [1, 0, 2] {
        let left = flight.arrive_out_of_order(number);
        assert_eq!(left, Some(start + TICK * number as u32));
    }
    assert_eq!(flight.faults(), FaultCounts { reordered: 1, ..FaultCounts::default() });
    assert_eq!(flight.awaited(), 3);
}

#[test]
fn what_is_given_up_is_lost_and_its_answer_late() {
    let (mut flight, start) = flight(4, 4);
    assert!(flight.arrive_out_of_order(2).is_some());
    assert_eq!(flight.give_up(start + 5 * TICK, 3 * TICK), 2, "0 and 1 are old");
    assert_eq!(flight.awaited(), 3, "2 was answered");
    assert_eq!(flight.arrive_out_of_order(1), None);
    assert_eq!(flight.arrive_out_of_order(2), None, "a repetition");
    assert_eq!(flight.faults(), FaultCounts { lost: 2, reordered: 0, late: 2 });
    assert!(flight.has_room() && flight.is_waiting());
}

#[test]
fn numbers_are_known_by_their_low_bits() {
    let (mut flight, start) = flight(2, 0);
    assert_eq!(flight.number(0), None, "nothing has been sent");
    for sent in 0..(1 << NUMBER_BITS) + 3 {
        flight.depart(start);
        assert!(flight.arrive().is_some());
        if sent > (1 << NUMBER_BITS) - 3 {
            let low = sent as u32 & ((1 << NUMBER_BITS) - 1);
            assert_eq!(flight.number(low), Some(sent));
        }
    }
}

#[test]
fn a_stream_with_every_fault_is_counted() {
    let mut seen = SeenWindow::new();
    let fates: Vec<bool> = [0, 1, 3, 2, 3, 5].into_iter().map(|n| seen.see(n)).collect();
    assert_eq!(fates, [true, true, true, true, false, true]);
    assert_eq!((seen.unique, seen.reordered, seen.repeated), (5, 1, 1));
    // A gap that is longer than the memory of it.
    assert!(seen.see(100_000) && !seen.see(5) && !seen.see(100_000) && seen.see(99_999));
    assert_eq!((seen.unique, seen.reordered, seen.repeated), (7, 2, 3));
}

#[test]
fn skipped_numbers_of_a_lap_ago_are_not_taken_for_seen() {
    let mut seen = SeenWindow::new();
    (0..SeenWindow::SPAN).for_each(|n| assert!(seen.see(n)));
    assert!(seen.see(SeenWindow::SPAN + 70));
    assert!((0..70).all(|n| seen.see(SeenWindow::SPAN + n)));
    assert_eq!((seen.reordered, seen.repeated), (70, 0));
}

#[test]
fn the_nearest_number_is_meant() {
    let mut seen = SeenWindow::new();
    assert_eq!((seen.number(0), seen.number(5)), (0, 5));
    let top = (1 << NUMBER_BITS) - 1;
    seen.see(u64::from(top));
    assert_eq!(seen.number(0), 1 << NUMBER_BITS);
    assert_eq!(seen.number(top), u64::from(top));
    assert_eq!(seen.number(2), (1 << NUMBER_BITS) + 2);
}
