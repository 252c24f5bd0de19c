//! Messages that are being read, and that were.

use verbs_safe::Buffer;

use super::link::Landed;
use super::room::Room;
use super::{Peer, RecvError};

/// A message that is being read, and what to [`wait`](super::Receiver::wait) for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reading {
    /// The number of its receiver.
    pub(super) receiver: u32,
    pub(super) ticket: u64,
}

/// A message that is being read into a file, and what to
/// [`wait_file`](super::Receiver::wait_file) for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileReading {
    /// The number of its receiver.
    pub(super) receiver: u32,
    pub(super) ticket: u64,
}

/// A message, in the buffer that it was read into. It derefs to its bytes.
#[derive(Debug)]
pub struct Message {
    buffer: Buffer,
    len: usize,
    peer: Peer,
}

impl Message {
    /// Who sent it.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The buffer, of which the message is the beginning.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }
}

impl std::ops::Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

/// A message that was read into a buffer, or why it was not.
pub(super) fn message(landed: Landed) -> Result<Message, RecvError> {
    let Landed { peer, len, room, ended, .. } = landed;
    let Room::Buffer(buffer) = room else { return Err(RecvError::UnknownTicket) };
    match ended {
        Some(ended) => Err(RecvError::Unread { buffer, peer, ended }),
        None => Ok(Message { buffer, len: len as usize, peer }),
    }
}
