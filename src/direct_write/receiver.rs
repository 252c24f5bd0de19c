//! The receiving half: one thread, one completion queue, any number of peers.

use std::time::Duration;

use super::in_place::InPlace;
use super::link::DirectWriteLink;
use crate::error::RecvError;
use crate::receiving::{CopyReceiving, receives_copies};
use crate::wait::Deadline;

/// Counters of a receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Messages handed out.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Work requests executed on the send queues of the links that there are: slots, keepalives.
    pub work_requests: u64,
    /// Slots written by these links.
    pub slots_told: u64,
}

/// The receiving half of one connection, or of many.
///
/// Many peers are served in turn, up to 64 messages each. Idle peers cost nothing where messages
/// are written with immediates; where they are polled for, a poll looks at the next trailer and the
/// goodbye of each peer, until one has something.
///
/// The receiver tells its peers which buffers are free, and probes them, in the calls that
/// receive.
#[derive(Debug)]
pub struct Receiver {
    pub(super) receiving: CopyReceiving<DirectWriteLink>,
    /// Receive requests of a link: room in the completion queue.
    pub(super) receives: u32,
}

impl Receiver {
    /// Returns the counters.
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

/// Receiving without a copy.
impl Receiver {
    /// Receives the next message without copying it. Its buffer goes back to the sender once the
    /// message is dropped and a call of this receiver has reported it. Each message that the
    /// program holds takes one of [`Config::buffers`](super::Config::buffers) from the sender.
    ///
    /// ```
    /// use rdma_conn::{DirectWrite, SendHalf, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut left, mut right) = pair::<DirectWrite>(&device, &device, &Default::default())?;
    /// left.sender.send(b"a header, and much more")?;
    /// let message = right.receiver.recv_in_place()?;
    /// let mut header = [0; 8];
    /// message.read(0, &mut header)?;
    /// assert_eq!((&header, message.len()), (b"a header", 23));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`RecvHalf::recv`](crate::RecvHalf::recv).
    pub fn recv_in_place(&mut self) -> Result<InPlace, RecvError> {
        self.in_place(|receiving| receiving.recv_until(Deadline::NEVER))
    }

    /// [`recv_in_place`](Self::recv_in_place), for at most `timeout`.
    ///
    /// # Errors
    /// The errors of [`RecvHalf::recv_timeout`](crate::RecvHalf::recv_timeout).
    pub fn recv_in_place_timeout(&mut self, timeout: Duration) -> Result<InPlace, RecvError> {
        self.in_place(|receiving| receiving.recv_until(Deadline::after(timeout)))
    }

    /// [`recv_in_place`](Self::recv_in_place), if a message is there.
    ///
    /// # Errors
    /// The errors of [`RecvHalf::try_recv`](crate::RecvHalf::try_recv).
    pub fn try_recv_in_place(&mut self) -> Result<InPlace, RecvError> {
        self.in_place(CopyReceiving::try_recv)
    }

    /// Receives messages in place: lends their buffers instead of copying.
    fn in_place(
        &mut self,
        recv: impl FnOnce(&mut CopyReceiving<DirectWriteLink>) -> Result<InPlace, RecvError>,
    ) -> Result<InPlace, RecvError> {
        self.receiving.shared.in_place = true;
        let received = recv(&mut self.receiving);
        self.receiving.shared.in_place = false;
        received
    }
}

receives_copies!(Receiver);
