//! Handing the baton on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::nature::{Failure, Limits, Nature, NodeId, Report};
use super::state::{Spins, TaskState, TaskStatus, WaitReason, WorldState};
use super::watch::WatchedAddresses;

/// Real time after which a thread that reaches no point is said to be stuck.
const STUCK: Duration = Duration::from_secs(30);

/// State that the threads of a world share.
#[derive(Debug)]
pub(super) struct WorldInner {
    pub(super) state: Mutex<WorldState>,
    pub(super) epoch: Instant,
    /// Each thread has a processor of its own ([`Nature::own_processors`]).
    pub(super) own_processors: bool,
    ended: Condvar,
}

impl WorldInner {
    pub(super) fn new(seed: u64, nature: Nature, limits: Limits) -> WorldInner {
        WorldInner {
            state: Mutex::new(WorldState::new(seed, nature, limits)),
            epoch: Instant::now(),
            own_processors: nature.own_processors,
            ended: Condvar::new(),
        }
    }

    /// Adds a thread that can run, and returns its number.
    pub(super) fn add_task(&self, name: &str, node: NodeId) -> usize {
        let mut state = self.state.lock();
        let id = state.tasks.len();
        state.tasks.push(TaskState {
            name: format!("{name} {id}"),
            node,
            status: TaskStatus::Ready,
            has_token: false,
            baton: Arc::new(AtomicBool::new(false)),
            thread: None,
            not_before: 0,
            uninterrupted: 0,
            spins: Spins::default(),
            watch: WatchedAddresses::default(),
            waited_ns: 0,
        });
        state.progress();
        id
    }

    /// The first thread runs.
    pub(super) fn begin(&self, first: usize) {
        let mut state = self.state.lock();
        state.running = first;
        self.hand_to(state, Some(first));
    }

    /// The world has ended, one way or the other.
    pub(super) fn wait_for_end(&self) -> (Report, Option<Failure>) {
        let mut state = self.state.lock();
        while !state.is_over {
            let before = state.steps;
            let has_timed_out = self.ended.wait_for(&mut state, STUCK).timed_out();
            if has_timed_out && !state.is_over && state.steps == before {
                let name = state.tasks[state.running].name.clone();
                state.fail(format!("{name} has reached no point for {STUCK:?} of real time"));
            }
        }
        (state.report(), state.failure.take())
    }

    pub(super) fn fail_from_outside(&self, reason: &str) {
        self.state.lock().fail(reason.to_owned());
    }

    /// Thread `me` hands the baton on, and waits until it has it again. It may be chosen itself, but with `leaves`
    /// only if no other one can run.
    pub(super) fn hand_on(&self, mut state: MutexGuard<'_, WorldState>, me: usize, leaves: bool) {
        let next = state.choose(leaves.then_some(me));
        if next == Some(me) {
            return;
        }
        let baton = Arc::clone(&state.tasks[me].baton);
        self.hand_to(state, next);
        wait_for(&baton);
    }

    /// Thread `me` waits for this.
    pub(super) fn block(&self, me: usize, on: WaitReason, deadline: Option<u64>) {
        let mut state = self.state.lock();
        if state.tasks[me].uninterrupted > 0 {
            state.fail(format!("a thread waits for {on:?} where it may not be interrupted"));
        }
        state.lock_waiters += u32::from(matches!(on, WaitReason::Lock(_)));
        let (is_busy, began) =
            (matches!(on, WaitReason::Watched | WaitReason::BusyWait), state.now);
        state.tasks[me].status = TaskStatus::Blocked { on, deadline };
        self.hand_on(state, me, false);
        if !is_busy {
            let mut state = self.state.lock();
            state.tasks[me].waited_ns += state.now - began;
        }
    }

    /// Thread `me` has ended.
    pub(super) fn end(&self, me: usize, panic: Option<String>) {
        let mut state = self.state.lock();
        state.tasks[me].status = TaskStatus::Ended;
        if let Some(panic) = panic {
            state.fail(panic);
        }
        state.progress();
        state.wake(usize::MAX, |on| matches!(on, WaitReason::End(id) if *id == me));
        let next = state.choose(None);
        self.hand_to(state, next);
    }

    /// Hands the baton to this thread, or, without one, ends the world.
    fn hand_to(&self, state: MutexGuard<'_, WorldState>, next: Option<usize>) {
        let Some(next) = next else {
            self.ended.notify_all();
            return;
        };
        let task = &state.tasks[next];
        // Release: what this thread has written is visible to the next one.
        task.baton.store(true, Ordering::Release);
        // A thread that has not begun looks at the baton when it does, behind the lock.
        let thread = task.thread.clone();
        // The next one takes the lock soon.
        drop(state);
        if let Some(thread) = thread {
            thread.unpark();
        }
    }
}

/// Waits for the baton: for ever, if the world ends without it.
pub(super) fn wait_for(baton: &AtomicBool) {
    // Acquire: as in `hand_to`.
    while !baton.swap(false, Ordering::Acquire) {
        std::thread::park();
    }
}
