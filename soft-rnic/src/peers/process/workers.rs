//! Threads that wait for memory of other processes, in the place of those that others rely on
//! (see `blocking`).
//!
//! A process may let them wait for as long as it likes, and can be met again meanwhile. So there
//! is a limit for each process, and one for all; they are started when they are needed, and stay as
//! long as the device. What finds no thread stays where it is, and is tried again: by a thread that
//! becomes free, by the timer, or by the program when it polls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use host::sync::{Condvar, Mutex};

/// Threads that wait for memory of one process: one that fetches messages, and one that carries
/// out operations.
const WORKERS_PER_PEER: usize = 2;
/// Threads in all: sixteen processes can keep theirs waiting before another one's work is left
/// to the program.
const WORKERS: usize = 32;

/// The threads, and what they have to do.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    state: Mutex<WorkersState>,
    wake: Condvar,
}

#[derive(Default)]
struct WorkersState {
    /// Jobs that threads begin with; there is a thread for each.
    jobs: VecDeque<Box<dyn FnOnce() + Send>>,
    threads: usize,
    /// Threads, of these, that have nothing to do.
    idle: usize,
    /// Reservations, and those of each process.
    reserved: usize,
    by_process: BTreeMap<i32, usize>,
    /// The device is gone: threads without a job end.
    is_over: bool,
}

impl core::fmt::Debug for WorkersState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let WorkersState { threads, idle, reserved, .. } = self;
        write!(f, "{threads} threads, {idle} idle, {reserved} reserved")
    }
}

impl WorkersState {
    fn has_room(&self, pid: i32) -> bool {
        let its = self.by_process.get(&pid).copied().unwrap_or(0);
        self.reserved < WORKERS && its < WORKERS_PER_PEER
    }
}

/// A thread that is reserved for work which waits for one process.
#[derive(Debug)]
pub(crate) struct WorkerReservation {
    workers: Arc<Workers>,
    pid: i32,
}

impl Workers {
    /// Reports whether a thread can be reserved for a process.
    pub(crate) fn has_room(&self, pid: i32) -> bool {
        self.state.lock().has_room(pid)
    }

    /// Reserves a thread for a process.
    pub(crate) fn reserve(self: &Arc<Workers>, pid: i32) -> Option<WorkerReservation> {
        let mut state = self.state.lock();
        if !state.has_room(pid) {
            return None;
        }
        state.reserved += 1;
        *state.by_process.entry(pid).or_default() += 1;
        Some(WorkerReservation { workers: Arc::clone(self), pid })
    }

    fn work(&self) {
        let mut state = self.state.lock();
        // It has counted as idle since it was started.
        state.idle -= 1;
        loop {
            while let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
            }
            if state.is_over {
                return;
            }
            state.idle += 1;
            self.wake.wait(&mut state);
            state.idle -= 1;
        }
    }

    /// Ends the threads, when they have done what they have to.
    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
        self.wake.notify_all();
    }

    #[cfg(test)]
    pub(crate) fn threads(&self) -> usize {
        self.state.lock().threads
    }
}

impl WorkerReservation {
    /// Has a thread wait for the process, and then do the rest, when the reservation has ended.
    /// False, and nothing is done, if no thread can be started.
    pub(crate) fn run(
        self,
        wait: impl FnOnce() + Send + 'static,
        rest: impl FnOnce() + Send + 'static,
    ) -> bool {
        let workers = Arc::clone(&self.workers);
        let mut state = workers.state.lock();
        if state.idle <= state.jobs.len() && state.threads < WORKERS {
            let workers = Arc::clone(&workers);
            if host::thread::spawn("soft-rnic-worker", move || workers.work()).is_ok() {
                (state.threads, state.idle) = (state.threads + 1, state.idle + 1);
            } else if state.threads == 0 {
                // The reservation ends after the lock is free.
                drop(state);
                return false;
            }
        }
        state.jobs.push_back(Box::new(move || {
            wait();
            drop(self);
            rest();
        }));
        workers.wake.notify_one();
        true
    }
}

impl Drop for WorkerReservation {
    fn drop(&mut self) {
        let mut state = self.workers.state.lock();
        state.reserved -= 1;
        if let Some(its) = state.by_process.get_mut(&self.pid) {
            *its -= 1;
            if *its == 0 {
                state.by_process.remove(&self.pid);
            }
        }
    }
}

#[cfg(test)]
mod tests;
