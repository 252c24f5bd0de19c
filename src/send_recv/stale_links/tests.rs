use std::cell::Cell;
use std::rc::Rc;

use super::*;

/// State of a link that a test sees.
#[derive(Debug, Default)]
struct Seen {
    says_so: Cell<bool>,
    gave_back: Cell<bool>,
    is_gone: Cell<bool>,
}

struct Fake(Rc<Seen>);

impl DrainingLink for Fake {
    fn give_share_back(&mut self) {
        self.0.gave_back.set(true);
    }

    fn keeps_no_buffer(&self) -> bool {
        self.0.says_so.get()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.0.is_gone.set(true);
    }
}

const LINGER: Duration = Duration::from_secs(1000);

fn add(stale: &mut StaleLinks<Fake>) -> Rc<Seen> {
    let seen = Rc::new(Seen::default());
    stale.add(Fake(Rc::clone(&seen)));
    seen
}

#[test]
fn a_link_goes_after_its_device_is_done_and_its_queue_empty() {
    let (mut stale, now) = (StaleLinks::new(4, LINGER), host::time::now());
    let [early, late] = [(); 2].map(|()| add(&mut stale));
    early.says_so.set(true);
    stale.let_go(now);
    assert!(!early.is_gone.get(), "what came before it was said is polled first");
    assert!(!early.gave_back.get() && !late.gave_back.get(), "a buffer may still be out");
    stale.let_go(now);
    assert!(early.is_gone.get() && early.gave_back.get());
    assert!(!late.is_gone.get() && !late.gave_back.get() && stale.wait_for_device());
    late.says_so.set(true);
    stale.let_go(now);
    assert!(!stale.wait_for_device());
    stale.let_go(now);
    assert!(late.is_gone.get() && stale.is_empty());
    assert_eq!(stale.unaccounted(), 0);
}

#[test]
fn a_link_of_a_silent_device_goes_in_time_and_is_counted() {
    let (mut stale, now) = (StaleLinks::new(4, LINGER), host::time::now());
    let silent = add(&mut stale);
    stale.let_go(now);
    assert!(!silent.gave_back.get() && !silent.is_gone.get());
    // However long the linger is.
    stale.let_go(now + 2 * SILENT_DEVICE);
    assert!(silent.gave_back.get() && silent.is_gone.get() && stale.is_empty());
    assert_eq!(stale.unaccounted(), 1);
}

#[test]
fn stale_links_beyond_the_limit_go_and_are_counted() {
    let (mut stale, now) = (StaleLinks::new(2, LINGER), host::time::now());
    let all = [(); 4].map(|()| add(&mut stale));
    assert_eq!(all.each_ref().map(|seen| seen.is_gone.get()), [true, true, false, false]);
    assert_eq!(stale.unaccounted(), 2);
    all[2].says_so.set(true);
    stale.let_go(now);
    assert!(!stale.has_room());
    add(&mut stale);
    assert_eq!(stale.unaccounted(), 3, "what it completed last was not polled");
    all[3].says_so.set(true);
    (0..2).for_each(|_| stale.let_go(now));
    assert!(stale.has_room());
    add(&mut stale);
    assert_eq!(stale.unaccounted(), 3, "there was room");
}
