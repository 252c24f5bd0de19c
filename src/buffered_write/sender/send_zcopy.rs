//! Long messages: straight from the caller's memory to the receiver's ring.
//!
//! Where the device takes many bytes inline, the copy into the ring of this end is spared: the
//! payload is written from where it is, with its header, as long as all that has gathered went
//! that way. The tail follows when enough has gathered, as ever. The own ring has nothing of these
//! messages: a line of it for each header would come from far.

use conn_core::buffered_write::{Piece, Push};
use conn_core::ring::{Grant, Header};
use verbs_safe::{RemoteSpan, SendOp};

use super::drive::PUSH_REQUESTS;
use super::{Sender, Ticket, write_padded};
use crate::doorbell;
use crate::error::{CloseReason, SendError};
use crate::ring::memory::remote;
use crate::sending::Sends;
use crate::waiting::Waits;

impl Sender {
    /// Length from which saving the copy is worth the additional requests.
    pub(super) const ZCOPY_FROM: usize = 2048;
    /// Requests for one payload at most.
    const MOST_REQUESTS: usize = 16;

    /// Sends a message of many bytes.
    pub(super) fn send_zcopy(&mut self, grant: Grant, message: &[u8]) -> Result<Ticket, SendError> {
        let (at, before) = (grant.payload(), self.core.tail());
        let follows = self.written == before && self.has_room(message.len())?;
        let committed = self.make_record(grant, message.len())?;
        // The header of a skip record has to be pushed, too.
        if follows && committed.skip.is_none() {
            self.records += 1;
            self.put_zcopy(committed.header, message)?;
            self.written = self.core.tail();
        } else {
            self.write_headers(committed);
            write_padded(&self.staging, at, message);
        }
        if self.is_due() {
            self.push(false)?;
        }
        Ok(self.ticket())
    }

    /// Reports whether all requests of a message, and of a push, can be posted now.
    fn has_room(&mut self, bytes: usize) -> Result<bool, SendError> {
        let most = self.writing.half.posting.queue().max_inline() as usize;
        // Most messages fit one request with the header; the comparison saves a division.
        let requests = if bytes < most { 2 } else { 2 + bytes / most.max(1) };
        if most < Self::ZCOPY_FROM || requests > Self::MOST_REQUESTS {
            return Ok(false);
        }
        let needed = requests as u32 + PUSH_REQUESTS;
        if self.writing.half.posting.room() < needed {
            self.progress()?;
        }
        Ok(self.writing.half.posting.room() >= needed)
    }

    /// Writes a record to its place in the receiver's ring.
    #[inline]
    fn put_zcopy(&mut self, header: Header, message: &[u8]) -> Result<(), SendError> {
        let most = self.writing.half.posting.queue().max_inline() as usize;
        let word = header.word.to_le_bytes();
        let (first, rest) = message.split_at(message.len().min(most - word.len()));
        self.post_record([&word, first], header.offset)?;
        let mut offset = header.offset + (word.len() + first.len()) as u64;
        for piece in rest.chunks(most) {
            self.post_record([piece, &[]], offset)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes a part of a record to its place in the receiver's ring.
    #[inline(always)]
    fn post_record(&mut self, parts: [&[u8]; 2], offset: u64) -> Result<(), SendError> {
        let len = parts[0].len() + parts[1].len();
        let to = remote(self.peer_ring, offset, len as u64);
        self.post_write(parts, to)
    }

    /// The rest of a push that is still to be written: payloads that were sent zero-copy are at the
    /// peer already.
    #[inline]
    pub(super) fn unwritten(&self, push: Push) -> Push {
        match self.written.saturating_sub(self.core.pushed()) {
            0 => push,
            done => Push { pieces: without(push.pieces, done), ..push },
        }
    }

    /// Writes bytes, in two parts, to the peer at once: as many as `to` has. The completion
    /// acknowledges all that was marked as staged.
    // Always: a span that is moved about is read before it is written, as the processor sees
    // it, and that waits for all bytes of the message before.
    #[inline(always)]
    pub(super) fn post_write(
        &mut self,
        parts: [&[u8]; 2],
        to: RemoteSpan,
    ) -> Result<(), SendError> {
        let planned = self.writing.plan(false);
        let signalled = planned.map_err(|e| self.fail(CloseReason::device(e)))?;
        let op = SendOp::Write { len: to.len as u32, remote: to };
        let queue = self.writing.half.posting.queue_mut();
        let posted = doorbell::post_inline(queue, parts, op, signalled);
        posted.map_err(|e| self.fail(CloseReason::device(e)))
    }
}

/// The pieces without their first `done` bytes.
fn without(pieces: [Option<Piece>; 2], mut done: u64) -> [Option<Piece>; 2] {
    let mut left = [None; 2];
    let mut at = 0;
    for Piece { offset, len } in pieces.into_iter().flatten() {
        let skipped = done.min(len.into());
        done -= skipped;
        if skipped < u64::from(len) {
            left[at] = Some(Piece { offset: offset + skipped, len: len - skipped as u32 });
            at += 1;
        }
    }
    left
}

#[cfg(test)]
mod tests;
