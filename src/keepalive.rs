//! The times at which a half probes its peers, also in a program that makes no call that waits.

use std::time::{Duration, Instant};

/// The shortest keepalive interval: a shorter one would leave no time for anything but probes.
pub(crate) const SHORTEST_KEEPALIVE: Duration = Duration::from_millis(1);

/// Logged with a probe.
pub(crate) const SILENT: &str = "nothing has happened for a while: asks whether the peer is there";

/// Ticks of the system's coarse clock ([`host::time::tick`]), which are 1 to 10 ms apart.
///
/// Reading it takes a few nanoseconds, a tenth of the fastest connection's time for a message. So
/// within one tick, three of four calls do not read it. A program that makes few calls reads it in
/// each: it is late by at most three calls, the first ones after a busy time.
#[derive(Debug, Default)]
struct Ticks {
    at: u64,
    /// Calls that do not look.
    skips: u32,
}

impl Ticks {
    const SKIPS: u32 = 3;

    /// True until the next [`take`](Self::take), once the clock has ticked.
    #[inline]
    fn has_come(&mut self) -> bool {
        if self.skips > 0 {
            self.skips -= 1;
            return false;
        }
        let has_come = host::time::tick() != self.at;
        self.skips = if has_come { 0 } else { Self::SKIPS };
        has_come
    }

    fn take(&mut self) {
        self.at = host::time::tick();
    }
}

/// Rounds of probes, for a half that serves several peers or is only polled: none of its waits ends with the silence
/// of one peer. A round is due half of `keepalive` after the one before, and probes the peers from which nothing has
/// arrived since. So each is probed within `keepalive` after its last message, if the half sleeps no longer than
/// [`left`](Self::left).
#[derive(Debug, Default)]
pub(crate) struct ProbeRounds(Option<Instant>);

impl ProbeRounds {
    fn interval(keepalive: Duration) -> Duration {
        keepalive.max(SHORTEST_KEEPALIVE) / 2
    }

    /// The time until the next round.
    pub(crate) fn left(&self, keepalive: Duration) -> Duration {
        let (now, interval) = (host::time::now(), Self::interval(keepalive));
        self.0.map_or(interval, |since| interval.saturating_sub(now.duration_since(since)))
    }

    /// True if a round is due: it begins now.
    pub(crate) fn is_due(&mut self, now: Instant, keepalive: Duration) -> bool {
        let since = *self.0.get_or_insert(now);
        let is_due = now.duration_since(since) >= Self::interval(keepalive);
        self.0 = Some(if is_due { now } else { since });
        is_due
    }
}

/// Work for the connection in a call that does not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeepaliveDue {
    /// Nothing.
    No,
    /// It takes completions: a probe is under way.
    Answers,
    /// It takes completions, and asks after peers that are silent.
    Round,
}

/// Calls that do not wait look after the peers in each round, and after each tick while a probe is under way. No more
/// often: runs by seed would depend on the time of day.
#[derive(Debug, Default)]
pub(crate) struct PeerWatch {
    ticks: Ticks,
    rounds: ProbeRounds,
    /// The last round has asked.
    asks: bool,
    /// Known in the last round.
    heard: u64,
}

impl PeerWatch {
    /// True until the next [`look`](Self::look), once the clock has ticked.
    #[inline]
    pub(crate) fn has_ticked(&mut self) -> bool {
        self.ticks.has_come()
    }

    /// The work of this call.
    #[inline]
    pub(crate) fn look(&mut self, keepalive: Duration) -> KeepaliveDue {
        if self.ticks.has_come() { self.look_after_tick(keepalive) } else { KeepaliveDue::No }
    }

    #[cold]
    fn look_after_tick(&mut self, keepalive: Duration) -> KeepaliveDue {
        self.ticks.take();
        match self.begins_round(keepalive) {
            true => KeepaliveDue::Round,
            false if self.asks => KeepaliveDue::Answers,
            false => KeepaliveDue::No,
        }
    }

    /// True if a round is due: it begins now.
    pub(crate) fn begins_round(&mut self, keepalive: Duration) -> bool {
        self.rounds.is_due(host::time::now(), keepalive)
    }

    /// The time until the next round.
    pub(crate) fn left(&self, keepalive: Duration) -> Duration {
        self.rounds.left(keepalive)
    }

    /// Notes whether the round asks, or has asked before and has no answer yet.
    pub(crate) fn asks(&mut self, asks: bool) {
        self.asks = asks;
    }

    /// In a round with one peer: returns true, and notes a probe, if `heard` is the same as in the
    /// round before. `heard` is a number that changes with each sign of life of the peer and each
    /// probe.
    pub(crate) fn is_silent(&mut self, heard: u64) -> bool {
        self.asks = heard == std::mem::replace(&mut self.heard, heard);
        self.asks
    }
}

#[cfg(test)]
mod tests;
