//! How a thread waits: on the processor, in the kernel, or first the one and then
//! the other; and the promise that every wait ends.

use std::hint::spin_loop;
use std::thread::yield_now;
use std::time::{Duration, Instant};

/// What a waiting thread does with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitStrategy {
    /// Polls without ever sleeping: the lowest latency, one core busy.
    Spin,
    /// Sleeps on the completion channel at once: no core busy, an interrupt's
    /// latency (some 50 µs) for every wait.
    Block,
    /// Polls for a while and sleeps after that.
    SpinThenBlock(
        /// How long to poll before sleeping.
        Duration,
    ),
    /// [`SpinThenBlock`](WaitStrategy::SpinThenBlock) with a time that is about
    /// that of a wake-up (50 µs), which at worst doubles the cost of a wait.
    #[default]
    Adaptive,
}

impl WaitStrategy {
    /// How long to poll before sleeping; `None` is for ever.
    fn spin_time(self) -> Option<Duration> {
        match self {
            WaitStrategy::Spin => None,
            WaitStrategy::Block => Some(Duration::ZERO),
            WaitStrategy::SpinThenBlock(time) => Some(time),
            WaitStrategy::Adaptive => Some(Duration::from_micros(50)),
        }
    }

    /// Whether a completion channel is needed.
    pub(crate) fn may_block(self) -> bool {
        self.spin_time().is_some()
    }
}

/// When a wait has to end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub(crate) const NEVER: Deadline = Deadline(None);

    /// `timeout` from now; a time that the clock cannot hold is never.
    pub(crate) fn after(timeout: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(timeout))
    }

    pub(crate) fn has_passed(self, now: Instant) -> bool {
        self.0.is_some_and(|at| now >= at)
    }

    /// What is left of it.
    pub(crate) fn remaining(self, now: Instant) -> Duration {
        self.0.map_or(Duration::MAX, |at| at.saturating_duration_since(now))
    }
}

/// How long a thread sleeps that waits for a word of memory, which no interrupt tells of.
pub(crate) const NAP: Duration = Duration::from_micros(200);

/// What is logged with a probe.
pub(crate) const SILENT: &str = "nothing has happened for a while: asks whether the peer is there";

/// What a waiter that found nothing to do is to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Look again.
    Again,
    /// Sleep on the channel, for so long at most.
    Sleep(Duration),
    /// Nothing has happened for a keepalive interval: ask whether the peer lives.
    Probe,
    /// The caller's time is up.
    TimedOut,
}

/// Sleeps of a wait for what nobody tells, from 20 µs to a millisecond.
#[derive(Debug)]
pub(crate) struct Nap(Duration);

impl Nap {
    const LONGEST: Duration = Duration::from_millis(1);

    pub(crate) fn new() -> Nap {
        Nap(Duration::from_micros(20))
    }

    /// Sleeps, no longer than `most`; the next time for longer.
    pub(crate) fn take(&mut self, most: Duration) {
        std::thread::sleep(self.0.min(most));
        self.0 = (2 * self.0).min(Self::LONGEST);
    }
}

impl Default for Nap {
    fn default() -> Nap {
        Nap::new()
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
    probe: Option<Deadline>,
}

/// When a silent peer is to be probed, kept from a wait that timed out for the next
/// one: whoever waits for a short time again and again hears of a dead peer as well.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Silence(Option<Deadline>);

impl Idle {
    /// Empty polls between two looks at the clock.
    const POLLS_PER_LOOK: u32 = 64;
    /// A shorter one would leave no time for anything but probes.
    const SHORTEST_KEEPALIVE: Duration = Duration::from_millis(1);

    pub(crate) fn new(strategy: WaitStrategy, deadline: Deadline, keepalive: Duration) -> Idle {
        let keepalive = keepalive.max(Self::SHORTEST_KEEPALIVE);
        Idle { strategy, deadline, keepalive, polls: 0, since: None, probe: None }
    }

    /// Goes on where the wait before this one was given up.
    pub(crate) fn resume(mut self, silence: &mut Silence) -> Idle {
        self.probe = silence.0.take();
        self
    }

    /// The wait is given up.
    pub(crate) fn silence(&self) -> Silence {
        Silence(self.probe)
    }

    /// Something happened.
    pub(crate) fn reset(&mut self) {
        self.polls = 0;
        self.since = None;
        self.probe = None;
    }

    /// Nothing happened.
    pub(crate) fn step(&mut self) -> Step {
        self.polls += 1;
        let sleeps_at_once = self.strategy.spin_time() == Some(Duration::ZERO);
        if !sleeps_at_once && !self.polls.is_multiple_of(Self::POLLS_PER_LOOK) {
            spin_loop();
            return Step::Again;
        }
        self.look(Instant::now())
    }

    fn look(&mut self, now: Instant) -> Step {
        let since = *self.since.get_or_insert(now);
        // A keepalive that the clock cannot hold is none.
        let next = Deadline(now.checked_add(self.keepalive));
        let probe = *self.probe.get_or_insert(next);
        if probe.has_passed(now) {
            self.probe = Some(next);
            return Step::Probe;
        }
        // After the probe: waits that are over at once have to come to it, too.
        if self.deadline.has_passed(now) {
            return Step::TimedOut;
        }
        if self.strategy.spin_time().is_some_and(|spin| now.duration_since(since) >= spin) {
            return Step::Sleep(self.deadline.remaining(now).min(probe.remaining(now)));
        }
        // Two ends of a connection may share a core: let the other one run.
        yield_now();
        Step::Again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    fn idle(strategy: WaitStrategy, timeout: Option<Duration>) -> Idle {
        let deadline = timeout.map_or(Deadline::NEVER, Deadline::after);
        Idle::new(strategy, deadline, 10 * TICK)
    }

    #[test]
    fn a_timeout_ends_every_strategy() {
        for strategy in [WaitStrategy::Spin, WaitStrategy::Block, WaitStrategy::Adaptive] {
            let mut idle = idle(strategy, Some(TICK));
            assert_eq!(idle.look(Instant::now() + 2 * TICK), Step::TimedOut, "{strategy:?}");
        }
    }

    #[test]
    fn a_blocking_wait_sleeps_at_once_and_never_past_its_deadline() {
        let mut idle = idle(WaitStrategy::Block, Some(3 * TICK));
        match idle.step() {
            Step::Sleep(time) => assert!(time <= 3 * TICK),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_silent_peer_is_probed_once_per_interval() {
        let mut idle = idle(WaitStrategy::Spin, None);
        let start = Instant::now();
        assert_eq!(idle.look(start), Step::Again);
        assert_eq!(idle.look(start + 9 * TICK), Step::Again);
        assert_eq!(idle.look(start + 10 * TICK), Step::Probe);
        assert_eq!(idle.look(start + 11 * TICK), Step::Again);
        assert_eq!(idle.look(start + 20 * TICK), Step::Probe);
        idle.reset();
        assert_eq!(idle.look(start + 21 * TICK), Step::Again);
    }

    #[test]
    fn short_waits_add_up_to_a_keepalive_interval() {
        let (start, mut silence, mut probes) = (Instant::now(), Silence::default(), 0);
        for wait in 0..35 {
            let mut idle = idle(WaitStrategy::Spin, Some(Duration::ZERO)).resume(&mut silence);
            let now = start + wait * TICK;
            while idle.look(now) == Step::Probe {
                probes += 1;
            }
            silence = idle.silence();
        }
        assert_eq!(probes, 3);
    }

    #[test]
    fn a_keepalive_of_no_time_leaves_time_to_end() {
        let deadline = Deadline::after(Duration::ZERO);
        let mut idle = Idle::new(WaitStrategy::Spin, deadline, Duration::ZERO);
        assert_eq!(idle.look(Instant::now() + TICK), Step::TimedOut);
    }

    #[test]
    fn a_keepalive_beyond_the_clock_is_none() {
        let mut idle = Idle::new(WaitStrategy::Block, Deadline::NEVER, Duration::MAX);
        assert_eq!(idle.step(), Step::Sleep(Duration::MAX));
    }

    #[test]
    fn spinning_gives_way_to_sleep_after_its_time() {
        let mut idle = idle(WaitStrategy::SpinThenBlock(2 * TICK), None);
        let start = Instant::now();
        assert_eq!(idle.look(start), Step::Again);
        assert_eq!(idle.look(start + TICK), Step::Again);
        assert_eq!(idle.look(start + 2 * TICK), Step::Sleep(8 * TICK));
    }
}
