//! Parameters of the loop, and reasons why it does not run.

use thiserror::Error;

use crate::errno::Errno;
use crate::error::{
    AllocPdError, ChooseGidError, CreateCqError, CreateQpError, ModifyQpError, QueryPortError,
};
use crate::status::WcStatus;

/// Parameters of the loop. All counts are at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawLoopConfig {
    /// Bytes of a message.
    pub size: u32,
    /// Messages posted with one doorbell.
    pub batch: u32,
    /// Messages sent and not completed, at most.
    pub unacked: u32,
    /// Every how many messages one is signalled.
    pub signal_every: u32,
    /// Completions taken at a time.
    pub poll_batch: u32,
    /// Receives posted at a time.
    pub repost_batch: u32,
    /// Receive buffers.
    pub slots: u32,
    /// True if messages that fit are handed over inline.
    pub inline: bool,
}

impl Default for RawLoopConfig {
    /// The batched configuration of Fischer's "Send Receive": 8 per doorbell, 256
    /// unacknowledged, 32 polled.
    fn default() -> RawLoopConfig {
        RawLoopConfig {
            size: 16,
            batch: 8,
            unacked: 256,
            signal_every: 32,
            poll_batch: 32,
            repost_batch: 32,
            slots: 512,
            inline: false,
        }
    }
}

/// Reasons why the loop did not run.
#[derive(Debug, Error)]
pub enum RawLoopError {
    /// A setting with which it would stand still.
    #[error("{0}")]
    Config(&'static str),
    /// Set-up.
    #[error(transparent)]
    Pd(#[from] AllocPdError),
    /// Set-up.
    #[error(transparent)]
    Cq(#[from] CreateCqError),
    /// Set-up.
    #[error(transparent)]
    Qp(#[from] CreateQpError),
    /// Set-up.
    #[error(transparent)]
    Gid(#[from] ChooseGidError),
    /// Set-up.
    #[error(transparent)]
    Port(#[from] QueryPortError),
    /// Set-up.
    #[error(transparent)]
    Connect(#[from] ModifyQpError),
    /// There was no thread for the receiver.
    #[error("no thread for the receiver: {0}")]
    Thread(std::io::Error),
    /// A verb failed while it ran.
    #[error("{verb}: {errno}")]
    Verb {
        /// Name of the verb.
        verb: &'static str,
        /// The reason.
        errno: Errno,
    },
    /// A request failed while it ran.
    #[error("a request completed with {0}")]
    Completion(WcStatus),
}

pub(super) fn check(config: &RawLoopConfig) -> Result<(), RawLoopError> {
    let c = config;
    let counts = [c.batch, c.unacked, c.signal_every, c.poll_batch, c.repost_batch, c.slots];
    match c {
        _ if counts.contains(&0) => Err(RawLoopError::Config("counts are at least 1")),
        // With `signal_every - 1` unsignalled ones in flight, a list has to fit still.
        c if u64::from(c.signal_every) + u64::from(c.batch) > u64::from(c.unacked) + 1 => {
            Err(RawLoopError::Config("signal_every and batch are too many for unacked"))
        }
        // Up to `repost_batch - 1` receives are not posted while they gather.
        c if u64::from(c.repost_batch) + u64::from(c.batch) > u64::from(c.slots) + 1 => {
            Err(RawLoopError::Config("repost_batch and batch are too many for slots"))
        }
        _ => Ok(()),
    }
}
