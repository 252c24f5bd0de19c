//! A short message by itself: at once, and straight from the caller's memory.
//!
//! Where nothing is to be gathered, a message for which somebody waits is all that is pushed.
//! Its tail, and its record beside it, are made in one line of this thread's stack and are on
//! their way before anything else is done: the record for the ring follows, and the own ring
//! never has it. That takes two doorbells, and so is for devices that take the bytes, and do
//! the work, within the call that posts them.

use conn_core::buffered_write::Push;
use conn_core::buffered_write::beside::{self, MAX_PAYLOAD, RECORD_AT};
use conn_core::ring::{Committed, Grant, Told};
use conn_core::wr::WrClass;
use verbs_safe::RemoteSpan;

use super::drive::PUSH_REQUESTS;
use super::{Sender, Ticket, write_padded};
use crate::buffered_write::SendError;
use crate::ring::memory::remote;

impl Sender {
    /// Whether a message goes by itself: it is short, nothing else is to be pushed, and there
    /// is room for the requests.
    #[inline]
    pub(super) fn goes_alone(&self, message: &[u8]) -> bool {
        self.posts_alone
            && message.len() <= MAX_PAYLOAD
            && self.core.gathered() == 0
            && self.tracker.available(WrClass::Data) >= PUSH_REQUESTS
    }

    /// Sends a message by itself.
    pub(super) fn send_alone(&mut self, grant: Grant, message: &[u8]) -> Result<Ticket, SendError> {
        let payload = grant.payload();
        let committed = self.make_record(grant, message.len())?;
        let tail = Told { position: self.core.tail(), is_last: false };
        let line = beside::line(tail, committed.header.word, message);
        let (Committed { header, skip: None }, Some((line, len))) = (committed, line) else {
            // Once in a lap of plain memory: what is skipped has to be told of, too.
            write_padded(&self.staging, payload, message);
            self.write_headers(committed);
            self.push(false)?;
            return Ok(self.ticket());
        };
        let before = self.core.pushed();
        let record = &line[RECORD_AT..len];
        let to = RemoteSpan { len: len as u64, ..self.peer_tail };
        self.post_write([&line[..len], &[]], to, tail.position)?;
        let to = remote(self.peer_ring, header.offset, record.len() as u64);
        self.post_write([record, &[]], to, tail.position)?;
        self.core.mark_pushed(&Push { pieces: [None; 2], tail });
        (self.records, self.written) = (0, tail.position);
        self.stats.pushes += 1;
        self.stats.pushed_bytes += tail.position - before;
        Ok(self.ticket())
    }
}
