use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

use super::{Limits, Nature, fail, run};
use crate::sync::{Condvar, Mutex};
use crate::{thread, time};

const MINUTE: Duration = Duration::from_secs(60);

fn reports<T: Send + 'static>(
    seed: u64,
    program: fn() -> T,
) -> (super::Report, Result<T, super::Failure>) {
    run(seed, Nature::default(), Limits::default(), program)
}

/// Two threads that count under a lock, one by reading and writing in two steps.
fn lost_update() -> u64 {
    let count = Arc::new(AtomicU64::new(0));
    let add = |count: Arc<AtomicU64>| {
        move || {
            let seen = count.load(Ordering::Relaxed);
            crate::point();
            count.store(seen + 1, Ordering::Relaxed);
        }
    };
    let other = thread::spawn("other", add(Arc::clone(&count))).unwrap();
    add(Arc::clone(&count))();
    other.join().unwrap();
    count.load(Ordering::Relaxed)
}

#[test]
fn a_seed_repeats_and_seeds_differ() {
    let results: Vec<_> = (0..40).map(|seed| reports(seed, lost_update)).collect();
    for (seed, (report, value)) in (0..).zip(&results) {
        let (again, same) = reports(seed, lost_update);
        assert_eq!((again.hash, same), (report.hash, value.clone()));
    }
    let is_lost = |(_, value): &(_, Result<u64, _>)| *value == Ok(1);
    assert!(results.iter().any(is_lost) && !results.iter().all(is_lost));
}

#[test]
fn sleeping_takes_no_time_and_deadlines_come_in_order() {
    let (report, slept) = reports(1, || {
        let start = time::now();
        let short = thread::spawn("short", move || {
            time::sleep(MINUTE);
            time::since(start)
        });
        time::sleep(2 * MINUTE);
        (short.unwrap().join().unwrap(), time::since(start))
    });
    let (short, long) = slept.unwrap();
    assert!(MINUTE <= short && short < 2 * MINUTE && 2 * MINUTE <= long);
    assert!(report.time >= 2 * MINUTE);
}

#[test]
fn polling_until_a_deadline_ends() {
    let (report, polls) = reports(1, || {
        let end = time::now() + MINUTE;
        let mut polls = 0;
        while time::now() < end {
            (0..50).for_each(|_| thread::spin_loop());
            polls += 1;
        }
        polls
    });
    assert!(polls.unwrap() > 20 && report.steps < 1_000_000, "{report:?}");
}

#[test]
fn two_locks_in_two_orders_are_found() {
    let found = (0..100).filter(|seed| {
        let (_, done) = reports(*seed, || {
            let locks = Arc::new((Mutex::new(()), Mutex::new(())));
            let other = Arc::clone(&locks);
            let thread = thread::spawn("other", move || {
                let _first = other.1.lock();
                let _second = other.0.lock();
            });
            {
                let _first = locks.0.lock();
                let _second = locks.1.lock();
            }
            thread.unwrap().join().unwrap();
        });
        done.is_err_and(|failure| failure.reason.contains("every thread waits"))
    });
    let found = found.count();
    assert!((1..100).contains(&found), "{found}");
}

#[test]
fn a_missing_notification_is_found_and_a_sent_one_suffices() {
    let wait = |notifies: bool| {
        move || {
            let shared = Arc::new((Mutex::new(false), Condvar::new()));
            let other = Arc::clone(&shared);
            let thread = thread::spawn("waker", move || {
                *other.0.lock() = true;
                if notifies {
                    other.1.notify_all();
                }
            });
            let mut is_there = shared.0.lock();
            while !*is_there {
                shared.1.wait(&mut is_there);
            }
            drop(is_there);
            thread.unwrap().join().unwrap();
        }
    };
    let failures = |notifies| {
        let limits = Limits::default();
        (0..50)
            .filter(move |seed| run(*seed, Nature::default(), limits, wait(notifies)).1.is_err())
            .count()
    };
    assert_eq!(failures(true), 0);
    assert!(failures(false) > 0);
}

#[test]
fn descriptors_wake_those_that_wait_for_them() {
    for seed in 0..20 {
        let (_, waited) = reports(seed, || {
            let fd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
            let other = Arc::clone(&fd);
            let thread = thread::spawn("writer", move || {
                time::sleep(MINUTE);
                rustix::io::write(&*other, &1_u64.to_ne_bytes()).unwrap();
            });
            let start = time::now();
            let mut fds = [PollFd::new(&*fd, PollFlags::IN)];
            let none = crate::fd::poll(&mut fds, Some(start + MINUTE / 2)).unwrap();
            let one = crate::fd::poll(&mut fds, None).unwrap();
            thread.unwrap().join().unwrap();
            (none, one, time::since(start))
        });
        let (none, one, time) = waited.unwrap();
        assert_eq!((none, one), (0, 1));
        assert!(time >= MINUTE);
    }
}

#[test]
fn panics_failures_and_threads_that_stay_fail_the_world() {
    let reason = |program: fn()| reports(1, program).1.unwrap_err().reason;
    assert!(reason(|| panic!("no good")).contains("no good"));
    assert!(reason(|| fail("a promise was broken")).contains("a promise was broken"));
    assert!(
        reason(|| drop(thread::spawn("stays", || loop {
            time::sleep(MINUTE)
        })))
        .contains("no end")
    );
    assert!(
        reason(|| loop {
            thread::spin_loop()
        })
        .contains("no end")
    );
}

#[test]
fn parking_ends_by_a_token_or_the_time() {
    for seed in 0..20 {
        let (_, done) = reports(seed, || {
            let me = thread::current();
            let waker = thread::spawn("waker", move || me.unpark()).unwrap();
            thread::park_timeout(60 * MINUTE / 2);
            let woken = time::monotonic_ns();
            waker.join().unwrap();
            thread::park_timeout(MINUTE);
            (woken, time::monotonic_ns())
        });
        let (woken, timed) = done.unwrap();
        assert!(woken < MINUTE.as_nanos() as u64 && timed >= MINUTE.as_nanos() as u64);
    }
}

#[test]
fn scoped_threads_end_in_the_scope() {
    let (_, sum) = reports(3, || {
        let numbers = [1, 2, 3];
        thread::scope(|scope| {
            let parts: Vec<_> =
                numbers.iter().map(|n| scope.spawn(move || 10 * n).unwrap()).collect();
            scope.spawn(|| time::sleep(MINUTE)).unwrap();
            parts.into_iter().map(|part| part.join().unwrap()).sum::<i32>()
        })
    });
    assert_eq!(sum, Ok(60));
}

#[test]
fn a_wait_is_interrupted_and_a_park_ends_early_where_nature_says_so() {
    for (spurious_one_in, is_expected) in [(0, false), (1, true)] {
        let nature = Nature { spurious_one_in, ..Nature::default() };
        let (_, seen) = run(1, nature, Limits::default(), || {
            let start = time::now();
            thread::park_timeout(MINUTE);
            let is_early = time::since(start) < MINUTE;
            let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            let mut polled = [PollFd::new(&fd, PollFlags::IN)];
            let waited = crate::fd::poll(&mut polled, Some(time::now() + MINUTE));
            (is_early, waited)
        });
        let waited = if is_expected { Err(rustix::io::Errno::INTR) } else { Ok(0) };
        assert_eq!(seen, Ok((is_expected, waited)));
    }
}

/// (`cargo xtask simulate` prints how many of them a second has.)
#[test]
fn handing_over_takes_one_step() {
    const TIMES: u64 = 1_000;
    let nature = Nature { switch_one_in: 1, ..Nature::default() };
    let (report, ended) = run(1, nature, Limits::default(), || {
        let other = thread::spawn("other", || (0..TIMES).for_each(|_| thread::yield_now()));
        (0..TIMES).for_each(|_| thread::yield_now());
        other.unwrap().join().unwrap();
    });
    ended.unwrap();
    // A few are those of starting and joining.
    assert!((2 * TIMES..2 * TIMES + 100).contains(&report.steps), "{} steps", report.steps);
}

/// Runs a program where each thread has a processor, and returns the nanoseconds that it says.
fn with_own_processors(program: fn() -> u128) -> u128 {
    let nature = Nature { own_processors: true, ..Nature::default() };
    run(1, nature, Limits::default(), program).1.unwrap()
}

/// The time at which a thread that polls a word finds it changed, by a thread that changes it after 5 µs and `notifies`.
fn found_after(watches: bool, notifies: bool, until: Option<Duration>) -> u128 {
    let (word, began) = (Arc::new(AtomicU64::new(0)), time::now());
    let other = Arc::clone(&word);
    let change = move || {
        time::sleep(Duration::from_micros(5));
        other.store(1, Ordering::Relaxed);
        if notifies {
            crate::notify_changed(&*other, 8);
        }
    };
    let changer = thread::spawn("changer", change).unwrap();
    let mut looks = 0;
    loop {
        if watches {
            crate::watch(&*word);
        }
        if word.load(Ordering::Relaxed) == 1 {
            break;
        }
        looks += 1;
        thread::yield_until(until.map(|time| began + looks * time));
    }
    let found = time::since(began).as_nanos();
    changer.join().unwrap();
    found
}

#[test]
fn a_polling_thread_sleeps_until_its_watched_word_changes() {
    let is_near = |found: u128, ns: u128| (ns..ns + 200).contains(&found);
    let notified = with_own_processors(|| found_after(true, true, None));
    assert!(is_near(notified, 5_000), "{notified}");
    // Nothing tells of the change.
    let missed = with_own_processors(|| found_after(true, false, None));
    assert!(is_near(missed, 20_000), "{missed}");
    let limited = with_own_processors(|| found_after(true, false, Some(Duration::from_micros(7))));
    assert!(is_near(limited, 7_000), "{limited}");
    // One that watches nothing polls on.
    let polled = with_own_processors(|| found_after(false, true, None));
    assert!(is_near(polled, 5_000), "{polled}");
}
