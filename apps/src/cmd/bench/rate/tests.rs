use super::*;

#[test]
fn finds_the_limit_from_below() {
    for limit in [1.5e3, 1e5, 3.3e6, 9.9e6] {
        let found = search(1e7, |rate| Ok(rate <= limit)).unwrap();
        assert!(found <= limit && found * PRECISION >= limit, "{found} for {limit}");
    }
}

fn lost(status: WcStatus) -> anyhow::Error {
    let cause = rdma_conn::verbs_safe::WcError { status, vendor_err: 0, qp_num: 1 };
    anyhow::Error::from(SendError::Ended(CloseReason::from(cause))).context("what to do")
}

#[test]
fn a_rate_that_was_found_and_is_too_high_after_all_is_lowered() {
    let too_fast = |limit: f64| {
        move |rate| if rate > limit { Err(lost(WcStatus::RNR_RETRY_EXC)) } else { Ok(()) }
    };
    let (rate, ()) = descend(1e6, too_fast(4e5)).unwrap();
    assert!((4e5 * STEP_DOWN..=4e5).contains(&rate), "{rate}");
    assert_eq!(descend(1e6, |_| Ok(())).unwrap().0, 1e6);
    assert!(descend(1e6, too_fast(1.0)).is_err(), "it ends");
    let mut runs = 0;
    let other = descend(1e6, |_| {
        runs += 1;
        Err::<(), _>(lost(WcStatus::RETRY_EXC))
    });
    assert!(other.is_err() && runs == 1, "that is no matter of speed");
}

#[test]
fn a_rate_that_was_not_reached_is_not_reported() {
    assert_eq!([held(1e7, 3e5), held(2e5, 2.01e5)], [3e5, 2e5]);
}

#[test]
fn retries_that_do_not_last_are_a_rate_that_is_too_high() {
    assert!(fell_behind(&lost(WcStatus::RNR_RETRY_EXC)));
    assert!(!fell_behind(&lost(WcStatus::RETRY_EXC)), "that is no matter of speed");
    assert!(!fell_behind(&SendError::TimedOut { unflushed: 0 }.into()));
}

#[test]
fn a_receiver_that_is_never_ready_is_an_error() {
    assert!(search(1e7, |_| Ok(false)).is_err());
}
