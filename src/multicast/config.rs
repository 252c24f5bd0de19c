//! Configuration of a group.

use std::time::Duration;

use conn_core::multicast::{Config as CoreConfig, ConfigError, MAX_MEMBERS, Members, Policy, Rank};
use host::plant::{Plant, is_planted};

use super::error::JoinError;
use crate::raw::Link;

/// Bytes of a ring from which on it is mapped twice in a row: whole pages of any system.
const MIRRORED: u64 = 64 << 10;

/// A group: all members are made with the same. Between processes the leader's holds, and a
/// member that joins contributes its own [`link`](Config::link),
/// [`max_members`](Config::max_members) and [`max_ring_bytes`](Config::max_ring_bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Members, 2 to 16.
    pub members: u8,
    /// Members that send: those of the lowest ranks. The turns of all of them make up the order, so
    /// that a member that sends little holds up the others, unless nulls take its turns.
    pub senders: u8,
    /// Messages that a sender may have under way.
    pub window: u32,
    /// The longest message, in bytes.
    pub message_bytes: u32,
    /// Bytes of a slot ring, a power of two; `None`: as many as the window needs.
    pub ring_bytes: Option<u64>,
    /// Rule for when counters are pushed.
    pub policy: Policy,
    /// Longest time for which a push may be inhibited.
    pub deadline: Duration,
    /// Time without a push after which a member shows that it lives.
    pub health: Duration,
    /// Longest time for which a member's health counter may stand still before the member is cut
    /// off: a member that is not driven for that time is treated as dead. Also the time that the
    /// survivors of a failure wait for a live member to agree, to acknowledge and to repair. It
    /// must be longer than the link retries (`timeout` and `retry_count`).
    pub suspect_after: Duration,
    /// Settings by which the queue pairs reach their peers.
    pub link: Link,
    /// The largest group that this member joins, in members: a leader that wants a larger one
    /// is refused with [`JoinError::OverLimit`].
    pub max_members: u8,
    /// The largest slot ring that this member makes for a leader, in bytes; a leader that wants
    /// larger ones is refused in the same way. A member of a group of n with rings of c bytes
    /// registers n rings, keeps n private copies of c bytes, and never more than 4 n c bytes in
    /// all, lists and repairs included.
    pub max_ring_bytes: u64,
}

impl Default for Config {
    /// Three members, one of which sends; a window of 1000 messages of up to 1 KiB; a push
    /// for every message; a deadline of 150 µs; a sign of life every 100 ms, and a suspicion
    /// after 5 s. A member joins groups of up to 16, with rings of up to 32 MiB.
    fn default() -> Config {
        Config {
            members: 3,
            senders: 1,
            window: 1000,
            message_bytes: 1024,
            ring_bytes: None,
            policy: Policy::Every(1),
            deadline: Duration::from_micros(150),
            health: Duration::from_millis(100),
            suspect_after: Duration::from_secs(5),
            link: Link::default(),
            max_members: MAX_MEMBERS as u8,
            max_ring_bytes: 32 << 20,
        }
    }
}

impl Config {
    /// Checks that a group can have this configuration.
    ///
    /// # Errors
    /// [`ConfigError`] names the impossible setting.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.core(Rank(0)).check()?;
        patient(self.link, self.suspect_after)
    }

    /// Checks a leader's terms against the limits of this member.
    pub(super) fn admit(&self, asked: &CoreConfig) -> Result<(), JoinError> {
        for (field, value, limit) in [
            ("max_members", asked.members.into(), self.max_members.into()),
            ("max_ring_bytes", asked.capacity, self.max_ring_bytes),
        ] {
            if value > limit {
                return Err(JoinError::OverLimit { field, value, limit });
            }
        }
        Ok(patient(self.link, Duration::from_nanos(asked.suspect_ns))?)
    }

    /// As the protocol has it, at one member.
    pub(super) fn core(&self, rank: Rank) -> CoreConfig {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let needed = || CoreConfig::capacity_for(self.window, self.message_bytes).max(MIRRORED);
        let capacity = self.ring_bytes.unwrap_or_else(needed);
        CoreConfig {
            members: self.members,
            rank,
            senders: Members::first(self.senders),
            window: self.window,
            max_message: self.message_bytes,
            capacity,
            is_mirrored: capacity >= MIRRORED,
            policy: planted(self.policy),
            deadline_ns: ns(self.deadline),
            health_ns: ns(self.health),
            suspect_ns: ns(self.suspect_after),
        }
    }
}

/// The policy, but where a test plants a fault.
fn planted(policy: Policy) -> Policy {
    match policy {
        Policy::Every(_) if is_planted(Plant::IgnoredK) => Policy::Every(1),
        Policy::Every(5) if is_planted(Plant::ExchangedK) => Policy::Every(25),
        Policy::Every(25) if is_planted(Plant::ExchangedK) => Policy::Every(5),
        policy => policy,
    }
}

/// Checks that a member that is gone is found unreachable before it is cut off for its silence:
/// until then, writes that are due to it hold up the writes to the others.
pub(super) fn patient(link: Link, suspect_after: Duration) -> Result<(), ConfigError> {
    let once = Duration::from_nanos(4096) * (1 << link.timeout.min(31));
    let tries = once * (u32::from(link.retry_count) + 1);
    if link.timeout == 0 || tries >= suspect_after {
        return Err(ConfigError::RetryTime);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
