//! Private copies of memory that a peer writes to: the storage of messages.

use std::sync::Arc;

use conn_core::buffered_write::inline_record::{InlineRecord, MAX_PAYLOAD};
use verbs_safe::SharedRegion;

use crate::half::received_message;
use crate::peer::Peer;

/// A received message: derefs to its bytes.
///
/// The bytes are an immutable copy: the sender may reuse the place of their arrival. Small messages
/// that arrived together lie in one copy, which is freed when the last of them is dropped, by any
/// thread and in any order. A message may outlive its receiver.
#[derive(Debug, Clone)]
pub struct Message {
    bytes: MessageBytes,
    len: u32,
    peer: Peer,
}

/// Place of a message's bytes.
#[derive(Debug, Clone)]
enum MessageBytes {
    /// In a copy, from `start` on.
    Copied { chunk: Arc<[u8]>, start: u32 },
    /// In the message itself: it is short.
    Short([u8; MAX_PAYLOAD]),
}

impl Message {
    /// The message of an inline record: its first `len` bytes.
    #[inline]
    pub(crate) fn inline(record: &InlineRecord, len: u32, peer: Peer) -> Message {
        let mut bytes = [0; MAX_PAYLOAD];
        let (to, _) = bytes.as_chunks_mut::<8>();
        for (to, word) in to.iter_mut().zip(record.payload()) {
            *to = word.to_le_bytes();
        }
        Message { bytes: MessageBytes::Short(bytes), len, peer }
    }

    /// A message of these bytes, if they are few.
    #[inline]
    pub(crate) fn short(message: &[u8], peer: Peer) -> Option<Message> {
        let mut bytes = [0; MAX_PAYLOAD];
        bytes.get_mut(..message.len())?.copy_from_slice(message);
        Some(Message { bytes: MessageBytes::Short(bytes), len: message.len() as u32, peer })
    }

    /// A message of these bytes.
    pub(crate) fn from_bytes(bytes: &[u8], peer: Peer) -> Message {
        let long = || {
            let chunk = MessageBytes::Copied { chunk: Arc::from(bytes), start: 0 };
            Message { bytes: chunk, len: bytes.len() as u32, peer }
        };
        Message::short(bytes, peer).unwrap_or_else(long)
    }
}

/// A message that a link hands out: a copy, or one that can be copied.
pub(crate) trait IntoMessage: std::fmt::Debug {
    /// Its length, in bytes.
    fn bytes(&self) -> usize;
    fn into_message(self) -> Message;
}

impl IntoMessage for Message {
    #[inline]
    fn bytes(&self) -> usize {
        self.len()
    }

    #[inline]
    fn into_message(self) -> Message {
        self
    }
}

received_message!(Message, |message| match &message.bytes {
    MessageBytes::Copied { chunk, start } => &chunk[*start as usize..][..message.len as usize],
    MessageBytes::Short(bytes) => &bytes[..message.len as usize],
});

/// Bytes that are copied together at most, where messages are small.
pub(crate) const BULK: u64 = 8 << 10;
/// Messages from this length on are copied alone: the cut part of a next one would be copied twice.
const LARGE: u64 = 2 << 10;

/// Returns the bytes to copy, if the first of `available` ones are a record of `record`.
#[inline]
pub(crate) fn worth_copying(record: u64, available: u64) -> u64 {
    let wish = if record < LARGE { BULK } else { record };
    wish.min(available)
}

/// The copies of one receiver: a few, used again as soon as no message is left of them.
#[derive(Debug)]
pub(crate) struct CopyPool {
    all: Vec<Arc<[u8]>>,
    /// The one that is open.
    open: usize,
    bytes: usize,
}

impl CopyPool {
    /// Copies that are kept. A program that holds messages of more than these has further
    /// ones allocated.
    const KEPT: usize = 8;

    pub(crate) fn new() -> CopyPool {
        CopyPool { all: Vec::new(), open: 0, bytes: 0 }
    }

    /// Every later copy has room for `bytes` bytes, and for at least [`BULK`].
    pub(crate) fn hold(&mut self, bytes: u64) {
        let bytes = bytes.max(BULK) as usize;
        if bytes > self.bytes {
            self.bytes = bytes;
            self.all.clear();
        }
    }

    /// Bytes of a copy.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Opens a copy without held messages, to be filled.
    #[inline]
    pub(crate) fn open(&mut self) -> &mut [u8] {
        if self.all.get_mut(self.open).is_none_or(|chunk| Arc::get_mut(chunk).is_none()) {
            self.find();
        }
        // Found or made above: no message refers to it.
        self.all.get_mut(self.open).and_then(Arc::get_mut).unwrap_or_default()
    }

    #[cold]
    fn find(&mut self) {
        let is_free = |chunk: &mut Arc<[u8]>| Arc::get_mut(chunk).is_some();
        if let Some(free) = self.all.iter_mut().position(is_free) {
            self.open = free;
            return;
        }
        let fresh = Arc::from(vec![0; self.bytes]);
        if self.all.len() < Self::KEPT {
            self.all.push(fresh);
            self.open = self.all.len() - 1;
        } else {
            self.open = (self.open + 1) % Self::KEPT;
            self.all[self.open] = fresh;
        }
    }

    /// The open copy.
    #[inline]
    pub(crate) fn bytes_of_open(&self) -> &[u8] {
        self.all.get(self.open).map_or(&[], |chunk| chunk)
    }

    /// Copies `bytes` bytes at `from` of a region to `at` of the open copy, which has room for the
    /// longest message behind the bytes of this turn.
    #[inline]
    pub(crate) fn fill(&mut self, region: &SharedRegion, from: u64, at: u64, bytes: u64) {
        let to = self.open().get_mut(at as usize..).and_then(|to| to.get_mut(..bytes as usize));
        let copied = to.map(|to| region.copy_out(from as usize, to).is_ok());
        debug_assert_eq!(copied, Some(true));
    }

    /// Messages out of the open copy: where each begins, and its length.
    pub(crate) fn messages(
        &self,
        all: impl Iterator<Item = (u32, u32)>,
        peer: Peer,
    ) -> impl Iterator<Item = Message> {
        all.filter_map(move |(start, len)| {
            let bytes = &self.bytes_of_open()[start as usize..][..len as usize];
            Message::short(bytes, peer).or_else(|| self.message(start, len, peer))
        })
    }

    /// A message out of the open copy.
    #[inline]
    pub(crate) fn message(&self, start: u32, len: u32, peer: Peer) -> Option<Message> {
        let bytes = MessageBytes::Copied { chunk: self.all.get(self.open)?.clone(), start };
        Some(Message { bytes, len, peer })
    }
}

#[cfg(test)]
mod tests;
