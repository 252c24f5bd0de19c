use super::*;

fn is_readable(wakeup: &EventfdWakeup) -> bool {
    let mut fds = [PollFd::new(&wakeup.fd, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() == 1
}

/// A waker that was chosen before the announcement was taken back, and writes after that, makes
/// the descriptor readable once.
#[test]
fn a_late_wakeup_is_taken_by_a_later_call() {
    let wakeup = EventfdWakeup::new().unwrap();
    wakeup.announce();
    assert!(wakeup.park_flag.should_wake());
    wakeup.retract();
    wakeup.announce();
    rustix::io::write(&wakeup.fd, &1u64.to_ne_bytes()).unwrap();
    assert!(is_readable(&wakeup));
    wakeup.retract();
    assert!(!is_readable(&wakeup), "it was taken");
    assert_eq!(wakeup.owed.load(Ordering::Relaxed), 0);
}

/// An event loop arms a half, and then makes a call that waits.
#[test]
fn announcing_again_or_retracting_takes_an_earlier_wakeup() {
    let wakeup = EventfdWakeup::new().unwrap();
    wakeup.announce();
    wakeup.wake();
    wakeup.announce();
    assert!(!is_readable(&wakeup), "the first one's wake-up was taken");
    wakeup.wake();
    assert!(is_readable(&wakeup));
    wakeup.retract();
    assert!(!is_readable(&wakeup));
}

#[test]
fn wakeups_are_forgotten_with_the_announcement() {
    let wakeup = EventfdWakeup::new().unwrap();
    for wakes in [0, 1, 3] {
        wakeup.announce();
        (0..wakes).for_each(|_| wakeup.wake());
        assert_eq!(is_readable(&wakeup), wakes > 0);
        wakeup.retract();
        assert!(!is_readable(&wakeup));
    }
}
