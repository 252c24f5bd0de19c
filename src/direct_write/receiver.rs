//! The receiving half: one thread, one completion queue, any number of peers.

use super::link::Link;
use crate::arm::Arm;
use crate::copies::Message;
use crate::error::RecvError;
use crate::half::{RecvHalf, driven};
use crate::peer::Peer;
use crate::receiving::Receiving;
use crate::wait::Deadline;
use crate::wire::ConnectedQp;

/// What a receiver has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Messages handed out.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Work requests executed on the send queues of the links that there are: slots, keepalives.
    pub work_requests: u64,
    /// Slots told by these links.
    pub slots_told: u64,
}

/// The receiving half of one connection, or of many.
///
/// Many peers are served in turn, up to 64 messages each. Idle peers cost nothing where messages
/// come with immediates; where they are polled for, a poll looks at the next trailer and the
/// goodbye of each peer, until one has something.
///
/// The receiver tells its peers which buffers are free, and probes them, in the calls that
/// receive.
#[derive(Debug)]
pub struct Receiver {
    pub(super) receiving: Receiving<Link>,
    /// Receive requests of a link: room in the completion queue.
    pub(super) receives: u32,
}

impl Receiver {
    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        let (messages, bytes) = self.receiving.handed_out();
        let mut stats = ReceiverStats { messages, bytes, ..ReceiverStats::default() };
        for link in self.receiving.links() {
            stats.work_requests += link.posting.posted_total();
            stats.slots_told += link.slots_told;
        }
        stats
    }
}

impl RecvHalf for Receiver {
    type Message = Message;

    fn peers(&self) -> usize {
        self.receiving.peers()
    }

    fn registered_bytes(&self) -> u64 {
        self.receiving.registered_bytes()
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
