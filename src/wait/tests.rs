use super::*;

const TICK: Duration = Duration::from_millis(1);

fn idle(strategy: WaitStrategy, timeout: Option<Duration>) -> Idle {
    let deadline = timeout.map_or(Deadline::NEVER, Deadline::after);
    Idle::new(strategy, deadline, 10 * TICK)
}

#[test]
fn polls_before_a_yield_adapt_to_a_shared_processor() {
    let polls = Idle::POLLS_PER_LOOK;
    let found = |polls: u32| Yield::for_duration(2 * Yield::SWITCH).next_polls(polls, true);
    assert_eq!([polls, 16, 4, 1].map(found), [16, 4, 1, 1]);
    let alone = |polls: u32| Yield::for_duration(Yield::SWITCH / 2).next_polls(polls, true);
    assert_eq!([1, 2, 32, polls].map(alone), [2, 4, polls, polls]);
    // A switch after which nothing was there proves nothing.
    assert_eq!(Yield::for_duration(2 * Yield::SWITCH).next_polls(16, false), 16);
    // A computation that has nothing to do with the wait does not shorten it.
    assert_eq!(Yield::for_duration(2 * Yield::SLICE).next_polls(1, true), polls);
}

#[test]
fn long_spins_stay_while_useful_and_are_retried_rarely() {
    let slept = |spin: SpinTime| spin.after(spin.now(), true);
    let sleeps_until_long = |mut spin: SpinTime| {
        let mut sleeps = 0;
        while !spin.is_long {
            (spin, sleeps) = (slept(spin), sleeps + 1);
        }
        (spin, sleeps)
    };
    let (mut spin, sleeps) = sleeps_until_long(SpinTime::new());
    assert_eq!((sleeps, spin.now()), (4, SpinTime::LONG));
    // The spin stays long as long as it helps, and short waits do not matter.
    for time in [Duration::ZERO, 2 * SpinTime::SHORT, SpinTime::LONG] {
        spin = spin.after(time, false);
        assert_eq!(spin.now(), SpinTime::LONG);
    }
    let mut all = Vec::new();
    for _ in 0..13 {
        let (next, sleeps) = sleeps_until_long(slept(spin));
        spin = next;
        all.push(sleeps);
    }
    assert_eq!(all[..3], [4, 8, 16]);
    assert_eq!(all[12], *SpinTime::BACKOFF.end());
    // After a spin that saved a sleep, the next long spin is sooner.
    let spin = slept(spin.after(2 * SpinTime::SHORT, false));
    assert_eq!(sleeps_until_long(spin).1, *SpinTime::BACKOFF.end() / 2);
}

#[test]
fn a_thread_learns_from_the_yield_that_ended_a_wait() {
    let polls_after = |yielded, ends: bool| {
        POLLS_PER_YIELD.set(Idle::POLLS_PER_LOOK);
        let mut idle = idle(WaitStrategy::Spin, None);
        idle.yielded = Some(yielded);
        if !ends {
            idle.step();
        }
        drop(idle);
        POLLS_PER_YIELD.replace(Idle::POLLS_PER_LOOK)
    };
    assert_eq!(polls_after(Yield::Switched, true), Idle::POLLS_PER_LOOK / 4);
    assert_eq!(polls_after(Yield::Switched, false), Idle::POLLS_PER_LOOK);
    assert_eq!(polls_after(Yield::Alone, true), Idle::POLLS_PER_LOOK);
}

#[test]
fn a_timeout_ends_every_strategy() {
    for strategy in [WaitStrategy::Spin, WaitStrategy::Block, WaitStrategy::Adaptive] {
        let mut idle = idle(strategy, Some(TICK));
        assert_eq!(idle.look(host::time::now() + 2 * TICK), WaitStep::TimedOut, "{strategy:?}");
    }
}

#[test]
fn a_blocking_wait_sleeps_at_once_and_never_past_its_deadline() {
    let limit = 60_000 * TICK; // longer than this thread may be without a processor
    let mut idle = Idle::new(WaitStrategy::Block, Deadline::after(limit), Duration::MAX);
    match idle.step() {
        WaitStep::Sleep(time) => assert!(time <= limit),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_silent_peer_is_probed_once_per_interval() {
    let mut idle = idle(WaitStrategy::Spin, None);
    let start = host::time::now();
    assert_eq!(idle.look(start), WaitStep::Again);
    assert_eq!(idle.look(start + 9 * TICK), WaitStep::Again);
    assert_eq!(idle.look(start + 10 * TICK), WaitStep::Probe);
    assert_eq!(idle.look(start + 11 * TICK), WaitStep::Again);
    assert_eq!(idle.look(start + 20 * TICK), WaitStep::Probe);
    idle.reset();
    assert_eq!(idle.look(start + 21 * TICK), WaitStep::Again);
}

/// An event that a sleep has missed may have come when it began, and the peer may have gone since.
#[test]
fn an_event_found_after_a_silent_interval_does_not_put_the_probe_off() {
    let mut idle = idle(WaitStrategy::Block, None);
    let before = host::time::now().checked_sub(20 * TICK).unwrap();
    assert_eq!(idle.look(before), WaitStep::Sleep(10 * TICK));
    assert_eq!([idle.after(1), idle.after(1)], [WaitStep::Again; 2]);
    assert_eq!(idle.look(host::time::now()), WaitStep::Probe);
    // One that is found in time does.
    assert!(matches!(idle.look(host::time::now()), WaitStep::Sleep(_)));
    assert_eq!(idle.after(1), WaitStep::Again);
    assert!(matches!(idle.look(host::time::now()), WaitStep::Sleep(_)));
}

#[test]
fn events_that_do_not_end_the_wait_do_not_prolong_it() {
    let mut late = idle(WaitStrategy::Spin, Some(Duration::ZERO));
    let looks = (1..).find(|_| late.after(1) == WaitStep::TimedOut);
    assert_eq!(looks, Some(Idle::FOUND_PER_LOOK + 1), "what the last look found is taken first");
    let mut early = idle(WaitStrategy::Spin, None);
    assert!((0..10 * Idle::FOUND_PER_LOOK).all(|_| early.after(1) == WaitStep::Again));
}

#[test]
fn a_thread_that_looks_more_rarely_than_it_probes_times_out() {
    let mut idle = idle(WaitStrategy::Spin, Some(15 * TICK));
    let start = Instant::now();
    let looks: Vec<WaitStep> = (0..4).map(|n| idle.look(start + n * 11 * TICK)).collect();
    assert_eq!(looks, [WaitStep::Again, WaitStep::Probe, WaitStep::TimedOut, WaitStep::TimedOut]);
}

#[test]
fn short_waits_add_up_to_a_keepalive_interval() {
    let (start, mut silence, mut probes) = (host::time::now(), Silence::default(), 0);
    for wait in 0..35 {
        let mut idle = idle(WaitStrategy::Spin, Some(Duration::ZERO)).resume(&mut silence);
        let now = start + wait * TICK;
        while idle.look(now) == WaitStep::Probe {
            probes += 1;
        }
        silence = idle.silence();
    }
    assert_eq!(probes, 3);
}

#[test]
fn a_keepalive_of_no_time_leaves_time_to_end() {
    let deadline = Deadline::after(Duration::ZERO);
    let mut idle = Idle::new(WaitStrategy::Spin, deadline, Duration::ZERO);
    assert_eq!(idle.look(host::time::now() + TICK), WaitStep::TimedOut);
}

#[test]
fn a_keepalive_beyond_the_clock_is_none() {
    let mut idle = Idle::new(WaitStrategy::Block, Deadline::NEVER, Duration::MAX);
    assert_eq!(idle.step(), WaitStep::Sleep(Duration::MAX));
}

#[test]
fn spinning_gives_way_to_sleep_after_its_time() {
    let mut idle = idle(WaitStrategy::SpinThenBlock(2 * TICK), None);
    let start = host::time::now();
    assert_eq!(idle.look(start), WaitStep::Again);
    assert_eq!(idle.look(start + TICK), WaitStep::Again);
    assert_eq!(idle.look(start + 2 * TICK), WaitStep::Sleep(8 * TICK));
}
#[test]
fn a_wait_that_has_slept_polls_once_for_each_sleep() {
    let spin = WaitStrategy::SpinThenBlock(TICK);
    let mut idle = Idle::new(spin, Deadline::NEVER, Duration::MAX);
    let sleeps = |step| matches!(step, WaitStep::Sleep(_));
    assert_eq!(idle.look(host::time::now() - 2 * TICK), WaitStep::Again);
    assert!(sleeps(idle.look(host::time::now())));
    assert!((0..3).all(|_| sleeps(idle.step())));
    // More events may follow: it polls again.
    assert_eq!(idle.after(1), WaitStep::Again);
    assert_eq!(idle.step(), WaitStep::Again);
}

#[test]
fn a_sleep_for_a_word_is_a_quarter_of_the_wait_within_limits() {
    let mut idle = Idle::new(WaitStrategy::Block, Deadline::NEVER, Duration::MAX);
    let start = host::time::now();
    let mut after = |waited| {
        idle.look(start + waited);
        idle.word_sleep(Duration::from_secs(1))
    };
    assert_eq!(after(Duration::ZERO), POLL_SLEEP);
    assert_eq!(after(2 * TICK), TICK / 2);
    assert_eq!(after(100 * TICK), SleepBackoff::LONGEST);
    assert_eq!(idle.word_sleep(TICK / 3), TICK / 3, "never past the deadline");
}
