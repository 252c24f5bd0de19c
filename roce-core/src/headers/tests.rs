use super::*;

/// As rdma-core's `ibv_modify_qp(3)` lists them, in milliseconds.
#[test]
fn the_times_are_those_of_the_manual() {
    for (code, ms) in [(0, 655.36), (1, 0.01), (7, 0.12), (12, 0.64), (18, 5.12), (31, 491.52)] {
        let timer = RnrTimer::new(code).unwrap();
        assert_eq!((timer.ns() as f64) / 1e6, ms, "code {code}");
    }
    // And in between, every second one is twice as long.
    let ns = |code| RnrTimer(code).ns();
    assert!((2..30).all(|code| ns(code + 2) == 2 * ns(code)));
    assert_eq!(ns(3), 3 * ns(1));
}

#[test]
fn the_shortest_timer_that_is_long_enough_is_chosen() {
    for code in 0..32 {
        let timer = RnrTimer(code);
        assert_eq!(RnrTimer::at_least_ns(timer.ns()), Some(timer));
    }
    assert_eq!(RnrTimer::at_least_ns(0), RnrTimer::new(1));
    assert_eq!(RnrTimer::at_least_ns(491_520_001), RnrTimer::new(0));
    assert_eq!(RnrTimer::at_least_ns(655_360_001), None);
}
