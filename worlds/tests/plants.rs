//! Faults that are planted into the code: each is found within so many seeds, and its case shrinks.

use host::plant::Plant;
use host::world::Limits;
use worlds::case::{Case, Connection, Place};
use worlds::play::play_with;
use worlds::shrink::shrink;

/// Seeds within which a fault is found.
const SEEDS: u64 = 1000;
/// Steps of a case that was made smaller.
const STEPS: usize = 40;

fn finds(plant: Plant, connection: Option<Connection>, place: Option<Place>) {
    let limits = Limits { events: 0, ..Limits::default() };
    let fails = |case: &Case| play_with(case, limits, Some(plant)).1.is_err();
    let cases = (0..SEEDS).map(|seed| Case::draw(seed, connection, place));
    let (found, case) =
        cases.enumerate().find(|(_, case)| fails(case)).expect("a seed that finds it");
    let small = shrink(&case, fails);
    let failure = play_with(&small, limits, Some(plant)).1.expect_err("it fails");
    println!(
        "{plant:?}: seed {found}, {} of {} steps: {}",
        small.steps(),
        case.steps(),
        failure.reason
    );
    assert!(small.steps() <= STEPS, "{small}");
    assert!(play_with(&small, limits, None).1.is_ok(), "it fails without the fault: {small}");
}

macro_rules! each_is_found {
    ($($name:ident: $plant:ident, $connection:expr, $place:expr;)+) => {
        $(#[test]
        fn $name() {
            finds(Plant::$plant, $connection, $place);
        })+
    };
}

each_is_found! {
    a_credit_too_many: ExtraCredit, Some(Connection::SendRecv), None;
    a_free_twice: DoubleFree, Some(Connection::SendRecv), None;
    a_wake_up_left_out: LostWakeup, None, None;
    a_tail_published_before_its_bytes: EarlyTail, Some(Connection::BufferedRead), None;
    an_acknowledgement_early: EarlyAck, Some(Connection::DirectRead), Some(Place::Faulty);
    a_probe_never_sent: SkippedProbe, Some(Connection::SendRecv), Some(Place::Faulty);
    a_goodbye_lost: LostGoodbye, Some(Connection::SharedWrite), None;
    a_deadline_ignored: IgnoredDeadline, None, None;
    an_order_of_two_locks: LockOrder, None, None;
    a_leaked_queue_pair: LeakedQueuePair, None, None;
    a_read_beyond_the_ring: ReadBeyondRing, Some(Connection::BufferedRead), None;
}
