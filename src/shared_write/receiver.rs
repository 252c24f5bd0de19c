//! The receiving half: one thread, one completion queue, one ring for any number of peers.

use super::link::SharedWriteLink;
use crate::receiving::{CopyReceiving, receives_copies};

/// Counters of a receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Messages handed out.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Work requests executed on the send queues of the links that there are: keepalives.
    pub work_requests: u64,
    /// Tickets that were decided: each was granted an extent, or passed over. Those that no sender
    /// has taken yet are among them.
    pub tickets_decided: u64,
}

/// The receiving half of one connection, or of many.
///
/// Many peers are served in turn, up to 64 messages each. A poll looks at the next trailer and the
/// goodbye of each peer, until one has something; a receiver that waits for long sleeps briefly,
/// and looks again.
///
/// Extents of peers that have gone are given to others in the calls that receive.
#[derive(Debug)]
pub struct Receiver {
    pub(super) receiving: CopyReceiving<SharedWriteLink>,
}

impl Receiver {
    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        let (messages, bytes) = self.receiving.handed_out();
        let links = self.receiving.links();
        let work_requests = links.map(|link| link.posting.posted_total()).sum();
        let tickets_decided = self.receiving.shared.core.decided() - 1;
        ReceiverStats { messages, bytes, work_requests, tickets_decided }
    }
}

receives_copies!(Receiver);
