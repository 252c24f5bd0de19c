//! Messages that are being read, and that were.

use std::sync::Arc;

use verbs_safe::Buffer;

use super::ReadError;
use super::landing::{FreedBuffers, LandingBuffers};
use super::link::Landed;
use super::room::ReadSink;
use crate::half::received_message;
use crate::peer::Peer;

/// A message that is being read: the token for [`wait`](crate::ZeroCopyRecv::wait).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reading {
    /// The number of its receiver.
    pub(super) receiver: u32,
    pub(super) ticket: u64,
}

/// A message that is being read into a file: the token for
/// [`wait_file`](super::Receiver::wait_file).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileReading {
    /// The number of its receiver.
    pub(super) receiver: u32,
    pub(super) ticket: u64,
}

/// A message, in the buffer that it was read into. It derefs to its bytes. A buffer of the
/// receiver's goes back to it when the message is dropped, on any thread.
#[derive(Debug)]
pub struct Message {
    /// Here until the message is dropped.
    buffer: Option<Buffer>,
    len: usize,
    peer: Peer,
    /// Place that the buffer goes to, if it is the receiver's.
    home: Option<Arc<FreedBuffers>>,
}

impl Message {
    /// In a buffer of the receiver's.
    pub(super) fn lent(buffer: Buffer, len: usize, peer: Peer, home: Arc<FreedBuffers>) -> Message {
        Message { buffer: Some(buffer), len, peer, home: Some(home) }
    }

    /// The buffer, if it is of this receiver, which is here and takes it itself.
    pub(super) fn free_into(mut self, landing: &LandingBuffers) -> Option<Buffer> {
        let is_here = self.home.as_ref().is_some_and(|home| landing.is_home(home));
        if is_here { self.buffer.take() } else { None }
    }

    /// The buffer, which begins with the message. If it was the receiver's own, the receiver
    /// registers another one.
    ///
    /// # Panics
    /// Never: a message has its buffer until it is dropped.
    #[must_use]
    pub fn into_buffer(mut self) -> Buffer {
        if let Some(home) = self.home.take() {
            home.give(None);
        }
        self.buffer.take().expect("a message has its buffer")
    }
}

impl From<Message> for Buffer {
    fn from(message: Message) -> Buffer {
        message.into_buffer()
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let (Some(home), Some(buffer)) = (self.home.take(), self.buffer.take()) {
            home.give(Some(buffer));
        }
    }
}

received_message!(Message, |message| {
    message.buffer.as_ref().map_or(&[], |buffer| &buffer[..message.len])
});

/// A message that was read into a buffer, or why it was not.
pub(super) fn message(landed: Landed) -> Result<Message, ReadError> {
    let Landed { peer, len, room, ended, .. } = landed;
    let ReadSink::Buffer(buffer) = room else { return Err(ReadError::UnknownReading) };
    match ended {
        Some(ended) => Err(ReadError::Unread { buffer, peer, reason: ended }),
        None => {
            let (buffer, len) = (Some(buffer), len as usize);
            Ok(Message { buffer, len, peer, home: None })
        }
    }
}
