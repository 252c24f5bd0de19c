use super::*;

/// Round trips of these times, one after the other.
fn measured(times_ns: impl IntoIterator<Item = u64>) -> RttEstimator {
    let mut round_trip = RttEstimator::default();
    for took_ns in times_ns {
        round_trip.on_send(7, 1_000);
        round_trip.on_progress(8, 1_000 + took_ns);
    }
    round_trip
}

#[test]
fn what_waits_in_a_queue_is_what_makes_round_trips_longer() {
    assert_eq!(RttEstimator::default().without_queue(100), 100);
    assert_eq!(measured([40_000]).without_queue(100), 100);
    // 40 and a quarter, and 30.
    let long = measured([40_000].into_iter().chain([160_000; 200]));
    assert!((49..=51).contains(&long.without_queue(100)), "{long:?}");
    assert_eq!(measured([40_000].into_iter().chain([79_000; 200])).without_queue(100), 100);
}

#[test]
fn a_path_that_becomes_longer_is_no_queue_for_ever() {
    let longer = measured([40_000].into_iter().chain([400_000; 30_000]));
    assert_eq!(longer.without_queue(100), 100);
    let early = measured([40_000].into_iter().chain([400_000; 1_000]));
    assert!(early.without_queue(100) < 30, "{early:?}");
}
