//! What goes wrong in a group.

use std::time::Duration;

use conn_core::multicast::{ConfigError, Rank, Reason};

use crate::send_recv::ConnectError;

/// Why a group has ended, to one of its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A member was cut off, and the survivors agree on the end.
    #[error("{member} was cut off: {reason}")]
    CutOff {
        /// Who.
        member: Rank,
        /// Why.
        reason: Reason,
    },
    /// The others go on without this member.
    #[error("{by} suspects this member, and the others go on without it")]
    Excluded {
        /// Who said so.
        by: Rank,
    },
    /// This member has gone: nobody drives it any more.
    #[error("this member has gone")]
    Gone,
    /// There was more to come when the time that it was given was over.
    #[error("the group has not come to its end in time")]
    TimedOut,
}

/// Why a message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// A window of messages is under way: drive the group, or wait for whoever does.
    #[error("a window of messages is under way")]
    WindowFull,
    /// It is longer than the group's messages may be.
    #[error("a message of {len} bytes; the group has at most {most}")]
    TooLong {
        /// What was to be sent, in bytes.
        len: usize,
        /// What may be.
        most: u32,
    },
    /// This member is none of the senders.
    #[error("this member is none of the group's senders")]
    NotSender,
    /// The stream of this member has ended.
    #[error("this member has ended its stream")]
    Ended,
    /// The group takes no more messages.
    #[error("the group has ended: {0}")]
    Group(#[from] GroupError),
}

/// Why a group was not set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// There can be no such group.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device refused something, or a stream broke.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Too few have come to the leader in time.
    #[error("{came} of {wanted} other members came within {within:?}")]
    Missing {
        /// Who has come, and not left.
        came: usize,
        /// Who was waited for.
        wanted: usize,
        /// How long they were waited for.
        within: Duration,
    },
}
