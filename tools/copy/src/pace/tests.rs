use super::*;

const MS: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(100);

/// A pace of `runners` receivers, and when it began.
fn pace(runners: usize) -> (Pace, Instant) {
    let (mut pace, start) = (Pace::new(LONGEST), Instant::now());
    (0..runners).for_each(|number| assert_eq!(pace.join(start), number));
    (pace, start)
}

/// Waits for others for at most `most`, if `who` has to; returns the time that was waited.
fn wait(pace: &mut Pace, who: usize, oldest: At, now: Instant, most: Duration) -> Duration {
    let Some(wait) = pace.must_wait(who, oldest, now) else { return Duration::ZERO };
    let waited = wait.most.min(most);
    pace.has_waited(&wait, now + waited);
    waited
}

#[test]
fn a_stalled_receiver_falls_behind_after_the_longest_wait() {
    let (mut pace, start) = pace(3);
    pace.asks_for(0, (0, 9));
    pace.asks_for(1, (0, 5));
    assert_eq!(pace.first_needed(), Some((0, 0)));
    // Two that are ahead wait for the third, for the same time.
    let waits = [0, 1].map(|who| pace.must_wait(who, (0, 3), start).unwrap());
    for wait in waits {
        assert_eq!((&*wait.others, wait.most), (&[2][..], LONGEST));
        pace.has_waited(&wait, start + 30 * MS);
    }
    let now = start + 30 * MS;
    assert_eq!(wait(&mut pace, 0, (0, 3), now, LONGEST), 70 * MS);
    assert!(pace.must_wait(0, (0, 3), start + LONGEST + MS).is_none());
    assert_eq!(pace.first_needed(), Some((0, 5)), "nothing is kept for the third");
    assert!(!pace.is_needed_beside(1, (0, 7)) && pace.is_needed_beside(0, (0, 7)));
    pace.has_come_to(2, (0, 1), false);
    assert!(!pace.is_needed_beside(1, (0, 7)), "it is still behind");
    pace.has_come_to(2, (0, 6), false);
    assert!(pace.is_needed_beside(1, (0, 7)), "it has caught up");
}

/// However often a receiver is a little late, the others lose only a part of their time.
#[test]
fn a_slow_receiver_costs_others_a_part_of_their_time() {
    let (mut pace, start) = pace(2);
    let (mut now, mut waited, mut at) = (start, Duration::ZERO, 0);
    while now < start + 1000 * LONGEST {
        pace.asks_for(0, (0, at + 1));
        pace.asks_for(1, (0, at));
        pace.has_come_to(1, (0, at), true);
        let time = wait(&mut pace, 0, (0, at), now, 3 * MS);
        (waited, at) = (waited + time, at + 1);
        // It takes a while until there is something to wait for again.
        now += time + MS;
    }
    let bound = LONGEST + (now - start) / PART;
    assert!(waited <= bound && waited > bound / 2, "{waited:?} of {:?}", now - start);
}

#[test]
fn a_receiver_that_leaves_needs_no_more_pieces() {
    let (mut pace, start) = pace(3);
    pace.asks_for(0, (1, 0));
    for number in [1, 2] {
        pace.asks_for(number, (0, number as u64));
    }
    wait(&mut pace, 0, (0, 5), start, LONGEST);
    assert!(pace.must_wait(0, (0, 5), start + LONGEST + MS).is_none());
    assert_eq!(pace.first_needed(), Some((1, 0)));
    pace.leave(0);
    assert_eq!(pace.first_needed(), Some((0, 1)));
    assert!(pace.is_needed_beside(2, (0, 2)), "one reads for both");
    pace.leave(1);
    pace.leave(2);
    assert_eq!(pace.first_needed(), None);
}
