//! Long messages: straight from the caller's memory to the receiver's ring.
//!
//! Where the device takes many bytes inline, the copy into the ring of this end is spared: the
//! payload is written from where it is, with its header, as long as all that has gathered went
//! that way. The tail follows when enough has gathered, as ever. Of these messages the own ring
//! has the headers alone; nobody looks there for what was written.

use conn_core::buffered_write::{Piece, Push};
use conn_core::ring::{Grant, HEADER_BYTES, Span};
use conn_core::wr::WrClass;
use verbs_safe::{PostInlineError, SendOp, StageError};

use super::drive::PUSH_REQUESTS;
use super::{Sender, Ticket, write_padded};
use crate::buffered_write::SendError;
use crate::ring::memory::remote;
use crate::wire::Patience;

impl Sender {
    /// From how many bytes on the copy that is spared is worth the requests that it takes.
    pub(super) const STRAIGHT_FROM: usize = 2048;
    /// Requests for one payload at most.
    const MOST_REQUESTS: usize = 16;

    /// Sends a message of many bytes.
    pub(super) fn send_long(&mut self, grant: Grant, message: &[u8]) -> Result<Ticket, SendError> {
        let (at, before) = (grant.payload(), self.core.tail());
        let follows = self.written == before && self.has_room(message.len())?;
        self.accept(grant, message.len())?;
        // The record lies where the ring went on: nothing was skipped.
        let is_next = at.offset == self.core.geometry().offset(before) + u64::from(HEADER_BYTES);
        if follows && is_next {
            self.put_straight(at, message)?;
            self.written = self.core.tail();
        } else {
            write_padded(&self.staging, at, message);
        }
        if self.is_due() {
            self.push(false)?;
        }
        Ok(self.ticket())
    }

    /// Whether all requests of a message, and of a push, can be posted now.
    fn has_room(&mut self, bytes: usize) -> Result<bool, SendError> {
        let most = self.queue.max_inline() as usize;
        let requests = 1 + bytes.div_ceil(most.max(1));
        if most < Self::STRAIGHT_FROM || requests > Self::MOST_REQUESTS {
            return Ok(false);
        }
        let needed = requests as u32 + PUSH_REQUESTS;
        if self.tracker.available(WrClass::Data) < needed {
            self.progress()?;
        }
        Ok(self.tracker.available(WrClass::Data) >= needed)
    }

    /// Writes a record to its place in the receiver's ring, whose header lies in this one.
    fn put_straight(&mut self, at: Span, message: &[u8]) -> Result<(), SendError> {
        let (mut offset, before) = (at.offset, self.core.pushed());
        let header = Piece { offset: offset - u64::from(HEADER_BYTES), len: HEADER_BYTES };
        self.stage_piece(header, before).map_err(|e| self.fail_device(&e))?;
        for piece in message.chunks(self.queue.max_inline() as usize) {
            let signalled = self.plan(before, false).map_err(|e| self.fail_device(&e))?;
            let to = remote(self.peer_ring, offset, piece.len() as u64);
            self.post_piece(
                piece,
                SendOp::Write { len: piece.len() as u32, remote: to },
                signalled,
            )?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// What is left to be written of a push: what went straight lies there.
    #[inline]
    pub(super) fn unwritten(&self, push: Push) -> Push {
        match self.written.saturating_sub(self.core.pushed()) {
            0 => push,
            done => Push { pieces: without(push.pieces, done), ..push },
        }
    }

    fn post_piece(&mut self, bytes: &[u8], op: SendOp, signalled: bool) -> Result<(), SendError> {
        let mut patience = Patience::default();
        loop {
            match self.queue.post_inline(bytes, op, signalled) {
                Ok(()) => return Ok(()),
                // As in `post_again`.
                Err(PostInlineError::Post(e)) if e.retry && !patience.is_over() => {
                    if self.progress()? == 0 {
                        std::thread::yield_now();
                    }
                    self.check_alive()?;
                }
                Err(PostInlineError::Stage(StageError::QueueFull)) if !patience.is_over() => {
                    self.progress()?;
                    self.check_alive()?;
                }
                Err(e) => return Err(self.fail_device(&e)),
            }
        }
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
mod tests {
    use super::*;

    #[test]
    fn what_went_straight_is_left_out_of_a_push() {
        let piece = |offset, len| Some(Piece { offset, len });
        let both = [piece(96, 32), piece(0, 64)];
        assert_eq!(without(both, 16), [piece(112, 16), piece(0, 64)]);
        assert_eq!(without(both, 32), [piece(0, 64), None]);
        assert_eq!(without(both, 40), [piece(8, 56), None]);
        assert_eq!(without(both, 96), [None, None]);
        assert_eq!(without([piece(96, 32), None], 32), [None, None]);
    }
}
