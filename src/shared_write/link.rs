//! A receiver's side of one queue pair.

use std::collections::VecDeque;

use conn_core::ring::offer::Place;
use conn_core::shared_write::{ExtentError, STOP_BYTES, STOPPED, padded};
use verbs_safe::Completion;

use super::ring::ExtentRing;
use crate::copies::{BULK, CopyPool, Message};
use crate::error::{CloseReason, ProtocolError};
use crate::peer::Peer;
use crate::places::Peered;
use crate::posting::{QpPosting, field};
use crate::receiving;
use crate::ring::memory::remote;

/// Messages that a link hands out in one turn.
const TURN: usize = 64;

/// One peer of a receiver.
#[derive(Debug)]
pub struct SharedWriteLink {
    pub(super) posting: QpPosting,
    /// Its number in the ring.
    pub(super) number: u32,
    pub(super) peer_stop: Place,
    /// True once the peer has written impossible values.
    pub(super) is_broken: bool,
    /// Messages that were just copied: where they begin, and their lengths.
    pub(super) copied: Vec<(u32, u32)>,
}

impl SharedWriteLink {
    fn take_all(
        &mut self,
        ring: &mut ExtentRing,
        copies: &mut CopyPool,
    ) -> Result<(), ExtentError> {
        let (number, mut at) = (self.number, 0);
        while at < BULK && self.copied.len() < TURN {
            if let Some((offset, len)) = ring.next(number)? {
                copies.fill(&ring.region, offset, at, padded(len));
                self.copied.push((at as u32, len));
                at += padded(len);
            } else if ring.core.has_ended(number) {
                self.posting.fail(CloseReason::Closed);
                break;
            } else if ring.core.has_heard_goodbye(number) {
                return Err(ExtentError::Missing);
            } else if !ring.hear_goodbye(number, false)? {
                break;
            }
        }
        Ok(())
    }

    #[cold]
    fn refuse(&mut self, error: ExtentError) {
        self.is_broken = true;
        self.posting.fail(CloseReason::Protocol(ProtocolError::Extent(error)));
    }
}

impl Peered for SharedWriteLink {
    field!(posting, posting_mut: QpPosting);
}

impl receiving::ReceiverLink for SharedWriteLink {
    type Shared = ExtentRing;
    type Taken = Message;

    fn is_polled(&self) -> bool {
        true
    }

    /// No requests are posted to receive.
    fn on_receive(&mut self, _completion: Completion<'_>) {}

    fn take(
        &mut self,
        ring: &mut ExtentRing,
        peer: Peer,
        copies: &mut CopyPool,
        out: &mut VecDeque<Message>,
    ) {
        if self.is_broken {
            return;
        }
        let taken = self.take_all(ring, copies);
        out.extend(copies.messages(self.copied.drain(..), peer));
        if let Err(e) = taken {
            self.refuse(e);
        }
    }

    fn settle(&mut self, ring: &mut ExtentRing) -> bool {
        ring.check_tail();
        ring.look_after(self.number);
        true
    }

    fn stop(&mut self, taken: u64) {
        self.write_stop([taken, STOPPED], remote(self.peer_stop, 0, STOP_BYTES));
    }

    fn has_heard_goodbye(&self, ring: &ExtentRing) -> bool {
        ring.core.has_heard_goodbye(self.number)
    }

    fn looks_for_goodbye(&mut self, ring: &mut ExtentRing) -> bool {
        if !self.is_broken
            && let Err(e) = ring.hear_goodbye(self.number, true)
        {
            self.refuse(e);
        }
        ring.core.has_heard_goodbye(self.number)
    }

    fn leave(&mut self, ring: &mut ExtentRing) {
        ring.close(self.number);
    }

    fn shared_bytes(ring: &ExtentRing) -> u64 {
        ring.region.len() as u64
    }
}
