//! Threads that wait for another process's memory, and those that others rely on.
//!
//! Who posts an operation on memory that is attached to holds the send queue meanwhile, and the
//! other process may let it wait there (see `errand`). Whoever serves all processes, or all queue
//! pairs, goes on without that queue, and never does such a thing itself: it leaves that to
//! somebody who holds nothing up.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crate::after::After;
use crate::lock::Guard;
use crate::qp::{AWAY_NS, Qp};
use crate::sq::{Sq, Wait};

/// Whether the holder of a queue pair's send queue is away.
#[derive(Debug, Default)]
pub(crate) struct Away {
    is: AtomicBool,
    /// Somebody has gone on without it.
    missed: AtomicBool,
}

thread_local! {
    /// Others rely on this thread.
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn serves() -> bool {
    SERVES.get()
}

/// While it lives, others rely on this thread.
pub(crate) struct Serving(bool);

impl Serving {
    pub(crate) fn begin() -> Serving {
        Serving(SERVES.replace(true))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        SERVES.set(self.0);
    }
}

/// While it lives, the holder of the send queue is away.
pub(super) struct Gone<'q>(&'q Qp);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        let Away { is, missed } = &self.0.away;
        // SeqCst: either we see who has missed us, or he sees that we are back.
        is.store(false, Ordering::SeqCst);
        if missed.load(Ordering::SeqCst)
            && missed.swap(false, Ordering::SeqCst)
            && let Some(neighbours) = &self.0.pd.context.device.neighbours
        {
            neighbours.poke();
        }
    }
}

impl Qp {
    /// The holder of the send queue is going to wait for another process's memory.
    pub(super) fn go_away(&self) -> Gone<'_> {
        self.away.is.store(true, Ordering::Relaxed);
        Gone(self)
    }

    #[cfg(test)]
    pub(super) fn is_away(&self) -> bool {
        self.away.is.load(Ordering::Relaxed)
    }

    /// The send queue, unless its holder is away: then the helper looks again when he is back.
    pub(crate) fn sq_unless_away(&self) -> Option<Guard<'_, Sq>> {
        self.sq.lock_unless(|| {
            if !self.away.is.load(Ordering::Relaxed) {
                return false;
            }
            self.away.missed.store(true, Ordering::SeqCst);
            // SeqCst: as in `Gone`.
            self.away.is.load(Ordering::SeqCst)
        })
    }

    /// Goes on with what is pending, which waits for memory of another process: on a thread of
    /// its own if others rely on this one.
    #[cold]
    pub(crate) fn go_on_alone(self: &Arc<Qp>, after: &mut After) {
        if !serves() {
            self.run_pending(&mut self.sq.lock(), after, false);
            return;
        }
        let qp = Arc::clone(self);
        let run = move || {
            let mut after = After::default();
            qp.run_pending(&mut qp.sq.lock(), &mut after, false);
            after.run();
        };
        if std::thread::Builder::new().name("soft-rnic-attach".into()).spawn(run).is_err() {
            self.go_on_later();
        }
    }

    /// Without a thread: the timer tries again.
    #[cold]
    fn go_on_later(&self) {
        let Some(mut sq) = self.sq_unless_away() else { return };
        if sq.requester.waits.is_none() {
            let token = self.pd.context.device.arm(self.num, Some(AWAY_NS));
            sq.requester.waits = Some((Wait::Delay, token));
        }
    }
}
