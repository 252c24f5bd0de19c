//! The calling thread's place in its world.

use std::cell::RefCell;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use rustix::event::PollFd;
use rustix::fd::AsFd as _;
use rustix::io::Errno;

use crate::fault::Plant;

use super::nature::NodeId;
use super::schedule::{WorldInner, wait_for};
use super::state::{TaskStatus, WaitReason};

thread_local! {
    static HERE: RefCell<Option<CurrentTask>> = const { RefCell::new(None) };
}

/// A thread in its world.
#[derive(Debug)]
pub struct CurrentTask {
    world: Arc<WorldInner>,
    id: usize,
}

/// A thread of a world, as others know it.
#[derive(Debug, Clone)]
pub struct Task {
    world: Arc<WorldInner>,
    id: usize,
}

/// Calls `act` if the calling thread runs in a world.
#[inline]
pub fn here<T>(act: impl FnOnce(&CurrentTask) -> T) -> Option<T> {
    HERE.try_with(|here| here.borrow().as_ref().map(act)).ok().flatten()
}

/// Notes an event for the trace, which a failure shows.
pub fn note(text: impl FnOnce() -> String) {
    here(|here| here.world.state.lock().note(here.id, text()));
}

/// Calls `run` without a switch to another thread in between, as where a `OnceLock` is initialised.
pub fn uninterrupted<T>(run: impl FnOnce() -> T) -> T {
    let add = |here: &CurrentTask, n: i32| {
        let mut state = here.world.state.lock();
        let count = &mut state.tasks[here.id].uninterrupted;
        *count = count.wrapping_add_signed(n);
    };
    here(|here| add(here, 1));
    let done = run();
    here(|here| add(here, -1));
    done
}

/// Calls `run` as if the calling thread were of another node: threads that it starts are of that.
pub fn on_node<T>(node: NodeId, run: impl FnOnce() -> T) -> T {
    let set = |here: &CurrentTask, node| {
        std::mem::replace(&mut here.world.state.lock().tasks[here.id].node, node)
    };
    let own = here(|here| set(here, node));
    let done = run();
    here(|here| own.map(|own| set(here, own)));
    done
}

/// Ends the world with a failure: a promise was broken.
///
/// # Panics
/// Always, where the calling thread is in no world.
pub fn fail(reason: &str) -> ! {
    here(|here| {
        let mut state = here.world.state.lock();
        state.fail(reason.to_owned());
        here.world.hand_on(state, here.id, true);
    });
    panic!("{reason}");
}

/// Has the panics of threads in worlds kept for the failure instead of being printed.
pub(super) fn catch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if here(|_| ()).is_none() {
                return before(info);
            }
            let text = match std::env::var_os("RDMA_CONN_WORLD_BACKTRACE") {
                None => info.to_string(),
                Some(_) => format!("{info}\n{}", std::backtrace::Backtrace::force_capture()),
            };
            here(|here| {
                if let Some(mut state) = here.world.state.try_lock() {
                    state.fail(text);
                }
            });
        }));
    });
}

/// Waits until a descriptor has input, or the deadline; returns how many have.
pub fn wait_for_fds(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> Result<usize, Errno> {
    here(|here| here.point("look at descriptors"));
    loop {
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = rustix::event::poll(fds, Some(&at_once))?;
        let now = here(CurrentTask::current);
        if ready > 0 || deadline.zip(now).is_none_or(|(at, now)| now >= at) && deadline.is_some() {
            return Ok(ready);
        }
        let copies = fds.iter().map(|fd| fd.as_fd().try_clone_to_owned());
        let copies = copies.collect::<Result<Vec<_>, _>>().map_err(|_| Errno::MFILE)?;
        here(|here| here.block(WaitReason::Fds(copies), deadline));
    }
}

/// A timer takes a while to wake a thread: without that, one that polls by timers would take steps and no time.
const SHORTEST_TIMER: Duration = Duration::from_micros(20);

/// Makes a descriptor of events readable after this time.
pub fn start_timer(fd: BorrowedFd<'_>, after: Duration) -> std::io::Result<()> {
    let (number, copy) = (fd.as_raw_fd(), fd.try_clone_to_owned()?);
    // It is not readable any more.
    let _ = rustix::io::read(fd, &mut [0; 8]);
    here(|here| {
        let mut state = here.world.state.lock();
        let at = state.now.saturating_add(nanoseconds(after.max(SHORTEST_TIMER)));
        state.start_timer(number, at, copy);
    });
    Ok(())
}

impl CurrentTask {
    /// The calling thread may have to hand on.
    pub fn point(&self, what: &'static str) {
        let mut state = self.world.state.lock();
        state.step(what);
        if state.is_over {
            return self.world.hand_on(state, self.id, true);
        }
        if state.switches() {
            self.world.hand_on(state, self.id, false);
        }
    }

    /// The calling thread has found nothing: others run first.
    pub(crate) fn spin(&self, what: &'static str, until: Option<Instant>) {
        let until = until.map(|at| nanoseconds(at.saturating_duration_since(self.world.epoch)));
        let mut state = self.world.state.lock();
        state.step(what);
        state.spun(until);
        if state.is_over || state.tasks[self.id].uninterrupted == 0 {
            self.world.hand_on(state, self.id, true);
        }
    }

    /// The calling thread has found nothing where it has looked. If it has a processor of its own, it sleeps until that
    /// changes.
    pub(crate) fn wait_for_change(&self, until: Option<Instant>) {
        if !self.world.own_processors {
            return self.spin("yield", until);
        }
        let until = until.map(|at| nanoseconds(at.saturating_duration_since(self.world.epoch)));
        let mut state = self.world.state.lock();
        state.step("yield");
        let (is_signalled, end) = state.begin_wait_for_change(self.id, until);
        if state.is_over || is_signalled && state.tasks[self.id].uninterrupted == 0 {
            let leaves = state.is_over;
            return self.world.hand_on(state, self.id, leaves);
        }
        if state.tasks[self.id].uninterrupted > 0 {
            return;
        }
        drop(state);
        self.world.block(self.id, WaitReason::Watched, Some(end));
        self.world.state.lock().tasks[self.id].watch.clear();
    }

    /// Waits until then, busily, if the calling thread has a processor of its own; returns false if it has none.
    pub(crate) fn busy_wait_until(&self, until: Instant) -> bool {
        if self.world.own_processors && until > self.now() {
            self.block(WaitReason::BusyWait, Some(until));
        }
        self.world.own_processors
    }

    pub(crate) fn watch(&self, address: usize) {
        if self.world.own_processors {
            self.world.state.lock().tasks[self.id].watch.add(address);
        }
    }

    pub(crate) fn notify_changed(&self, from: usize, len: usize) {
        if self.world.own_processors {
            let mut state = self.world.state.lock();
            state.tasks.iter_mut().for_each(|task| task.watch.notify(from, len));
        }
    }

    /// The time in which the calling thread has not waited.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.point("now");
        let state = self.world.state.lock();
        state.now - state.tasks[self.id].waited_ns
    }

    /// Number of the world, different from that of each other world that exists, and not 0.
    pub(crate) fn number(&self) -> usize {
        Arc::as_ptr(&self.world).addr()
    }

    pub(crate) fn is_planted(&self, plant: Plant) -> bool {
        self.world.state.lock().nature.plant == Some(plant)
    }

    pub(crate) fn has_own_processor(&self) -> bool {
        self.world.own_processors
    }

    pub(crate) fn is_short(&self) -> bool {
        self.world.state.lock().is_short()
    }

    pub(crate) fn is_post_short(&self) -> bool {
        self.world.state.lock().is_post_short()
    }

    pub(crate) fn progress(&self) {
        self.world.state.lock().progress();
    }

    pub(crate) fn random(&self) -> u64 {
        self.world.state.lock().drawn.next_u64()
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.point("now");
        self.world.state.lock().now
    }

    pub(crate) fn now(&self) -> Instant {
        self.world.epoch + Duration::from_nanos(self.now_ns())
    }

    /// The time, without a point.
    fn current(&self) -> Instant {
        self.world.epoch + Duration::from_nanos(self.world.state.lock().now)
    }

    /// The node of the calling thread.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.world.state.lock().tasks[self.id].node
    }

    /// A node without threads.
    #[must_use]
    pub fn add_node(&self) -> NodeId {
        let mut state = self.world.state.lock();
        state.stopped_until.push(0);
        NodeId(state.stopped_until.len() as u32 - 1)
    }

    /// Stops all threads of a node for this time.
    pub fn stop(&self, node: NodeId, time: Duration) {
        let mut state = self.world.state.lock();
        let until = state.now.saturating_add(nanoseconds(time));
        let stopped = &mut state.stopped_until[node.index()];
        *stopped = (*stopped).max(until);
        drop(state);
        self.point("stop");
    }

    /// Refuses memory to one of so many posts from now on; 0 is none. The world's
    /// [`Nature`](super::Nature) says how it begins.
    pub fn refuse_posts(&self, one_in: u64) {
        self.world.state.lock().nature.short_posts_one_in = one_in;
    }

    /// As [`refuse_posts`](Self::refuse_posts), of calls that need memory or a descriptor.
    pub fn refuse_memory(&self, one_in: u64) {
        self.world.state.lock().nature.short_one_in = one_in;
    }

    /// A number that the seed draws for the program.
    #[must_use]
    pub fn draw_below(&self, n: u64) -> u64 {
        self.world.state.lock().drawn.below(n)
    }

    pub(crate) fn task(&self) -> Task {
        Task { world: Arc::clone(&self.world), id: self.id }
    }

    pub(crate) fn add_task(&self, name: &str) -> Task {
        let id = self.world.add_task(name, self.node());
        Task::new(Arc::clone(&self.world), id)
    }

    pub(crate) fn sleep(&self, time: Duration) {
        self.point("sleep");
        let until = self.after(time);
        self.world.block(self.id, WaitReason::Time, Some(until));
    }

    pub(crate) fn park(&self, time: Duration) {
        self.point("park");
        let mut state = self.world.state.lock();
        if !state.tasks[self.id].has_token {
            drop(state);
            let until = self.after(time);
            self.world.block(self.id, WaitReason::Token, Some(until));
            state = self.world.state.lock();
        }
        state.tasks[self.id].has_token = false;
    }

    fn after(&self, time: Duration) -> u64 {
        self.world.state.lock().now.saturating_add(nanoseconds(time))
    }

    pub(super) fn block(&self, on: WaitReason, deadline: Option<Instant>) {
        let at = |at: Instant| nanoseconds(at.saturating_duration_since(self.world.epoch));
        self.world.block(self.id, on, deadline.map(at));
    }

    pub(super) fn unlocked(&self, lock: usize) {
        let mut state = self.world.state.lock();
        if state.lock_waiters > 0 {
            state.wake(usize::MAX, |on| matches!(on, WaitReason::Lock(at) if *at == lock));
        }
    }

    pub(super) fn notify(&self, condition: usize, most: usize) {
        let mut state = self.world.state.lock();
        state.wake(most, |on| matches!(on, WaitReason::Condition(at) if *at == condition));
        drop(state);
        self.point("notify");
    }
}

impl Task {
    pub(super) fn new(world: Arc<WorldInner>, id: usize) -> Task {
        Task { world, id }
    }

    pub(crate) fn unpark(&self) {
        let mut state = self.world.state.lock();
        state.tasks[self.id].has_token = true;
        state.progress();
        drop(state);
        here(|here| here.point("unpark"));
    }

    pub(crate) fn has_ended(&self) -> bool {
        here(|here| here.point("is finished"));
        matches!(self.world.state.lock().tasks[self.id].status, TaskStatus::Ended)
    }

    pub(crate) fn wait_for_end(&self) {
        here(|here| {
            let has_ended =
                || matches!(self.world.state.lock().tasks[self.id].status, TaskStatus::Ended);
            here.point("join");
            while !has_ended() {
                here.world.block(here.id, WaitReason::End(self.id), None);
            }
        });
    }

    /// No thread could be started for it.
    pub(crate) fn never_started(&self) {
        self.world.state.lock().tasks[self.id].status = TaskStatus::Ended;
    }

    /// Runs a thread of a world from its first turn to its end.
    pub(crate) fn run<T>(&self, run: impl FnOnce() -> T) -> T {
        let baton = {
            let mut state = self.world.state.lock();
            state.tasks[self.id].thread = Some(std::thread::current());
            Arc::clone(&state.tasks[self.id].baton)
        };
        wait_for(&baton);
        HERE.set(Some(CurrentTask { world: Arc::clone(&self.world), id: self.id }));
        let done = catch_unwind(AssertUnwindSafe(run));
        HERE.set(None);
        let panic = done.is_err().then(|| "a thread has panicked".to_owned());
        self.world.end(self.id, panic);
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}
