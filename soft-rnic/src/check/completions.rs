//! Completions that a completion queue could get: those of what is posted, and those that were
//! not polled.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;

use super::checker::Checker;
use super::report::{ReportKind, number};

/// Completions that one completion queue could get.
pub(crate) struct CqAccount {
    checker: Arc<Checker>,
    pub(crate) number: u32,
    /// Entries that it has room for.
    capacity: AtomicU32,
    /// Signalled requests, and receive requests, also those of a shared queue, until their
    /// completion is polled. One number: a receive request that a message takes while it is read is
    /// counted once.
    outstanding: AtomicU32,
    is_said: AtomicBool,
}

// Relaxed, in all of this file: counts that guard no memory.
impl CqAccount {
    pub(crate) fn new(checker: &Arc<Checker>, capacity: u32) -> CqAccount {
        CqAccount {
            checker: Arc::clone(checker),
            number: checker.next_cq(),
            capacity: AtomicU32::new(capacity),
            outstanding: AtomicU32::new(0),
            is_said: AtomicBool::new(false),
        }
    }

    pub(crate) fn resize(&self, capacity: u32) {
        self.capacity.store(capacity, Ordering::Relaxed);
        self.is_said.store(false, Ordering::Relaxed);
    }

    /// Counts `n` more completions that will arrive, or may.
    pub(crate) fn add(&self, n: u32) {
        self.outstanding.fetch_add(n, Ordering::Relaxed);
    }

    /// Counts one less: it was polled, or will not arrive.
    pub(crate) fn sub(&self) {
        self.outstanding.fetch_sub(1, Ordering::Relaxed);
    }

    /// A completion had no room, and the queue takes none any more.
    pub(crate) fn overran(&self) {
        let capacity = self.capacity.load(Ordering::Relaxed);
        self.checker.report.say(ReportKind::Overrun, || {
            format!(
                "CQ {} of {} has overrun: completions are lost, and its queue pairs fail",
                self.number,
                number(capacity.into(), "entry")
            )
        });
    }

    /// Reports, once, if there is less room than there can be completions.
    pub(crate) fn test(&self) {
        let all = self.outstanding.load(Ordering::Relaxed);
        let capacity = self.capacity.load(Ordering::Relaxed);
        if all <= capacity || self.is_said.swap(true, Ordering::Relaxed) {
            return;
        }
        self.checker.report.say(ReportKind::CouldOverflow, || {
            format!(
                "CQ {} of {} could overflow: {all} completions can be outstanding",
                self.number,
                number(capacity.into(), "entry")
            )
        });
    }
}
