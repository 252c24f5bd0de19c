//! Errors of a group.

use std::fmt;
use std::time::Duration;

use conn_core::multicast::{ConfigError, Rank, Reason};

use crate::error::ConnectError;

/// Reason why a group has ended, to one of its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A member was cut off, and the survivors agree on the end.
    #[error("{member} was cut off: {reason}")]
    CutOff {
        /// The member that was cut off.
        member: Rank,
        /// The reason.
        reason: Reason,
    },
    /// The others continue without this member.
    #[error("{by} suspects this member, and the others continue without it")]
    Excluded {
        /// The member that suspects this one.
        by: Rank,
    },
    /// This member has gone: no thread drives it any more.
    #[error("this member has gone")]
    Gone,
    /// The time limit passed before the group had ended.
    #[error("the group has not ended in time{}", UnsentMessages(*unsent))]
    TimedOut {
        /// Messages of this member that were accepted and not pushed.
        unsent: u64,
    },
}

/// Words of an error about messages that were not pushed.
struct UnsentMessages(u64);

impl fmt::Display for UnsentMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => f.write_str(": 1 accepted message was not pushed"),
            n => write!(f, ": {n} accepted messages were not pushed"),
        }
    }
}

/// Reason why a message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// A window of messages is under way: drive the group, or wait until the thread that
    /// drives it has delivered some.
    #[error("a window of messages is under way")]
    WindowFull,
    /// It is longer than the group's messages may be.
    #[error("a message of {len} bytes; the group has at most {most}")]
    TooLong {
        /// Length of the message, in bytes.
        len: usize,
        /// Longest message of the group, in bytes.
        most: u32,
    },
    /// This member is none of the senders.
    #[error("this member is none of the group's senders")]
    NotSender,
    /// The stream of this member has ended.
    #[error("this member has ended its stream")]
    Ended,
    /// The time was over first.
    #[error("the time was over{}", UnsentMessages(*unsent))]
    TimedOut {
        /// Messages of this member that were accepted and not pushed: they wait for the group
        /// to be driven, or for the deadline of an inhibited push ([`flush`](super::Sender::flush)
        /// sends them at once).
        unsent: u64,
    },
    /// The group takes no more messages.
    #[error("the group has ended: {0}")]
    Group(#[from] GroupError),
}

/// Reason why a group was not set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// There can be no such group.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device refused something, or a stream broke.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The leader asks for more than this member's [`Config`](super::Config) allows.
    #[error(
        "the leader asks for {value}, and {field} of this member is {limit}: raise {field}, or \
         make the leader's group smaller"
    )]
    OverLimit {
        /// The field of [`Config`](super::Config) that limits it; its docs have the unit.
        field: &'static str,
        /// Value that the leader asks for.
        value: u64,
        /// Limit of this member.
        limit: u64,
    },
    /// Too few members have connected to the leader in time.
    #[error("{came} of {wanted} other members connected within {within:?}")]
    Missing {
        /// The other members that have connected and not left.
        came: usize,
        /// The other members that were waited for.
        wanted: usize,
        /// Time for which they were waited for.
        within: Duration,
    },
}
