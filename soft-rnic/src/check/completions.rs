//! What could come to a completion queue: completions of what is posted, and those that were not
//! polled.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use host::sync::Mutex;

use super::checker::Checker;
use super::report::{Kind, number};

/// Of a completion queue.
pub(crate) struct Completions {
    checker: Arc<Checker>,
    pub(crate) number: u32,
    /// Entries that it has room for.
    capacity: AtomicU32,
    /// Signalled requests, and receive requests that were taken, whose completion was not polled.
    outstanding: AtomicU32,
    /// Posted receive requests of the queues that complete here.
    receives: Mutex<Vec<Weak<AtomicU32>>>,
    is_said: AtomicBool,
}

// Relaxed, in all of this file: counts that guard no memory.
impl Completions {
    pub(crate) fn new(checker: &Arc<Checker>, capacity: u32) -> Completions {
        Completions {
            checker: Arc::clone(checker),
            number: checker.next_cq(),
            capacity: AtomicU32::new(capacity),
            outstanding: AtomicU32::new(0),
            receives: Mutex::default(),
            is_said: AtomicBool::new(false),
        }
    }

    pub(crate) fn resize(&self, capacity: u32) {
        self.capacity.store(capacity, Ordering::Relaxed);
        self.is_said.store(false, Ordering::Relaxed);
    }

    /// Receive requests of a queue complete here.
    pub(crate) fn attach(&self, posted: &Arc<AtomicU32>) {
        let mut all = self.receives.lock();
        all.retain(|other| other.strong_count() > 0 && !core::ptr::eq(other.as_ptr(), &**posted));
        all.push(Arc::downgrade(posted));
    }

    /// One more completion will come, or may.
    pub(crate) fn add(&self) {
        self.outstanding.fetch_add(1, Ordering::Relaxed);
    }

    /// One was polled, or will not come.
    pub(crate) fn sub(&self) {
        self.outstanding.fetch_sub(1, Ordering::Relaxed);
    }

    /// A completion had no room, and the queue takes none any more.
    pub(crate) fn overran(&self) {
        let capacity = self.capacity.load(Ordering::Relaxed);
        self.checker.report.say(Kind::Overrun, || {
            format!(
                "CQ {} of {} has overrun: completions are lost, and its queue pairs fail",
                self.number,
                number(capacity.into(), "entry")
            )
        });
    }

    /// Reports, once, if there is less room than completions can come.
    pub(crate) fn test(&self) {
        let posted = |count: &Weak<AtomicU32>| {
            count.upgrade().map_or(0, |count| u64::from(count.load(Ordering::Relaxed)))
        };
        let receives: u64 = self.receives.lock().iter().map(posted).sum();
        let all = receives + u64::from(self.outstanding.load(Ordering::Relaxed));
        let capacity = self.capacity.load(Ordering::Relaxed);
        if all <= capacity.into() || self.is_said.swap(true, Ordering::Relaxed) {
            return;
        }
        self.checker.report.say(Kind::CouldOverflow, || {
            format!(
                "CQ {} of {} could overflow: {all} completions can be outstanding",
                self.number,
                number(capacity.into(), "entry")
            )
        });
    }
}
