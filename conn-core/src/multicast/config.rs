//! Configuration on which all members of a group agree.

use core::fmt;
use core::num::NonZeroU32;

use super::{MAX_MEMBERS, Members, Rank};
use crate::push_inhibitor::PushRule;
use crate::ring::record_bytes;

/// The largest window, in turns.
pub const MAX_WINDOW: u32 = 1 << 20;

/// Policy for pushing counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Pushes when the count of messages, sent or received, crosses a multiple of k, however far it
    /// jumped. With k = 1, every message is pushed and acknowledged by writes of its own. A push
    /// that is inhibited goes at the deadline.
    Every(u32),
    /// All that has gathered since the last pass, at once.
    Opportunistic,
    /// The same; and a sender that has nothing to send fills its turns with null messages,
    /// so that no other sender's messages wait for it.
    OpportunisticWithNulls,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(k) => write!(f, "every:{k}"),
            Self::Opportunistic => f.write_str("opportunistic"),
            Self::OpportunisticWithNulls => f.write_str("opportunistic-null"),
        }
    }
}

/// Write requests of all members for one message that shares none: slots and slot counter
/// to each of the others, and each member's received counter to each of the others.
///
/// ```
/// assert_eq!(conn_core::multicast::writes_per_multicast(3), 10);
/// ```
pub const fn writes_per_multicast(members: u8) -> u32 {
    let n = members as u32;
    n.saturating_sub(1) * (n + 2)
}

/// A group, as one of its members knows it. All but `rank` is the same at all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Members, 2 to [`MAX_MEMBERS`].
    pub members: u8,
    /// The rank of this member.
    pub rank: Rank,
    /// The members that send: their turns make up the order.
    pub senders: Members,
    /// Turns that a sender may have under way: 1 to [`MAX_WINDOW`].
    pub window: u32,
    /// The longest message, in bytes.
    pub max_message: u32,
    /// Bytes of a slot ring: a power of two that holds a window of the longest messages
    /// ([`capacity_for`](Self::capacity_for)).
    pub capacity: u64,
    /// True if the rings lie in memory that is mapped twice in a row, at all members: bytes that
    /// cross the end take one write instead of two.
    pub is_mirrored: bool,
    /// Policy for pushing counters.
    pub policy: Policy,
    /// Longest time that a push may be inhibited, in nanoseconds.
    pub deadline_ns: u64,
    /// Time without a push after which a member pushes its row to show that it lives, in
    /// nanoseconds.
    pub health_ns: u64,
    /// Longest time that a member's health counter may stand still, in nanoseconds.
    pub suspect_ns: u64,
}

impl Default for Config {
    /// Rank 0 of three members, the one that sends: a window of 1000 messages of up to 1 KiB, a
    /// push for every message, a deadline of 150 µs, a sign of life every 100 ms, and a suspicion
    /// after 5 s.
    fn default() -> Self {
        Self {
            members: 3,
            rank: Rank(0),
            senders: Members::first(1),
            window: 1000,
            max_message: 1024,
            capacity: Self::capacity_for(1000, 1024),
            is_mirrored: false,
            policy: Policy::Every(1),
            deadline_ns: 150_000,
            health_ns: 100_000_000,
            suspect_ns: 5_000_000_000,
        }
    }
}

/// A group that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// 2 to [`MAX_MEMBERS`] members.
    #[error("a group of {0}: it has 2 to {max} members", max = MAX_MEMBERS)]
    Members(u8),
    /// The own rank or that of a sender is not in the group, or there is no sender.
    #[error("the own rank and all senders must be members, and there is at least one sender")]
    Ranks,
    /// No window, or one of more than [`MAX_WINDOW`].
    #[error("a window of {0}: it has 1 to {max} messages", max = MAX_WINDOW)]
    Window(u32),
    /// k is 0, or over the window.
    #[error("a push every {k} messages: 1 to the window, {window}")]
    Every {
        /// The k that was asked for.
        k: u32,
        /// The window.
        window: u32,
    },
    /// The ring does not hold a window of the longest messages.
    #[error("the window needs a ring of {needed} bytes, it has {capacity}")]
    WindowOverRing {
        /// Bytes that the window needs.
        needed: u64,
        /// Bytes that the ring has.
        capacity: u64,
    },
    /// The ring is no power of two, or larger than 4 GiB.
    #[error("a ring of {0} bytes: it has a power of two, up to 4 GiB")]
    Capacity(u64),
    /// A member would be suspected before it has to show that it lives.
    #[error("members are suspected before they have to show that they live")]
    Suspicion,
    /// A link to a member that has gone is given up no earlier than the member is suspected.
    #[error("a link tries longer than a member may be silent: less time or fewer retries")]
    RetryTime,
}

/// Room for the end of the stream, which takes no turn.
const SPARE: u64 = 64;
/// A repair has this many bytes, or one record if that is longer.
const REPAIR_BYTES: u64 = 4096;

impl Config {
    /// Bytes of a ring for a window of messages of at most `max_message` bytes.
    ///
    /// ```
    /// assert_eq!(conn_core::multicast::Config::capacity_for(1000, 100), 131072);
    /// ```
    pub const fn capacity_for(window: u32, max_message: u32) -> u64 {
        Self::needed(window, max_message).next_power_of_two()
    }

    const fn needed(window: u32, max_message: u32) -> u64 {
        window as u64 * record_bytes(max_message) + SPARE
    }

    /// Bytes of a repair's payload.
    pub const fn repair_bytes(&self) -> u64 {
        let record = record_bytes(self.max_message);
        if record > REPAIR_BYTES { record } else { REPAIR_BYTES }
    }

    /// Checks that such a group is possible.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub const fn check(&self) -> Result<(), ConfigError> {
        let all = Members::first(self.members);
        if self.members < 2 || self.members as usize > MAX_MEMBERS {
            return Err(ConfigError::Members(self.members));
        }
        if !all.contains(self.rank) || self.senders.is_empty() || !self.senders.is_subset(all) {
            return Err(ConfigError::Ranks);
        }
        if self.window == 0 || self.window > MAX_WINDOW {
            return Err(ConfigError::Window(self.window));
        }
        if let Policy::Every(k) = self.policy
            && (k == 0 || k > self.window)
        {
            return Err(ConfigError::Every { k, window: self.window });
        }
        let (needed, capacity) = (Self::needed(self.window, self.max_message), self.capacity);
        if capacity < needed {
            return Err(ConfigError::WindowOverRing { needed, capacity });
        }
        if !capacity.is_power_of_two() || capacity > 1 << 32 {
            return Err(ConfigError::Capacity(capacity));
        }
        if self.health_ns == 0 || self.suspect_ns <= self.health_ns {
            return Err(ConfigError::Suspicion);
        }
        Ok(())
    }

    /// The rule by which a member inhibits pushes. Opportunistic pushes are not inhibited.
    pub const fn push_rule(&self) -> PushRule {
        let every = match self.policy {
            Policy::Every(k) => NonZeroU32::new(k),
            Policy::Opportunistic | Policy::OpportunisticWithNulls => None,
        };
        let every = if let Some(k) = every { k } else { NonZeroU32::MIN };
        PushRule { every, deadline_ns: self.deadline_ns }
    }

    /// All members.
    #[inline]
    pub const fn all(&self) -> Members {
        Members::first(self.members)
    }
}
