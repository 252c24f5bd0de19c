//! The state of a world, and its rules: which threads can run, and when time passes.

mod turn;

use std::collections::VecDeque;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::generator::Random;

use super::nature::{Failure, Limits, Nature, NodeId, Report};
use super::watch::WatchedAddresses;

/// Event that ends a wait, besides its deadline.
pub(super) enum WaitReason {
    /// Only the deadline.
    Time,
    /// [`Thread::unpark`](crate::thread::Thread::unpark).
    Token,
    /// The lock at this address.
    Lock(usize),
    /// The condition variable at this address.
    Condition(usize),
    /// Input of descriptors: duplicates of the waiting thread's.
    Fds(Vec<OwnedFd>),
    /// The end of another thread.
    End(usize),
    /// A change of what the thread has looked at ([`WatchedAddresses`]).
    Watched,
    /// Only the deadline: it has something to do until then.
    BusyWait,
}

/// Without addresses and descriptors, which differ from run to run.
impl std::fmt::Debug for WaitReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            WaitReason::Time => "its deadline only",
            WaitReason::Token => "an unpark",
            WaitReason::Lock(_) => "a lock",
            WaitReason::Condition(_) => "a condition variable",
            WaitReason::Fds(_) => "input of a descriptor",
            WaitReason::Watched => "a change of what it watches",
            WaitReason::BusyWait => "its time",
            WaitReason::End(task) => return write!(f, "the end of thread {task}"),
        })
    }
}

#[derive(Debug)]
pub(super) enum TaskStatus {
    Ready,
    Blocked { on: WaitReason, deadline: Option<u64> },
    Ended,
}

#[derive(Debug)]
pub(super) struct TaskState {
    pub(super) name: String,
    pub(super) node: NodeId,
    pub(super) status: TaskStatus,
    /// An unpark that no park has used.
    pub(super) has_token: bool,
    /// It is its turn.
    pub(super) baton: Arc<AtomicBool>,
    /// Once the thread has begun.
    pub(super) thread: Option<std::thread::Thread>,
    /// It has no processor before.
    pub(super) not_before: u64,
    /// Points in here do not switch.
    pub(super) uninterrupted: u32,
    pub(super) spins: Spins,
    pub(super) watch: WatchedAddresses,
    /// Time that it has spent in waits.
    pub(super) waited_ns: u64,
}

/// Vain polls of a thread.
#[derive(Debug, Default)]
pub(super) struct Spins {
    count: u32,
    /// Count of happenings before them.
    since: u64,
    /// Time at which the thread has something else to do.
    until: Option<u64>,
}

impl Spins {
    /// True if it has polled in vain for a while since the last happening. A thread with a
    /// processor of its own keeps no other one waiting, and is asked again when time has passed.
    fn is_idle(&self, happenings: u64, own_processors: bool) -> bool {
        let few = if own_processors || self.until.is_some() { FEW_SPINS } else { MANY_SPINS };
        self.since == happenings && self.count >= few
    }

    /// True if it need not run before others: it is idle, and its own time has not come.
    fn may_wait(&self, happenings: u64, now: u64) -> bool {
        self.is_idle(happenings, true) && self.until.is_none_or(|until| until > now)
    }
}

#[derive(Debug)]
struct WorldEvent {
    at: u64,
    task: usize,
    what: Option<&'static str>,
    text: String,
}

/// A world.
#[derive(Debug)]
pub(super) struct WorldState {
    pub(super) nature: Nature,
    limits: Limits,
    /// Source of scheduling decisions.
    random: Random,
    /// Source of the threads' own draws.
    pub(super) drawn: Random,
    pub(super) now: u64,
    pub(super) steps: u64,
    hash: u64,
    pub(super) tasks: Vec<TaskState>,
    pub(super) running: usize,
    /// Time of the last happening, and the count of all happenings.
    happened_at: u64,
    happenings: u64,
    /// Threads that wait for locks.
    pub(super) lock_waiters: u32,
    /// Descriptors that become readable, by their numbers, and when.
    timers: Vec<(RawFd, u64, OwnedFd)>,
    /// Tries in real time to get a lock that a thread outside of the world holds.
    outside_tries: u32,
    events: VecDeque<WorldEvent>,
    pub(super) failure: Option<Failure>,
    pub(super) is_over: bool,
    /// Nodes: until when each is stopped.
    pub(super) stopped_until: Vec<u64>,
}

/// Virtual time of a point, where threads share a processor.
const POINT_NS: u64 = 40;
/// Points of a thread in a nanosecond, where each has a processor of its own.
const POINTS_IN_NS: u64 = 4;
/// Vain polls after which a thread waits for time to pass: of one that says until when, and of
/// another, which then waits for this share of the time since something happened.
const FEW_SPINS: u32 = 2;
const MANY_SPINS: u32 = 32;
const IDLE_SHARE: u64 = 256;
/// The longest rest of a thread that polls: a change may not be notified.
const LONGEST_REST_NS: u64 = 20_000;
/// Time of a vain poll, where each thread has a processor of its own.
const VAIN_POLL_NS: u64 = 20;

impl WorldState {
    pub(super) fn new(seed: u64, nature: Nature, limits: Limits) -> WorldState {
        let mut random = Random::new(seed);
        let drawn = Random::new(random.next_u64());
        WorldState {
            nature,
            limits,
            random,
            drawn,
            now: 0,
            steps: 0,
            hash: seed,
            tasks: Vec::new(),
            running: 0,
            happened_at: 0,
            happenings: 0,
            lock_waiters: 0,
            timers: Vec::new(),
            outside_tries: 0,
            events: VecDeque::new(),
            failure: None,
            is_over: false,
            stopped_until: vec![0],
        }
    }

    pub(super) fn report(&self) -> Report {
        let shown = |event: &WorldEvent| {
            let task = &self.tasks[event.task];
            let what = event.what.unwrap_or(&event.text);
            format!("{:>14.3} us  {}: {what}", event.at as f64 / 1e3, task.name)
        };
        Report {
            steps: self.steps,
            time: Duration::from_nanos(self.now),
            hash: self.hash,
            events: self.events.iter().map(shown).collect(),
        }
    }

    fn mix(&mut self, value: u64) {
        self.hash = (self.hash ^ value).wrapping_mul(0x100_0000_01b3).rotate_left(29);
    }

    fn push(&mut self, event: WorldEvent) {
        if self.events.len() >= self.limits.events {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub(super) fn note(&mut self, task: usize, text: String) {
        for byte in text.bytes() {
            self.mix(byte.into());
        }
        self.push(WorldEvent { at: self.now, task, what: None, text });
    }

    /// The running thread has come to a point: it takes time. `is_idle` if it has only looked.
    pub(super) fn step(&mut self, what: &'static str) {
        self.steps += 1;
        if !self.nature.own_processors {
            self.now += POINT_NS;
        } else if self.steps.is_multiple_of(POINTS_IN_NS * self.tasks.len() as u64) {
            // The others' points are at the same time.
            self.now += 1;
        }
        if self.random.one_in(self.nature.jump_one_in) {
            self.now += self.random.below(self.nature.jump_ns);
        }
        self.mix(self.now ^ ((self.running as u64) << 48) ^ ((what.len() as u64) << 56));
        if !matches!(what, "point" | "now" | "spin" | "yield" | "lock" | "try lock") {
            self.push(WorldEvent {
                at: self.now,
                task: self.running,
                what: Some(what),
                text: String::new(),
            });
        }
        if self.steps >= self.limits.steps {
            self.fail(format!("no end after {} steps", self.steps));
        } else if self.now >= self.limits.time.as_nanos() as u64 {
            self.fail(format!("no end after {:?} of virtual time", self.limits.time));
        }
    }

    /// The running thread has polled in vain, and polls until then, if it says so. If all that can
    /// run have, for a while, time passes.
    pub(super) fn spun(&mut self, until: Option<u64>) {
        let happenings = self.happenings;
        let spins = &mut self.tasks[self.running].spins;
        if spins.since != happenings {
            *spins = Spins { count: 0, since: happenings, until: None };
        }
        (spins.count, spins.until) = (spins.count + 1, until.or(spins.until));
        let can_run = |task: &&TaskState| {
            matches!(task.status, TaskStatus::Ready)
                && task.not_before <= self.now
                && self.stopped_until[task.node.index()] <= self.now
        };
        let own_processors = self.nature.own_processors;
        let least = if own_processors { VAIN_POLL_NS } else { 0 };
        let share = ((self.now - self.happened_at) / IDLE_SHARE).max(least);
        let mut next = self.next_time().unwrap_or(u64::MAX);
        for task in self.tasks.iter().filter(can_run) {
            if !task.spins.is_idle(happenings, own_processors) {
                return;
            }
            next = next.min(task.spins.until.unwrap_or(self.now + share).max(self.now));
        }
        if next != u64::MAX {
            self.now = next;
        }
    }

    /// A thread begins to rest, until then at the latest: whether something has changed that it has
    /// looked at, and when its rest ends.
    pub(super) fn begin_wait_for_change(&mut self, task: usize, until: Option<u64>) -> (bool, u64) {
        let watch = &mut self.tasks[task].watch;
        let longest = if watch.is_complete() { LONGEST_REST_NS } else { VAIN_POLL_NS };
        let end = until.unwrap_or(u64::MAX).min(self.now + longest);
        let is_signalled = watch.is_signalled() || end <= self.now;
        if is_signalled {
            watch.clear();
        }
        (is_signalled, end)
    }

    pub(super) fn progress(&mut self) {
        self.happenings += 1;
        (self.happened_at, self.outside_tries) = (self.now, 0);
    }

    /// Draws whether another thread runs now.
    pub(super) fn switches(&mut self) -> bool {
        self.tasks[self.running].uninterrupted == 0 && self.random.one_in(self.nature.switch_one_in)
    }

    /// Draws: true refuses memory to a call.
    pub(super) fn is_short(&mut self) -> bool {
        self.random.one_in(self.nature.short_one_in)
    }

    pub(super) fn is_post_short(&mut self) -> bool {
        self.random.one_in(self.nature.short_posts_one_in)
    }

    /// Draws: true ends a wait before anything has happened.
    pub(super) fn is_spurious(&mut self) -> bool {
        self.random.one_in(self.nature.spurious_one_in)
    }

    pub(super) fn fail(&mut self, reason: String) {
        if self.failure.is_none() {
            let threads =
                self.tasks.iter().filter(|task| !matches!(task.status, TaskStatus::Ended));
            let threads = threads.map(|task| match &task.status {
                TaskStatus::Blocked { on, deadline } => {
                    format!("{} waits for {on:?}, deadline {deadline:?}", task.name)
                }
                _ => format!("{} can run", task.name),
            });
            self.failure = Some(Failure { reason, threads: threads.collect() });
        }
        self.is_over = true;
    }

    /// Starts a timer, or starts it anew.
    pub(super) fn start_timer(&mut self, number: RawFd, at: u64, fd: OwnedFd) {
        self.timers.retain(|(other, ..)| *other != number);
        self.timers.push((number, at, fd));
    }

    /// Makes threads ready that wait for this.
    pub(super) fn wake(&mut self, most: usize, is_it: impl Fn(&WaitReason) -> bool) {
        let waiting: Vec<usize> = (0..self.tasks.len())
            .filter(
                |id| matches!(&self.tasks[*id].status, TaskStatus::Blocked { on, .. } if is_it(on)),
            )
            .collect();
        let begin = if most < waiting.len() { self.random.below(waiting.len() as u64) } else { 0 };
        for n in 0..waiting.len().min(most) {
            let task = &mut self.tasks[waiting[(begin as usize + n) % waiting.len()]];
            if matches!(&task.status, TaskStatus::Blocked { on: WaitReason::Lock(_), .. }) {
                self.lock_waiters -= 1;
            }
            task.status = TaskStatus::Ready;
            self.progress();
        }
    }
}
