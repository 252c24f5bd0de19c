//! Waits of a thread: on the processor, in the kernel, or first the one and then the other; and the
//! promise that every wait ends.

mod backoff;

use std::cell::Cell;
use std::time::{Duration, Instant};

use host::plant::{Plant, is_planted};
use host::thread::{spin_loop, yield_until};

use crate::keepalive::SHORTEST_KEEPALIVE;
pub(crate) use backoff::SleepBackoff;

/// Strategy of a waiting thread: polling, sleeping, or first the one and then the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitStrategy {
    /// Polls without ever sleeping: the lowest latency, one core busy.
    Spin,
    /// Sleeps on the completion channel at once: no core busy, an interrupt's
    /// latency (some 50 µs) for every wait.
    Block,
    /// Polls for a while and sleeps after that.
    SpinThenBlock(
        /// Time to poll before sleeping.
        Duration,
    ),
    /// [`SpinThenBlock`](WaitStrategy::SpinThenBlock) with a time of about a wake-up (50 µs), which
    /// at worst doubles the cost of a wait. A thread with slightly longer waits, such as a round
    /// trip, polls for up to 500 µs, as long as that saves it the sleep. Where both ends run on one
    /// processor, it yields to the other one after each poll.
    #[default]
    Adaptive,
}

impl WaitStrategy {
    /// Returns the time to poll before sleeping; `None` is for ever.
    fn spin_time(self) -> Option<Duration> {
        match self {
            WaitStrategy::Spin => None,
            WaitStrategy::Block => Some(Duration::ZERO),
            WaitStrategy::SpinThenBlock(time) => Some(time),
            WaitStrategy::Adaptive => Some(SPIN_TIME.get().now()),
        }
    }

    /// Reports whether a completion channel is needed.
    pub(crate) fn may_block(self) -> bool {
        self.spin_time().is_some()
    }
}

/// After how long a program's own loop looks at words that no event tells of.
pub(crate) fn poll_after(wait: WaitStrategy) -> Duration {
    if wait.may_block() { POLL_SLEEP } else { Duration::ZERO }
}

/// Time when a wait has to end: an argument of the calls of the halves
/// ([`driven`](crate::half::driven)).
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// It may last for ever.
    pub const NEVER: Deadline = Deadline(None);

    /// `timeout` from now; a time that the clock cannot hold is never.
    #[must_use]
    pub fn after(timeout: Duration) -> Deadline {
        Deadline(host::time::now().checked_add(timeout))
    }

    /// At this time, or never.
    pub(crate) fn at(time: Option<Instant>) -> Deadline {
        Deadline(time)
    }

    /// The earlier of the two.
    pub(crate) fn or_earlier(self, other: Deadline) -> Deadline {
        Deadline(self.0.into_iter().chain(other.0).min())
    }

    pub(crate) fn has_passed(self, now: Instant) -> bool {
        self.0.is_some_and(|at| now >= at)
    }

    /// Returns the time that is left of it.
    pub(crate) fn remaining(self, now: Instant) -> Duration {
        self.0.map_or(Duration::MAX, |at| at.saturating_duration_since(now))
    }
}

/// Waits for a state that no event announces: calls `look` until it returns a result or fails, and
/// `probe` after each `keepalive` without a result. Between two looks the thread does what
/// `strategy` says, and sleeps for 200 µs at most. `None` once the deadline has passed. `look` and
/// `probe` get `of`. A wait that times out stores the time without an arrival in `silence`, and the
/// next one continues from it: a program that repeats short waits probes as well.
///
/// ```
/// use std::time::Duration;
/// use rdma_conn::wait::{Deadline, Silence, WaitStrategy, until};
///
/// let deadline = Deadline::after(Duration::from_secs(10));
/// let third = |looks: &mut u32| {
///     *looks += 1;
///     Ok::<_, std::io::Error>((*looks == 3).then_some("there"))
/// };
/// let second = Duration::from_secs(1);
/// let mut silence = Silence::default();
/// let found =
///     until(&mut 0, WaitStrategy::Block, second, deadline, &mut silence, third, |_| Ok(()))?;
/// assert_eq!(found, Some("there"));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// That of `look` or `probe`.
pub fn until<S: ?Sized, T, E>(
    of: &mut S,
    strategy: WaitStrategy,
    keepalive: Duration,
    deadline: Deadline,
    silence: &mut Silence,
    mut look: impl FnMut(&mut S) -> Result<Option<T>, E>,
    mut probe: impl FnMut(&mut S) -> Result<(), E>,
) -> Result<Option<T>, E> {
    let mut idle = Idle::new(strategy, deadline, keepalive).resume(silence);
    loop {
        if let Some(found) = look(of)? {
            return Ok(Some(found));
        }
        match idle.step() {
            WaitStep::Again => {}
            WaitStep::Sleep(time) => host::time::sleep(time.min(POLL_SLEEP)),
            WaitStep::Probe => probe(of)?,
            WaitStep::TimedOut => {
                *silence = idle.silence();
                return Ok(None);
            }
        }
    }
}

/// Time of one sleep of a thread that waits for a word of memory: no interrupt announces the word.
pub(crate) const POLL_SLEEP: Duration = Duration::from_micros(200);

/// Longest wait for a device to say that it keeps no request of a shared queue: devices that report
/// it do so within milliseconds, and soft-RoCE never does.
pub(crate) const SILENT_DEVICE: Duration = Duration::from_secs(1);

/// Next step of a waiter that found nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitStep {
    /// Look again.
    Again,
    /// Sleep on the channel, for at most this time.
    Sleep(Duration),
    /// Nothing has happened for a keepalive interval: ask whether the peer lives.
    Probe,
    /// The caller's time is up.
    TimedOut,
}

thread_local! {
    /// Empty polls of this thread between two yields of its processor.
    static POLLS_PER_YIELD: Cell<u32> = const { Cell::new(Idle::POLLS_PER_LOOK) };
}

thread_local! {
    /// Time for which this thread polls before it sleeps.
    static SPIN_TIME: Cell<SpinTime> = const { Cell::new(SpinTime::new()) };
}

/// Time for which an [adaptive](WaitStrategy::Adaptive) wait polls: a short one, or a long one
/// where that has saved a sleep. A long time that did not is tried again after a number of sleeps,
/// which doubles each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SpinTime {
    is_long: bool,
    /// Sleeps until the long time is tried again.
    sleeps: u32,
    /// Sleeps after the next failure.
    backoff: u32,
}

impl SpinTime {
    const SHORT: Duration = Duration::from_micros(50);
    const LONG: Duration = Duration::from_micros(500);
    const BACKOFF: std::ops::RangeInclusive<u32> = 4..=4096;

    const fn new() -> SpinTime {
        let first = *Self::BACKOFF.start();
        SpinTime { is_long: false, sleeps: first, backoff: first }
    }

    const fn now(self) -> Duration {
        if self.is_long { Self::LONG } else { Self::SHORT }
    }

    /// After a wait that polled for `time` and slept then, if `slept`.
    fn after(self, time: Duration, slept: bool) -> SpinTime {
        let (least, most) = Self::BACKOFF.into_inner();
        match (self.is_long, slept) {
            (true, true) => {
                let backoff = (2 * self.backoff).min(most);
                SpinTime { is_long: false, sleeps: self.backoff, backoff }
            }
            (true, false) if time > Self::SHORT => {
                SpinTime { backoff: (self.backoff / 2).max(least), ..self }
            }
            (false, true) => {
                let sleeps = self.sleeps.saturating_sub(1);
                SpinTime { is_long: sleeps == 0, sleeps, ..self }
            }
            _ => self,
        }
    }
}

/// Polls of a completion queue in a row, while a thread that waits finds nothing: it sees a
/// completion sooner than if it did all its other work between two polls.
#[inline]
pub(crate) fn polls_in_a_row() -> u32 {
    const POLLS: u32 = 8;
    if shares_processor() { 1 } else { POLLS }
}

/// Reports whether the threads that this one waits for run on its processor: then polling before a
/// yield only delays them. See [`Yield`].
#[inline]
pub(crate) fn shares_processor() -> bool {
    POLLS_PER_YIELD.get() < Idle::POLLS_PER_LOOK / 2
}

/// Result of a yield of the processor: a hint about the thread that is waited for.
///
/// If that thread runs on this processor, the yield takes two context switches, and the awaited
/// event is there afterwards. If it runs elsewhere, the yield returns at once. So the number of
/// polls before a yield is learned: few on a shared processor, many on two, where each yield is a
/// system call (about 0.3 µs) during which nothing is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Yield {
    /// No other thread ran here.
    Alone,
    /// Another thread ran here for a short time: maybe the one that is waited for.
    Switched,
    /// Another thread used up its time slice: an unrelated computation.
    Displaced,
}

impl Yield {
    /// A yield that switches to another thread and back takes longer: 1.3 µs where one that
    /// does not takes 0.2 to 0.35 µs.
    const SWITCH: Duration = Duration::from_nanos(700);
    /// A time slice takes longer; a peer that polls before it yields takes less.
    const SLICE: Duration = Duration::from_micros(500);

    fn for_duration(time: Duration) -> Yield {
        match time {
            _ if time < Self::SWITCH => Yield::Alone,
            _ if time < Self::SLICE => Yield::Switched,
            _ => Yield::Displaced,
        }
    }

    /// Polls before the next yield, where there were `polls` before this one. `ends` is
    /// true if it ended the wait.
    fn next_polls(self, polls: u32, ends: bool) -> u32 {
        match self {
            Yield::Alone => (2 * polls).min(Idle::POLLS_PER_LOOK),
            Yield::Switched if ends => (polls / 4).max(1),
            Yield::Switched => polls,
            Yield::Displaced => Idle::POLLS_PER_LOOK,
        }
    }
}

/// The idle time of one wait.
#[derive(Debug)]
pub(crate) struct Idle {
    strategy: WaitStrategy,
    deadline: Deadline,
    keepalive: Duration,
    polls: u32,
    /// Since when nothing has happened; read late, so that a wait which ends at
    /// once never reads the clock.
    since: Option<Instant>,
    /// The last look at the clock.
    until: Option<Instant>,
    /// True once a sleep was due.
    slept: bool,
    backoff: SleepBackoff,
    probe: Option<Deadline>,
    /// The probe was due when events were found that may be old.
    owes_probe: bool,
    /// It has probed the peer.
    has_probed: bool,
    /// The yield since which nothing was found.
    yielded: Option<Yield>,
    /// Looks that have found something, since the last look at the clock.
    found: u32,
    /// The deadline has passed while events were found.
    is_late: bool,
}

/// Time of the next probe of a silent peer, kept from a wait that timed out for the next one: a
/// caller that repeats short waits detects a dead peer as well.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silence(Option<Deadline>);

impl Idle {
    /// Empty polls between two looks at the clock, at most.
    const POLLS_PER_LOOK: u32 = 64;
    /// Looks with events between two reads of the clock: a peer that keeps sending other events
    /// does not prolong the wait.
    const FOUND_PER_LOOK: u32 = 64;

    pub(crate) fn new(strategy: WaitStrategy, deadline: Deadline, keepalive: Duration) -> Idle {
        let keepalive = keepalive.max(SHORTEST_KEEPALIVE);
        host::progress();
        Idle {
            strategy,
            deadline,
            keepalive,
            polls: 0,
            since: None,
            until: None,
            slept: false,
            backoff: SleepBackoff::new(),
            probe: None,
            owes_probe: false,
            has_probed: false,
            yielded: None,
            found: 0,
            is_late: false,
        }
    }

    /// Waits differently from now on.
    pub(crate) fn set_strategy(&mut self, strategy: WaitStrategy) {
        self.strategy = strategy;
    }

    /// Continues the keepalive interval of the wait that timed out before this one.
    pub(crate) fn resume(mut self, silence: &mut Silence) -> Idle {
        self.probe = silence.0.take();
        self
    }

    /// Returns the time to sleep for a word of memory, no longer than `most`: the longer nothing
    /// has arrived, the longer, since the word is late by no more than a quarter of the wait. Of
    /// many threads that wait, few are awake at a time.
    pub(crate) fn word_sleep(&self, most: Duration) -> Duration {
        let waited =
            self.since.zip(self.until).map_or(Duration::ZERO, |(since, until)| until - since);
        (waited / 4).clamp(POLL_SLEEP, SleepBackoff::LONGEST).min(most)
    }

    /// Returns the time to sleep for a word of memory, no longer than `most`, of a peer that may be
    /// quick: the first sleeps since something has arrived are short.
    pub(crate) fn short_sleep(&mut self, most: Duration) -> Duration {
        self.backoff.next().min(most)
    }

    /// The state to keep for the next wait when this one times out.
    pub(crate) fn silence(&self) -> Silence {
        Silence(self.probe)
    }

    /// Accounts for a look that has found `events` events, none of which ends the wait.
    pub(crate) fn after(&mut self, events: usize) -> WaitStep {
        if events == 0 {
            return self.step();
        }
        self.reset();
        self.found += 1;
        if self.found < Self::FOUND_PER_LOOK {
            return WaitStep::Again;
        }
        // The caller first looks whether the last events end its wait.
        if self.is_late {
            return WaitStep::TimedOut;
        }
        self.is_late = self.deadline.has_passed(host::time::now());
        self.found = if self.is_late { self.found } else { 0 };
        WaitStep::Again
    }

    /// Something happened.
    fn reset(&mut self) {
        self.learn_from_wait();
        // After a sleep up to the probe, it may have happened long before: the peer is still asked.
        let is_due = || self.probe.is_some_and(|at| at.has_passed(host::time::now()));
        self.owes_probe = self.owes_probe || self.slept && is_due();
        self.probe = self.probe.filter(|_| self.owes_probe);
        (self.polls, self.since, self.until) = (0, None, None);
        (self.slept, self.backoff) = (false, SleepBackoff::new());
    }

    /// Nothing happened.
    pub(crate) fn step(&mut self) -> WaitStep {
        self.learn(false);
        self.polls += 1;
        // A wait that has slept polls once for each sleep: the polls of many waiting threads would
        // take processor time from the awaited one.
        let sleeps_at_once = self.slept || self.strategy.spin_time() == Some(Duration::ZERO);
        // In virtual time `yield_until` lasts until something changes: polls before it only delay
        // that.
        let polls_on = self.polls < POLLS_PER_YIELD.get() && !host::has_own_processor();
        if !sleeps_at_once && polls_on {
            spin_loop();
            return WaitStep::Again;
        }
        self.polls = 0;
        self.look(host::time::now())
    }

    /// Learns from the last yield. `ends` is true if the next look found the awaited event.
    fn learn(&mut self, ends: bool) {
        if let Some(yielded) = self.yielded.take() {
            POLLS_PER_YIELD.set(yielded.next_polls(POLLS_PER_YIELD.get(), ends));
        }
    }

    /// Learns from the wait that has ended.
    fn learn_from_wait(&mut self) {
        self.learn(true);
        // A wait that ended before it read the clock has no measured time.
        if let (WaitStrategy::Adaptive, Some(since), Some(until)) =
            (self.strategy, self.since, self.until)
        {
            SPIN_TIME.set(SPIN_TIME.get().after(until - since, self.slept));
        }
    }

    fn look(&mut self, now: Instant) -> WaitStep {
        let since = *self.since.get_or_insert(now);
        self.until = Some(now);
        // A keepalive beyond the range of the clock is none.
        let next = Deadline(now.checked_add(self.keepalive));
        let probe = *self.probe.get_or_insert(next);
        // A probe precedes the deadline: waits that time out at once have to probe, too. A wait
        // that has probed ends: a thread that polls more rarely than it probes would otherwise
        // never end.
        let is_late = self.deadline.has_passed(now) && !is_planted(Plant::IgnoredDeadline);
        if probe.has_passed(now) && !(is_late && self.has_probed) {
            (self.probe, self.owes_probe, self.has_probed) = (Some(next), false, true);
            return WaitStep::Probe;
        }
        if is_late {
            return WaitStep::TimedOut;
        }
        if self.strategy.spin_time().is_some_and(|spin| now.duration_since(since) >= spin) {
            self.slept = true;
            return WaitStep::Sleep(self.deadline.remaining(now).min(probe.remaining(now)));
        }
        // Two ends of a connection may share a core: let the other one run.
        yield_until(self.next_change(since, probe));
        // A rest in a world gives no information about processors.
        let yielded = || Yield::for_duration(host::time::since(now));
        self.yielded = (!host::has_own_processor()).then(yielded);
        WaitStep::Again
    }

    /// Returns the time when a wait that finds nothing does something else.
    fn next_change(&self, since: Instant, probe: Deadline) -> Option<Instant> {
        let sleeps_at = self.strategy.spin_time().and_then(|time| since.checked_add(time));
        self.deadline.or_earlier(probe).or_earlier(Deadline(sleeps_at)).0
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.learn_from_wait();
    }
}

#[cfg(test)]
mod tests;
