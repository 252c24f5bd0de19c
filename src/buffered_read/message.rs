//! A received message.

use verbs_safe::RingBytes;

use crate::half::FromPeer;
use crate::peer::Peer;

/// A received message: derefs to its bytes, which lie where they have landed, in the
/// receiver's ring.
///
/// Dropping it frees them, from any thread and in any order; the sender has their room
/// again when all that came before is free, too.
/// [`Receiver::free`](crate::RecvHalf::free) costs less. A message may outlive its
/// receiver.
#[derive(Debug)]
pub struct Message {
    pub(super) bytes: RingBytes,
    pub(super) peer: Peer,
    /// The place of its link in the receiver.
    pub(super) place: u32,
}

impl Message {
    /// The peer that sent it.
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
        &self.bytes
    }
}

impl AsRef<[u8]> for Message {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl FromPeer for Message {
    fn peer(&self) -> Peer {
        Message::peer(self)
    }
}
