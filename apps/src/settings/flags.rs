//! Flags of settings that several connections have, or that a verb without a connection has, too.

use super::spec::flag;
use super::{FlagSpec, ValueSyntax};

/// Help headings of flags that only some connections have.
pub(super) const QUEUES: &str = "Queues of Send/Receive (a part of this is for the others, too)";
pub(super) const RINGS: &str = "Buffered Read and Buffered Write";

pub(crate) const UNACKED: FlagSpec = flag! {
    /// Unacknowledged messages at most [default: the preset's, or less if messages are long; of
    /// Direct Read 32, or less; of its pingpong 1]
    "--unacked", QUEUES, ValueSyntax::Number("N")
};

pub(crate) const BATCH: FlagSpec = flag! {
    /// Messages posted with one doorbell [default: the preset's: 8 of batched, else 1; of bench
    /// over Direct Write and Shared Write up to 8]
    "--batch", QUEUES, ValueSyntax::Number("N")
};

pub(crate) const SIGNAL_EVERY: FlagSpec = flag! {
    /// Number of sends of which one is signalled [default: chosen]
    "--signal-every", QUEUES, ValueSyntax::Number("N")
};

pub(crate) const RECV_DEPTH: FlagSpec = flag! {
    /// Receive buffers posted for each sender [default: twice --unacked]
    "--recv-depth", QUEUES, ValueSyntax::Number("K")
};

pub(crate) const POLL_BATCH: FlagSpec = flag! {
    /// Completions polled at a time [default: 32]
    "--poll-batch", QUEUES, ValueSyntax::Number("N")
};

pub(crate) const REPOST_BATCH: FlagSpec = flag! {
    /// Receive buffers reposted with one doorbell [default: chosen]
    "--repost-batch", QUEUES, ValueSyntax::Number("N")
};

pub(crate) const INLINE: FlagSpec = flag! {
    /// Send messages of up to BYTES inside their work request; 0: none [default: chosen]
    "--inline", QUEUES, ValueSyntax::Bytes
};

pub(crate) const RING_BYTES: FlagSpec = flag! {
    /// Bytes of the ring, a power of two [default: 1 MiB, of Buffered Read 2 MiB, or more for
    /// long messages: bench has 4 MiB for Buffered Write's from 4 KiB on]
    "--ring-bytes", RINGS, ValueSyntax::Bytes
};

pub(super) const HEAD_THRESHOLD: FlagSpec = flag! {
    /// Freed bytes that are worth telling the sender; 0: a quarter of the ring [default: 0]
    "--head-threshold", RINGS, ValueSyntax::Bytes
};
