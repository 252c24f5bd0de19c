//! Reasons to cut off a member.

use core::fmt;

use super::Rank;

/// Statement of a member that cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lie {
    /// A counter of its row went backwards, or a set lost a member.
    #[error("a counter of it went backwards")]
    Backwards,
    /// Its slot counter is beyond the window, or it is no sender.
    #[error("its slot counter is beyond the window")]
    BeyondWindow,
    /// Its slot counter lies within a record.
    #[error("its slot counter lies within a message")]
    PartOfRecord,
    /// It acknowledges turns that were not sent.
    #[error("it acknowledges what was not sent")]
    NotSent,
    /// A record longer than the longest message.
    #[error("a message of it claims {claimed} bytes, more than a slot has")]
    TooLong {
        /// Length that the record claims, in bytes.
        claimed: u32,
    },
    /// Its slots hold something that is no record.
    #[error("what it wrote into its slots is no message")]
    NoRecord,
    /// A record behind the end of its stream.
    #[error("it sends after it has ended its stream")]
    BehindEnd,
    /// It names members that are not in the group, or itself.
    #[error("it names members that the group does not have")]
    NoMember,
    /// A repair that is none.
    #[error("what it repairs is not what is missing")]
    NoRepair,
    /// It has finished, and lacks messages that it would have had to deliver, or claims some
    /// that this member lacks.
    #[error("it has finished before all members had all")]
    Unfinished,
    /// It has finished, and its own stream has no end.
    #[error("it has finished, and its stream has no end")]
    NoEnd,
}

/// Reason why a member is suspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Its health counter stands still.
    StandsStill,
    /// Writes to it fail.
    Unreachable,
    /// It has left while others were still sending.
    Left,
    /// It broke the protocol.
    Lied(Lie),
    /// It lives, and does not do its part in agreeing on the end.
    Withholds,
    /// Another member suspects it.
    AccusedBy(Rank),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StandsStill => f.write_str("its health counter stands still"),
            Self::Unreachable => f.write_str("it cannot be reached"),
            Self::Left => f.write_str("it has left"),
            Self::Lied(lie) => lie.fmt(f),
            Self::Withholds => f.write_str("the survivors wait for it in vain to agree on the end"),
            Self::AccusedBy(rank) => write!(f, "{rank} suspects it"),
        }
    }
}
