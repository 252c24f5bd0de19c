//! A received message, and whose it is.

use conn_core::pack::Unpacker;
use verbs_safe::RecvBuf;

use super::link::Link;
use super::returns::SlotReturn;

/// Which sender a message came from: the order in which the senders joined the
/// receiver, from 0. Numbers of senders that have gone are not used again (so that a
/// receiver has 2^32 - 1 senders in its life).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub u32);

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A received message: derefs to its bytes, which lie where the device put them.
///
/// Dropping it frees its buffer, from any thread and in any order; the receiver
/// reposts what was freed, in batches. [`Receiver::free`](super::Receiver::free) does the same without
/// atomic operations. A message may outlive its receiver.
#[derive(Debug)]
pub struct Message {
    pub(super) buffer: RecvBuf<SlotReturn>,
    pub(super) peer: Peer,
    /// The place of its link in the receiver.
    pub(super) place: u32,
}

impl Message {
    /// Who sent it.
    #[inline]
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }
}

impl std::ops::Deref for Message {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl AsRef<[u8]> for Message {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// A packed message that is being handed out.
#[derive(Debug)]
pub(super) struct OpenPack {
    pub(super) buffer: RecvBuf<SlotReturn>,
    pub(super) records: Unpacker,
    pub(super) peer: Peer,
    pub(super) place: u32,
}

impl OpenPack {
    #[cold]
    pub(super) fn new(buffer: RecvBuf<SlotReturn>, link: &Link) -> OpenPack {
        let records = Unpacker::new(buffer.len() as u32);
        OpenPack { buffer, records, peer: link.peer(), place: link.place() }
    }
}
