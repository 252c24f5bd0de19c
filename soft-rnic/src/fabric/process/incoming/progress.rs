//! Taking received messages: by one thread at a time, for all processes.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use crate::cancellation::Uncancelled;
use crate::lock::Guard;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Device, PeerProcesses, ProgressEngine};
use crate::peers::process::barrier::{has_failed, heavy, is_asymmetric, light};
use crate::peers::process::serving::{Serving, serves};
use crate::peers::process::side::DeferredFetch;

use super::super::incoming::TakeUntil;

#[cfg(test)]
thread_local! {
    /// Number of times that this thread has made way.
    pub(in crate::fabric::process) static MADE_WAY: core::cell::Cell<u32> =
        const { core::cell::Cell::new(0) };
}

/// Yields to the thread that copies, or takes, what this one waits for.
fn make_way() {
    #[cfg(test)]
    MADE_WAY.set(MADE_WAY.get() + 1);
    host::thread::yield_now();
}

impl Device {
    /// Takes what others have sent, unless another thread is at it.
    pub(crate) fn progress_from_poll(self: &Arc<Device>) {
        let Some(peers) = &self.peers else { return };
        peers.saw_poll();
        // Threads that wait rely on those that poll for all messages.
        let until = if peers.is_waited() { TakeUntil::Empty } else { TakeUntil::LongMessage };
        self.progress_until(peers, until);
    }

    /// Takes what others have sent, for the threads that poll.
    pub(in crate::fabric::process) fn progress_of_worker(self: &Arc<Device>) {
        let Some(peers) = &self.peers else { return };
        peers.says_that_it_works(true);
        while self.progress() {}
        peers.says_that_it_works(false);
    }

    /// Takes what others have sent; returns true if there was anything.
    pub(crate) fn progress(self: &Arc<Device>) -> bool {
        let Some(peers) = &self.peers else { return false };
        self.progress_until(peers, TakeUntil::Empty)
    }

    fn progress_until(self: &Arc<Device>, peers: &PeerProcesses, mut until: TakeUntil) -> bool {
        let mut any = false;
        loop {
            host::point();
            let Some(progress) = peers.progress.try_lock() else {
                if peers.progress_thread_works() {
                    make_way();
                }
                return any;
            };
            any |= self.progress_with(peers, progress, until);
            // The other side of the barrier in `progress_or_ask_again`.
            light(is_asymmetric());
            host::point();
            if !peers.look_again.load(Ordering::Relaxed) {
                return any;
            }
            // Another thread relies on this one for all that is there.
            until = TakeUntil::Empty;
        }
    }

    /// Takes what others have sent, or lets the thread that is at it look once more; returns true
    /// if there was anything, as far as we know.
    pub(in crate::fabric::process) fn progress_or_ask_again(self: &Arc<Device>) -> bool {
        let Some(peers) = &self.peers else { return false };
        if let Some(progress) = peers.progress.try_lock() {
            let any = self.progress_with(peers, progress, TakeUntil::Empty);
            return self.progress() || any;
        }
        host::point();
        peers.look_again.store(true, Ordering::Relaxed);
        // Either we get the lock, or its holder sees that it has to look again; or neither, and
        // the progress thread looks from time to time.
        let knew = has_failed();
        if !heavy() && !knew {
            peers.wake_progress_thread();
        }
        self.progress()
    }

    fn progress_with(
        self: &Arc<Device>,
        peers: &PeerProcesses,
        mut progress: Guard<'_, ProgressEngine>,
        mut until: TakeUntil,
    ) -> bool {
        // A request may map memory, or end sessions: descriptors are closed.
        let _uncancelled = Uncancelled::new();
        let mut deferred = DeferredWork::default();
        if peers.look_again.load(Ordering::Relaxed) {
            // AcqRel: what was put before it was asked for is seen.
            peers.look_again.swap(false, Ordering::AcqRel);
            until = TakeUntil::Empty;
        }
        let knew = has_failed();
        let any = match until {
            TakeUntil::Empty => progress.run(self, &mut deferred),
            TakeUntil::LongMessage => progress.run_for_poll(self, &mut deferred),
        };
        let broken = core::mem::take(&mut progress.broken);
        let may_run = |pid| !serves() || peers.workers.has_room(pid);
        let fetch = progress.next_fetch(may_run);
        let makes_way = progress.makes_way(peers);
        drop(progress);
        if makes_way && fetch.is_none() {
            make_way();
        }
        // There is something that the progress thread has to know.
        if broken || knew != has_failed() {
            peers.wake_progress_thread();
        }
        // While it serves, this thread does not wait for another process's memory in `deferred`:
        // the fetch would wait, too.
        let serving = fetch.is_some().then(Serving::begin);
        deferred.run();
        drop(serving);
        let Some(fetch) = fetch else { return any };
        self.have_run(peers, fetch) || any
    }

    /// Has a deferred fetch run: by this thread, unless others rely on it. False if there is no
    /// thread for it now.
    #[cold]
    pub(in crate::fabric::process) fn have_run(
        self: &Arc<Device>,
        peers: &PeerProcesses,
        fetch: Box<DeferredFetch>,
    ) -> bool {
        if !serves() {
            self.run_fetch(*fetch);
            return true;
        }
        let pair = Arc::clone(fetch.pair());
        let Some(reservation) = peers.workers.reserve(pair.pid) else {
            peers.progress.lock().put_back(fetch);
            return false;
        };
        let (device, waiter) = (Arc::clone(self), Arc::clone(self));
        let rest = move || {
            // What waits for another process is left to other threads.
            let _serving = Serving::begin();
            device.progress_of_worker();
        };
        if !reservation.run(move || waiter.run_fetch(*fetch), rest) {
            peers.progress.lock().give_up(&pair);
        }
        true
    }

    fn run_fetch(&self, mut fetch: DeferredFetch) {
        let is_there = fetch.run();
        if let Some(peers) = &self.peers {
            peers.progress.lock().is_over(fetch, is_there);
        }
    }
}
