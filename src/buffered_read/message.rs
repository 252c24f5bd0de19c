//! A received message.

use verbs_safe::RingBytes;

use crate::send_recv::Peer;

/// A received message: derefs to its bytes, which lie where they have landed, in the
/// receiver's ring.
///
/// Dropping it frees them, from any thread and in any order; the sender has their room
/// again when all that came before is free, too.
/// [`Receiver::free`](super::Receiver::free) costs less. A message may outlive its
/// receiver.
#[derive(Debug)]
pub struct Message {
    pub(super) bytes: RingBytes,
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
        &self.bytes
    }
}

impl AsRef<[u8]> for Message {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}
