//! Messages that stay where their senders have written them, until they are dropped.

use std::sync::Arc;

use conn_core::repost::{RepostQueue, RepostWord};
use verbs_safe::{RegionError, SharedRegion};

use crate::allocate::repost_queue;
use crate::copies::{IntoMessage, Message};
use crate::half::FromPeer;
use crate::peer::Peer;

/// A received message that was not copied: it lies in the buffer that its sender has written it to,
/// and lends the buffer until it is dropped, by any thread and in any order. It may outlive its receiver.
///
/// The peer can write to the buffer at any time, also while it is lent: two reads of the same bytes
/// may differ. So it is not a slice: copy bytes with [`read`](InPlace::read), then check and use
/// that copy.
#[derive(Debug)]
pub struct InPlace(Storage);

/// Storage of the bytes of a message.
#[derive(Debug)]
enum Storage {
    Lent(LentBuffer),
    /// It was taken by a call that copies.
    Copied(Message),
}

/// A buffer that is lent.
#[derive(Debug)]
struct LentBuffer {
    from: Arc<LinkBuffers>,
    buffer: u32,
    /// Offset of the message in the region.
    at: u64,
    len: u32,
    peer: Peer,
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        // `DirectWriteLink::take_back` takes a buffer out of the queue before it can be lent again:
        // there is room.
        let _ = self.from.given_back.enqueue(self.buffer);
        host::progress();
        host::point();
    }
}

/// The buffers of a link, and which of them were given back.
pub(super) struct LinkBuffers {
    pub(super) region: SharedRegion,
    given_back: RepostQueue<Box<[RepostWord]>>,
}

impl std::fmt::Debug for LinkBuffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkBuffers").field("region", &self.region).finish_non_exhaustive()
    }
}

impl LinkBuffers {
    /// `None` if there are none.
    pub(super) fn new(region: SharedRegion, count: u32) -> Option<Arc<LinkBuffers>> {
        let given_back = repost_queue(count).ok()?;
        Some(Arc::new(LinkBuffers { region, given_back }))
    }

    /// Lends the message of a buffer.
    pub(super) fn lend(self: &Arc<Self>, buffer: u32, at: u64, len: u32, peer: Peer) -> InPlace {
        InPlace(Storage::Lent(LentBuffer { from: Arc::clone(self), buffer, at, len, peer }))
    }

    /// Takes buffers that were given back, as many as `buffers` holds; returns their number.
    pub(super) fn take_back(&self, buffers: &mut [u32]) -> usize {
        self.given_back.drain(buffers)
    }
}

impl InPlace {
    /// Its length, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Storage::Lent(lent) => lent.len as usize,
            Storage::Copied(message) => message.len(),
        }
    }

    /// True if it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The peer that sent it.
    #[must_use]
    pub fn peer(&self) -> Peer {
        match &self.0 {
            Storage::Lent(lent) => lent.peer,
            Storage::Copied(message) => message.peer(),
        }
    }

    /// Copies bytes out of it, from `at` on, until `to` is full.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`]: the message ends before.
    pub fn read(&self, at: usize, to: &mut [u8]) -> Result<(), RegionError> {
        let end = at.checked_add(to.len()).filter(|end| *end <= self.len());
        let (len, region_len) = (to.len(), self.len());
        let end = end.ok_or(RegionError::OutOfBounds { offset: at, len, region_len })?;
        match &self.0 {
            Storage::Lent(lent) => lent.from.region.copy_out(lent.at as usize + at, to),
            Storage::Copied(message) => {
                to.copy_from_slice(&message[at..end]);
                Ok(())
            }
        }
    }
}

impl FromPeer for InPlace {
    fn peer(&self) -> Peer {
        InPlace::peer(self)
    }
}

impl From<Message> for InPlace {
    #[inline]
    fn from(message: Message) -> InPlace {
        InPlace(Storage::Copied(message))
    }
}

impl IntoMessage for InPlace {
    #[inline]
    fn bytes(&self) -> usize {
        self.len()
    }

    #[inline]
    fn into_message(self) -> Message {
        match self.0 {
            Storage::Copied(message) => message,
            Storage::Lent(lent) => lent.copied(),
        }
    }
}

impl LentBuffer {
    /// Copies a message that a call that lends took: the next call is one that copies.
    #[cold]
    fn copied(self) -> Message {
        let mut bytes = vec![0; self.len as usize];
        let copied = self.from.region.copy_out(self.at as usize, &mut bytes);
        debug_assert_eq!(copied, Ok(()), "the core has checked where it lies");
        Message::from_bytes(&bytes, self.peer)
    }
}
