//! Fast path of one short message: posted at once, from the caller's memory.
//!
//! Without gathering, a message that the receiver waits for is pushed alone. Its tail, with the
//! message as an inline record, is built in one line on this thread's stack and posted first. The
//! record for the ring follows, and is never copied to the own ring. This takes two doorbells, so
//! it is for devices that copy the bytes, and execute the request, within the call that posts them.

use conn_core::buffered_write::Push;
use conn_core::buffered_write::inline_record::{self, MAX_PAYLOAD, RECORD_AT};
use conn_core::ring::{AdvertisedCursor, Committed, Grant};
use verbs_safe::RemoteSpan;

use super::drive::PUSH_REQUESTS;
use super::{Sender, Ticket, write_padded};
use crate::error::SendError;
use crate::ring::memory::remote;

impl Sender {
    /// Reports whether a message goes by itself: it is short, no other record waits, and there is
    /// room for the requests.
    #[inline]
    pub(super) fn is_short(&self, message: &[u8]) -> bool {
        self.posts_short
            && !self.writing.half.gathers
            && message.len() <= MAX_PAYLOAD
            && self.core.gathered() == 0
            && self.writing.half.posting.room() >= PUSH_REQUESTS
    }

    /// Sends a message by itself.
    pub(super) fn send_short(&mut self, grant: Grant, message: &[u8]) -> Result<Ticket, SendError> {
        let payload = grant.payload();
        let committed = self.make_record(grant, message.len())?;
        let tail = AdvertisedCursor { position: self.core.tail(), is_last: false };
        let line = inline_record::line(tail, committed.header.word, message);
        let (Committed { header, skip: None }, Some((line, len))) = (committed, line) else {
            // Once in a lap of plain memory: the header of the skip record has to be pushed, too.
            write_padded(&self.staging, payload, message);
            self.write_headers(committed);
            self.push(false)?;
            return Ok(self.ticket());
        };
        let before = self.core.pushed();
        let record = &line[RECORD_AT..len];
        // The completion of either acknowledges the message.
        self.writing.mark_staged(self.stats.messages);
        let to = RemoteSpan { len: len as u64, ..self.peer_tail };
        self.post_write([&line[..len], &[]], to)?;
        let to = remote(self.peer_ring, header.offset, record.len() as u64);
        self.post_write([record, &[]], to)?;
        self.core.mark_pushed(&Push { pieces: [None; 2], tail });
        self.writing.mark_posted();
        (self.records, self.written) = (0, tail.position);
        self.stats.pushes += 1;
        self.stats.pushed_bytes += tail.position - before;
        Ok(self.ticket())
    }
}
