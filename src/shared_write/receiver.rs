//! The receiving half: one thread, one completion queue, one ring for any number of peers.

use super::link::Link;
use crate::arm::Arm;
use crate::copies::Message;
use crate::error::RecvError;
use crate::half::{RecvHalf, driven};
use crate::peer::Peer;
use crate::receiving::Receiving;
use crate::wait::Deadline;
use crate::wire::ConnectedQp;

/// Counters of what a receiver has done so far.
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
    pub(super) receiving: Receiving<Link>,
}

impl Receiver {
    /// Returns the counters of what was done so far.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        let (messages, bytes) = self.receiving.handed_out();
        let links = self.receiving.links();
        let work_requests = links.map(|link| link.posting.posted_total()).sum();
        let tickets_decided = self.receiving.shared.core.decided() - 1;
        ReceiverStats { messages, bytes, work_requests, tickets_decided }
    }
}

impl RecvHalf for Receiver {
    type Message = Message;

    fn peers(&self) -> usize {
        self.receiving.peers()
    }

    fn registered_bytes(&self) -> u64 {
        self.receiving.shared.region.len() as u64
    }

    #[inline]
    fn try_recv(&mut self) -> Result<Message, RecvError> {
        self.receiving.try_recv()
    }

    #[inline]
    fn try_recv_each(&mut self, each: impl FnMut(Peer, &[u8])) -> Result<usize, RecvError> {
        self.receiving.try_recv_each(each)
    }

    fn arm(&mut self) -> Result<Arm<'_>, RecvError> {
        self.receiving.arm()
    }
}

impl driven::Receiver for Receiver {
    type Taken = Message;

    fn recv_until(&mut self, deadline: Deadline) -> Result<Message, RecvError> {
        self.receiving.recv_until(deadline)
    }

    fn qp_of(&self, peer: Peer) -> Option<&ConnectedQp> {
        self.receiving.qp_of(peer)
    }

    fn abandon(&mut self) {
        self.receiving.abandon();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.receiving.stop();
    }
}
