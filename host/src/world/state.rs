//! The state of a world, and its rules: which threads can run, and when time passes.

use std::collections::VecDeque;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::plant::kinds::Plant;
use crate::random::generator::Random;

use super::watch::Watch;

/// A part of a world that fails as one: a process, or a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeId(pub(super) u32);

impl NodeId {
    /// The one that the program runs in.
    pub const FIRST: NodeId = NodeId(0);

    /// Its number, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Scheduling and faults of a world. All numbers are drawn from its seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nature {
    /// Each thread has a processor of its own: points take next to no time, and a thread that a
    /// device keeps waiting for what its calls cost is not in the way of others.
    pub own_processors: bool,
    /// At one of so many points another thread runs next.
    pub switch_one_in: u64,
    /// One of so many threads that could go on has no processor for a while; 0 is none.
    pub stall_one_in: u64,
    /// The longest such while, in nanoseconds.
    pub stall_ns: u64,
    /// At one of so many points the clock jumps forward; 0 is never.
    pub jump_one_in: u64,
    /// The longest such jump, in nanoseconds.
    pub jump_ns: u64,
    /// One of so many calls that need memory or a descriptor gets none; 0 is none.
    pub short_one_in: u64,
    /// The same of posts to queues.
    pub short_posts_one_in: u64,
    /// A fault that tests plant into the code.
    pub plant: Option<Plant>,
}

impl Default for Nature {
    fn default() -> Nature {
        Nature {
            own_processors: false,
            switch_one_in: 4,
            stall_one_in: 0,
            stall_ns: 0,
            jump_one_in: 0,
            jump_ns: 0,
            short_one_in: 0,
            short_posts_one_in: 0,
            plant: None,
        }
    }
}

/// Limits of a world that does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Points.
    pub steps: u64,
    /// Virtual time.
    pub time: Duration,
    /// The last events that a failure shows.
    pub events: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { steps: 5_000_000, time: Duration::from_secs(3600), events: 60 }
    }
}

/// A world that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Points that threads came to.
    pub steps: u64,
    /// Virtual time that has passed.
    pub time: Duration,
    /// Hash of all decisions: the same for the same seed.
    pub hash: u64,
    /// The last events, oldest first.
    pub events: Vec<String>,
}

/// A world's failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The panic's message, or the limit that was exceeded.
    pub reason: String,
    /// Threads that had not ended, and what they waited for.
    pub threads: Vec<String>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)?;
        self.threads.iter().try_for_each(|thread| write!(f, "\n    {thread}"))
    }
}

/// Event that ends a wait, besides its deadline.
pub(super) enum On {
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
    /// A change of what the thread has looked at ([`Watch`]).
    Watched,
    /// Only the deadline: it has something to do until then.
    BusyWait,
}

/// Without addresses and descriptors, which differ from run to run.
impl std::fmt::Debug for On {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            On::Time => "its deadline only",
            On::Token => "an unpark",
            On::Lock(_) => "a lock",
            On::Condition(_) => "a condition variable",
            On::Fds(_) => "input of a descriptor",
            On::Watched => "a change of what it watches",
            On::BusyWait => "its time",
            On::End(task) => return write!(f, "the end of thread {task}"),
        })
    }
}

#[derive(Debug)]
pub(super) enum Status {
    Ready,
    Blocked { on: On, deadline: Option<u64> },
    Ended,
}

#[derive(Debug)]
pub(super) struct TaskState {
    pub(super) name: String,
    pub(super) node: NodeId,
    pub(super) status: Status,
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
    pub(super) watch: Watch,
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
struct Event {
    at: u64,
    task: usize,
    what: Option<&'static str>,
    text: String,
}

/// A world.
#[derive(Debug)]
pub(super) struct State {
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
    events: VecDeque<Event>,
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
/// Vain polls of such a thread after another one's time has come, which may do something then.
const MORE_SPINS: u32 = 8;
const IDLE_SHARE: u64 = 256;
/// The longest rest of a thread that polls: a change may not be notified.
const LONGEST_REST_NS: u64 = 20_000;
/// Time of a vain poll, where each thread has a processor of its own.
const VAIN_POLL_NS: u64 = 20;
/// One of so many turns may go to such a thread while others have something to do: it may have been
/// given something without a happening.
const IDLE_TURN_ONE_IN: u64 = 16;
/// Tries, a millisecond each, to get a lock that is held outside of the world.
const OUTSIDE_TRIES: u32 = 50;

impl State {
    pub(super) fn new(seed: u64, nature: Nature, limits: Limits) -> State {
        let mut random = Random::new(seed);
        let drawn = Random::new(random.next_u64());
        State {
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
        let shown = |event: &Event| {
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

    fn push(&mut self, event: Event) {
        if self.events.len() >= self.limits.events {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub(super) fn note(&mut self, task: usize, text: String) {
        for byte in text.bytes() {
            self.mix(byte.into());
        }
        self.push(Event { at: self.now, task, what: None, text });
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
            self.push(Event {
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
            matches!(task.status, Status::Ready)
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

    pub(super) fn fail(&mut self, reason: String) {
        if self.failure.is_none() {
            let threads = self.tasks.iter().filter(|task| !matches!(task.status, Status::Ended));
            let threads = threads.map(|task| match &task.status {
                Status::Blocked { on, deadline } => {
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

    /// Makes threads ready whose wait is over, and returns those that can run now.
    fn runnable(&mut self) -> Vec<usize> {
        let now = self.now;
        self.timers.retain(|(_, at, fd)| {
            let is_due = *at <= now;
            // A count that is full is readable, too.
            let _ = is_due.then(|| rustix::io::write(fd, &1_u64.to_ne_bytes()));
            !is_due
        });
        let with_input = self.with_input();
        let mut runnable = Vec::with_capacity(self.tasks.len());
        let mut has_timed_out = false;
        for (id, task) in self.tasks.iter_mut().enumerate() {
            let mut is_late = false;
            let is_over = match &task.status {
                Status::Ready => true,
                Status::Blocked { on: On::Fds(_), .. } if with_input.contains(&id) => true,
                Status::Blocked { on: On::Token, .. } if task.has_token => true,
                Status::Blocked { on: On::Watched, .. } if task.watch.is_signalled() => true,
                Status::Blocked { deadline, .. } => {
                    is_late = true;
                    deadline.is_some_and(|at| at <= now)
                }
                Status::Ended => continue,
            };
            if !is_over {
                continue;
            }
            if !matches!(task.status, Status::Ready) {
                if matches!(&task.status, Status::Blocked { on: On::Lock(_), .. }) {
                    self.lock_waiters -= 1;
                }
                let is_watch = matches!(&task.status, Status::Blocked { on: On::Watched, .. });
                task.status = Status::Ready;
                has_timed_out |= is_late && !is_watch;
                if !is_late && !is_watch {
                    self.happenings += 1;
                    self.happened_at = now;
                }
                if self.random.one_in(self.nature.stall_one_in) {
                    task.not_before = now + self.random.below(self.nature.stall_ns);
                }
            }
            if task.not_before <= now && self.stopped_until[task.node.index()] <= now {
                runnable.push(id);
            }
        }
        if has_timed_out {
            for Spins { count, until, .. } in self.tasks.iter_mut().map(|task| &mut task.spins) {
                *count = if until.is_some() { 0 } else { MANY_SPINS - MORE_SPINS }.min(*count);
            }
        }
        runnable
    }

    /// The threads that wait for input of a descriptor which has some.
    fn with_input(&self) -> Vec<usize> {
        let (mut polled, mut of) = (Vec::new(), Vec::new());
        for (id, task) in self.tasks.iter().enumerate() {
            let Status::Blocked { on: On::Fds(fds), .. } = &task.status else { continue };
            polled.extend(fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
            of.resize(polled.len(), id);
        }
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if polled.is_empty() || rustix::event::poll(&mut polled, Some(&at_once)) == Ok(0) {
            return Vec::new();
        }
        let has_input = |polled: &PollFd<'_>| !polled.revents().is_empty();
        polled.iter().zip(of).filter(|(polled, _)| has_input(polled)).map(|(_, id)| id).collect()
    }

    /// Returns the next time at which a thread can run that cannot run now.
    fn next_time(&self) -> Option<u64> {
        let times = self.tasks.iter().filter_map(|task| {
            let ready_at = match &task.status {
                Status::Ready => Some(task.not_before),
                Status::Blocked { deadline, .. } => *deadline,
                Status::Ended => None,
            };
            Some(ready_at?.max(self.stopped_until[task.node.index()]))
        });
        let times = times.chain(self.timers.iter().map(|(_, at, _)| *at));
        times.filter(|at| *at > self.now).min()
    }

    /// The thread that runs next, with time passed until one can; `None` if the world is over.
    /// `without` does not run if another one can: it has nothing to do.
    pub(super) fn choose(&mut self, without: Option<usize>) -> Option<usize> {
        loop {
            if self.is_over {
                return None;
            }
            let mut runnable = self.runnable();
            if let Some(without) = without
                && runnable.len() > 1
            {
                runnable.retain(|id| *id != without);
            }
            if self.nature.own_processors && !self.random.one_in(IDLE_TURN_ONE_IN) {
                let may_wait =
                    |id: &usize| self.tasks[*id].spins.may_wait(self.happenings, self.now);
                if !runnable.iter().all(may_wait) {
                    runnable.retain(|id| !may_wait(id));
                }
            }
            if !runnable.is_empty() {
                let id = self.random.pick(&runnable);
                self.mix(id as u64);
                self.running = id;
                return Some(id);
            }
            if self.tasks.iter().all(|task| matches!(task.status, Status::Ended)) {
                self.is_over = true;
            } else if let Some(at) = self.next_time() {
                self.now = at;
                if self.now >= self.limits.time.as_nanos() as u64 {
                    self.fail(format!("no end after {:?} of virtual time", self.limits.time));
                }
            } else if !self.tries_locks_again() {
                self.fail("every thread waits, and nothing ends a wait".to_owned());
            }
        }
    }

    /// Locks may be held by threads outside of the world: those that wait for them try again.
    fn tries_locks_again(&mut self) -> bool {
        if self.lock_waiters == 0 || self.outside_tries >= OUTSIDE_TRIES {
            return false;
        }
        self.outside_tries += 1;
        std::thread::sleep(Duration::from_millis(1));
        self.lock_waiters = 0;
        for task in &mut self.tasks {
            if matches!(task.status, Status::Blocked { on: On::Lock(_), .. }) {
                task.status = Status::Ready;
            }
        }
        true
    }

    /// Makes threads ready that wait for this.
    pub(super) fn wake(&mut self, most: usize, is_it: impl Fn(&On) -> bool) {
        let waiting: Vec<usize> = (0..self.tasks.len())
            .filter(|id| matches!(&self.tasks[*id].status, Status::Blocked { on, .. } if is_it(on)))
            .collect();
        let begin = if most < waiting.len() { self.random.below(waiting.len() as u64) } else { 0 };
        for n in 0..waiting.len().min(most) {
            let task = &mut self.tasks[waiting[(begin as usize + n) % waiting.len()]];
            if matches!(&task.status, Status::Blocked { on: On::Lock(_), .. }) {
                self.lock_waiters -= 1;
            }
            task.status = Status::Ready;
            self.progress();
        }
    }
}
