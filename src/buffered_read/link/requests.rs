//! Requests that a link posts: READs, its words, and wake-ups that it asks for.

use host::plant::{Plant, is_planted};

use conn_core::buffered_read::{ReaderRequest, Words};
use conn_core::checksum::CHECKED_BYTES;
use conn_core::ring::offer::{HEAD_AT, TAIL_AT, WAKE_AT};
use verbs_safe::{PostRecvReason, RemoteSpan, SendOp};

use super::{BufferedReadLink, WORDS_BYTES};
use crate::buffered_read::landing::{ReadRing, SIGNALLED};
use crate::checked::{self, checked_bytes};
use crate::doorbell;
use crate::error::CloseReason;
use crate::ring::memory::remote;

/// Bytes that a receiver writes when it is about to sleep: a request to be woken, and its checksum.
const WAKE_BYTES: u32 = checked_bytes(1) as u32;

impl<R: ReadRing> BufferedReadLink<R> {
    /// Posts the machine's requests; returns true if there were any.
    pub(super) fn post(&mut self) -> bool {
        while let Some(request) = self.reader.next_request() {
            if let Err(why) = self.stage(request) {
                self.fail(CloseReason::Device(why));
                return false;
            }
        }
        if self.queue.staged() == 0 {
            return false;
        }
        match doorbell::ring(&mut self.queue) {
            Ok(()) => true,
            Err(e) => {
                self.fail(CloseReason::Device(e.to_string()));
                false
            }
        }
    }

    fn stage(&mut self, request: ReaderRequest) -> Result<(), String> {
        match request {
            ReaderRequest::Data(read) => {
                let (place, bytes) = self.source;
                let from = remote(place, read.offset, bytes - read.offset);
                self.work.reads += 1;
                self.work.read_bytes += u64::from(read.len);
                let is_last = read.offset + u64::from(read.len) == bytes;
                let beyond = if is_last && is_planted(Plant::ReadBeyondRing) { 64 } else { 0 };
                let staged = self.ring.read(&mut self.queue, read.len + beyond, from);
                staged.map_err(|e| e.to_string())
            }
            ReaderRequest::Tail => {
                self.work.tail_reads += 1;
                let from = remote(self.block, TAIL_AT, CHECKED_BYTES);
                let read = SendOp::Read { len: CHECKED_BYTES as u32, remote: from };
                let staged = self.queue.stage_at(self.tail_id, 0, read, SIGNALLED);
                staged.map_err(|e| e.to_string())
            }
            ReaderRequest::Words(words) => self.stage_words(words),
            ReaderRequest::WakeUp(number) => self.stage_request(number),
        }
    }

    /// Asks the sender for a wake-up. The receive for it is posted before.
    fn stage_request(&mut self, number: u64) -> Result<(), String> {
        // If the last request has no answer yet, its receive is still posted.
        match doorbell::post_receives(&mut self.wake_ups, &[0]).map_err(|e| e.reason) {
            Ok(()) | Err(PostRecvReason::NotHome { .. }) => {}
            Err(e) => return Err(e.to_string()),
        }
        let slot = self.queue.next_slot().ok_or("no slot for a request")?;
        checked::put(&[number], slot).ok_or("no room for a request")?;
        let to = remote(self.block, WAKE_AT, WAKE_BYTES.into());
        let write = SendOp::Write { len: WAKE_BYTES, remote: to };
        self.queue.stage_with(write, SIGNALLED).map_err(|e| e.to_string())
    }

    fn stage_words(&mut self, words: Words) -> Result<(), String> {
        self.work.heads_written += 1;
        let slot = self.queue.next_slot().ok_or("no slot for a head")?;
        checked::put(&[words.head, words.landed], slot).ok_or("no room for a head")?;
        let to: RemoteSpan = remote(self.block, HEAD_AT, WORDS_BYTES.into());
        let write = SendOp::Write { len: WORDS_BYTES, remote: to };
        self.queue.stage_with(write, SIGNALLED).map_err(|e| e.to_string())
    }
}
