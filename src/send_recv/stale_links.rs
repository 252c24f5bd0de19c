//! Queue pairs of a shared pool that have ended, until their device keeps no buffer of it.
//!
//! A device takes a receive request off the shared queue when a message begins. If the
//! sender dies in the middle of it, the request completes when the queue pair is in ERR, and
//! the device says when no more completes (`QP_LAST_WQE_REACHED`). A queue pair that is
//! destroyed before that may take the buffer with it. Until then its share of the pool stays
//! its own: lent to others, the buffer would be missing, and they would see
//! receiver-not-ready.

use std::time::{Duration, Instant};

use verbs_safe::Completion;

use super::link::Link;
use crate::wait::{Deadline, SILENT_DEVICE};

/// Queue pairs that are waited for at most, besides those of all peers: the completion queue
/// has room for them. With a device that never says what it keeps, so many senders are released
/// per second ([`SILENT_DEVICE`]).
pub(crate) const MAX_STALE_LINKS: u32 = 64;

/// A link that takes no more messages: its queue pair is in ERR.
pub(crate) trait Ending {
    /// Returns its share of the pool, once the device keeps no buffer of it.
    fn give_share_back(&mut self);

    /// Reports whether its device has said that all it had taken has completed.
    fn keeps_no_buffer(&self) -> bool;
}

impl Ending for Link {
    fn give_share_back(&mut self) {
        Link::give_share_back(self);
    }

    fn keeps_no_buffer(&self) -> bool {
        Link::keeps_no_buffer(self)
    }
}

#[derive(Debug)]
struct StaleLink<L> {
    link: L,
    /// Time after which it is not waited for any longer.
    until: Deadline,
    /// The device has said that it keeps no buffer: what has completed is polled once more.
    is_told: bool,
}

/// The links that are waited for, the first one first.
#[derive(Debug)]
pub(crate) struct StaleLinks<L> {
    links: Vec<StaleLink<L>>,
    most: usize,
    linger: Duration,
    /// Links that were released before it was known that all their buffers are back.
    unaccounted: u64,
}

impl<L: Ending> StaleLinks<L> {
    pub(crate) fn new(most: u32, linger: Duration) -> StaleLinks<L> {
        StaleLinks { links: Vec::new(), most: most as usize, linger, unaccounted: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Reports whether one more can be added without releasing another one early.
    pub(crate) fn has_room(&self) -> bool {
        self.links.len() < self.most
    }

    /// Reports whether the device has still to say of some link that it keeps no buffer.
    pub(crate) fn wait_for_device(&self) -> bool {
        self.links.iter().any(|stale| !stale.is_told)
    }

    /// Links that were released before it was known that all their buffers are back: one buffer
    /// of each may be lost.
    pub(crate) fn unaccounted(&self) -> u64 {
        self.unaccounted
    }

    /// Adds a link whose queue pair was moved to ERR. Where there is no [room](Self::has_room),
    /// the first one is released, unaccounted: even if the device has said that it keeps
    /// nothing, earlier completions may not have been polled.
    pub(crate) fn add(&mut self, link: L) {
        if !self.has_room() {
            self.links.remove(0).link.give_share_back();
            self.unaccounted += 1;
        }
        self.add_last(link);
    }

    /// Adds a link after which no link joins: there is room for all that have joined.
    pub(crate) fn add_last(&mut self, link: L) {
        let until = Deadline::after(self.linger.min(SILENT_DEVICE));
        self.links.push(StaleLink { link, until, is_told: false });
    }

    /// The completion queue was empty after all of them had been added. A link goes, and its
    /// share goes back, when the queue is empty once more after the device has said that it
    /// keeps no buffer, or when that takes too long.
    pub(crate) fn let_go(&mut self, now: Instant) {
        let unaccounted = &mut self.unaccounted;
        self.links.retain_mut(|stale| {
            let is_drained = stale.is_told;
            stale.is_told |= stale.link.keeps_no_buffer();
            let goes = is_drained || !stale.is_told && stale.until.has_passed(now);
            if goes {
                *unaccounted += u64::from(!is_drained);
                stale.link.give_share_back();
            }
            !goes
        });
    }
}

impl StaleLinks<Link> {
    /// Books a completion of one of them.
    pub(crate) fn absorb(&mut self, completion: Completion<'_>) {
        let qp_num = completion.qp_num();
        if let Some(stale) = self.links.iter_mut().find(|stale| stale.link.qp_num() == qp_num) {
            stale.link.absorb(completion);
        }
    }
}

#[cfg(test)]
mod tests {
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

    impl Ending for Fake {
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
}
