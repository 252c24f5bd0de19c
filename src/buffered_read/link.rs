//! A receiver's side of one queue pair: what it reads, where it lands, how it ends.

use std::hint::spin_loop;

use conn_core::buffered_read::{Reader, ReaderError, Request, State, Words};
use conn_core::ring::offer::{HEAD_AT, Place, TAIL_AT, TAKEN_AT};
use conn_core::ring::{Record, Taken};
use conn_core::seal::SEALED_BYTES;
use verbs_safe::{
    Claims, Completion, CompletionBatch, CompletionQueue, LandingRing, QpControl, RegionId,
    RemoteSpan, RingBytes, SendFlags, SendOp, SendQueue, SharedLandingRing, SharedRegion,
};

use super::WORDS_BYTES;
use super::landing::Landing;
use crate::ring::memory::remote;
use crate::sealed;
use crate::send_recv::{Ended, Peer, Violation};

pub(super) const SIGNALLED: SendFlags =
    SendFlags { signalled: true, solicited: false, fence: false };
// Both words go with one write.
const _: () = assert!(TAKEN_AT == HEAD_AT + 8);

/// What a link has done.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Work {
    pub(super) work_requests: u64,
    pub(super) reads: u64,
    pub(super) read_bytes: u64,
    pub(super) tail_reads: u64,
    pub(super) words_written: u64,
}

impl Work {
    pub(super) fn plus(self, more: Work) -> Work {
        Work {
            work_requests: self.work_requests + more.work_requests,
            reads: self.reads + more.reads,
            read_bytes: self.read_bytes + more.read_bytes,
            tail_reads: self.tail_reads + more.tail_reads,
            words_written: self.words_written + more.words_written,
        }
    }
}

/// One sender's ring, as its receiver sees it.
#[derive(Debug)]
pub(super) struct Link<R = LandingRing> {
    pub(super) peer: Peer,
    reader: Reader,
    ring: R,
    queue: SendQueue,
    control: QpControl,
    cq: CompletionQueue,
    batch: CompletionBatch,
    /// Where READs of the tail land.
    tail: SharedRegion,
    tail_id: RegionId,
    /// The sender's ring, and its bytes.
    source: (Place, u64),
    /// The sender's control block.
    block: Place,
    ended: Option<Ended>,
    /// Nothing in the ring can be handed out any more.
    is_broken: bool,
    work: Work,
}

/// What the set-up hands over.
pub(super) struct LinkParts<R = LandingRing> {
    pub(super) control: QpControl,
    pub(super) queue: SendQueue,
    pub(super) cq: CompletionQueue,
    pub(super) ring: R,
    pub(super) tail: SharedRegion,
    pub(super) tail_id: RegionId,
    pub(super) reader: Reader,
    pub(super) source: (Place, u64),
    pub(super) block: Place,
}

/// A record that is shown, which is given up with this, whatever whoever looks at it does.
struct Passing<'r> {
    ring: &'r mut LandingRing,
    end: u64,
}

impl Drop for Passing<'_> {
    #[inline]
    fn drop(&mut self) {
        self.ring.pass(self.end);
    }
}

/// A record to be handed out: the position of its payload, and the record itself.
type Found = (u64, Record);

/// Completions polled at a time: what a link has on its way.
const POLL_BATCH: usize = 32;
/// Rounds of posting and polling in one look: the tail, the data, and what came with
/// them, where the device is that fast.
const ROUNDS: u32 = 3;
/// Pauses of the processor between two looks at a tail: each look holds the sender up.
const PAUSES: u32 = 16;

impl Link {
    /// Lets several threads receive, if none has received yet.
    // It is given back whole, as it came.
    #[allow(clippy::result_large_err)]
    pub(super) fn share(self) -> Result<(Link<SharedLandingRing>, Claims), Link> {
        let Link { peer, reader, ring, queue, control, cq, tail, tail_id, source, block, .. } =
            self;
        let (ended, work) = (self.ended, self.work);
        match ring.share(*reader.ring().geometry()) {
            Ok((mut ring, claims)) => {
                // What had landed before is known from the beginning.
                ring.land(&queue, reader.ring().tail());
                let parts =
                    LinkParts { control, queue, cq, ring, tail, tail_id, reader, source, block };
                Ok((Link { peer, ended, work, ..Link::new(parts) }, claims))
            }
            Err(ring) => {
                let parts =
                    LinkParts { control, queue, cq, ring, tail, tail_id, reader, source, block };
                Err(Link { peer, ended, work, ..Link::new(parts) })
            }
        }
    }
}

impl<R: Landing> Link<R> {
    pub(super) fn new(parts: LinkParts<R>) -> Link<R> {
        let LinkParts { control, queue, cq, ring, tail, tail_id, reader, source, block } = parts;
        Link {
            peer: Peer(u32::MAX),
            reader,
            ring,
            queue,
            control,
            cq,
            batch: CompletionBatch::new(POLL_BATCH),
            tail,
            tail_id,
            source,
            block,
            ended: None,
            is_broken: false,
            work: Work::default(),
        }
    }

    pub(super) fn qp_num(&self) -> u32 {
        self.control.qp_num()
    }

    pub(super) fn work(&self) -> Work {
        Work { work_requests: self.queue.posted_total(), ..self.work }
    }

    /// Bytes of memory that READs land in.
    pub(super) fn registered_bytes(&self) -> u64 {
        self.ring.capacity() as u64
    }
}

/// Handing out.
impl Link {
    /// The next message that has landed.
    #[inline]
    pub(super) fn next(&mut self) -> Option<RingBytes> {
        if !self.ring.can_lend() {
            return None;
        }
        let (position, record) = self.take()?;
        match self.ring.lend(position, record.payload.len, record.end) {
            Ok(bytes) => Some(bytes),
            Err(_) => self.misjudged(),
        }
    }

    /// Shows the messages that have landed to `each`, and frees them; how many, and how many
    /// bytes they had.
    #[inline]
    pub(super) fn for_each(&mut self, mut each: impl FnMut(Peer, &[u8])) -> (u64, u64) {
        let (mut count, mut bytes) = (0, 0);
        while let Some((position, record)) = self.take() {
            let passing = Passing { ring: &mut self.ring, end: record.end };
            let Some(payload) = passing.ring.view(position, record.payload.len) else { break };
            count += 1;
            bytes += payload.len() as u64;
            each(self.peer, payload);
        }
        (count, bytes)
    }

    /// Takes the next message that has landed from the machine, or nothing, which may be
    /// the end.
    #[inline]
    fn take(&mut self) -> Option<Found> {
        loop {
            let at = self.reader.ring().read_pointer();
            let header = self.ring.word(at)?;
            match self.reader.take(header) {
                Ok(Taken::Record(record)) => return Some((at + 8, record)),
                Ok(Taken::Skipped) => self.ring.pass(self.reader.ring().read_pointer()),
                Ok(Taken::Partial) => return None,
                Err(e) => {
                    self.is_broken = true;
                    self.fail(Ended::Protocol(Violation::Record(e)));
                    return None;
                }
            }
        }
    }

    /// The ring does not lend what the machine gives out: a bug of ours, after which
    /// nothing is certain.
    #[cold]
    fn misjudged(&mut self) -> Option<RingBytes> {
        debug_assert!(false, "the ring and the machine have different books");
        self.is_broken = true;
        self.fail(Ended::Device("a record lies where nothing has landed".into()));
        None
    }

    /// Frees a message on the receiver's own thread.
    #[inline]
    pub(super) fn free(&mut self, bytes: RingBytes) {
        self.ring.free(bytes);
    }
}

/// Driving the device.
impl<R: Landing> Link<R> {
    /// Reads on, and tells the sender what it is to know. Whether there may be something to
    /// hand out.
    pub(super) fn drive(&mut self) -> bool {
        for round in 0..ROUNDS {
            self.collect();
            self.take_in_frees();
            let is_hungry = !self.has_whole();
            if self.ended.is_some() {
                // What landed before it failed is handed out first.
                return !is_hungry && self.ring.can_lend();
            }
            if is_hungry {
                self.reader.look_again();
                self.pause(round);
            }
            let posted = self.post();
            if !is_hungry {
                return self.ring.can_lend();
            }
            if !posted && self.reader.on_their_way() == 0 {
                return false;
            }
        }
        false
    }

    /// What was freed, and before that what was claimed by others.
    pub(super) fn take_in_frees(&mut self) {
        let freed = self.ring.freed();
        if let Some(claimed) = self.ring.claimed() {
            self.reader.on_claimed(claimed);
        }
        self.reader.on_freed(freed);
    }

    /// Leaves the sender alone for a moment, before a tail is looked at again that goes on,
    /// or has just been looked at in vain.
    fn pause(&self, round: u32) {
        if self.reader.is_gathering() || round > 0 && self.reader.vain_looks() > 0 {
            (0..PAUSES).for_each(|_| spin_loop());
        }
    }

    /// Whether a record has landed and not just a part of it: one to be handed out or, if it
    /// is wrong, to be complained about, but once.
    fn has_whole(&self) -> bool {
        let at = self.reader.ring().read_pointer();
        let is_partial = |header| self.reader.is_partial(header);
        let has_landed = self.ring.landed() > at && !self.is_broken;
        has_landed && !self.ring.word(at).is_some_and(is_partial)
    }

    /// Takes completions.
    fn collect(&mut self) {
        if self.reader.on_their_way() == 0 {
            return;
        }
        match self.cq.poll(&mut self.batch) {
            Ok(0) => return self.reader.polled(),
            Ok(_) => {}
            Err(e) => return self.fail(Ended::Device(e.to_string())),
        }
        let mut failure = None;
        let (reader, queue, tail) = (&mut self.reader, &mut self.queue, &self.tail);
        for completion in self.batch.drain() {
            let taken = take_completion(reader, queue, tail, &completion);
            failure = failure.or(taken.err());
        }
        self.reader.polled();
        self.ring.land(&self.queue, self.reader.ring().tail());
        if let Some(ended) = failure {
            self.fail(ended);
        }
    }

    /// Posts what the machine asks for; whether that was anything.
    fn post(&mut self) -> bool {
        while let Some(request) = self.reader.next_request() {
            if let Err(why) = self.stage(request) {
                self.fail(Ended::Device(why));
                return false;
            }
        }
        if self.queue.staged() == 0 {
            return false;
        }
        match self.queue.post() {
            Ok(_) => true,
            // Backpressure: it stays staged, and is posted the next time.
            Err(e) if e.retry => true,
            Err(e) => {
                self.fail(Ended::Device(e.to_string()));
                false
            }
        }
    }

    fn stage(&mut self, request: Request) -> Result<(), String> {
        match request {
            Request::Data(read) => {
                let (place, bytes) = self.source;
                let from = remote(place, read.offset, bytes - read.offset);
                self.work.reads += 1;
                self.work.read_bytes += u64::from(read.len);
                let staged = self.ring.read(&mut self.queue, read.len, from);
                staged.map_err(|e| e.to_string())
            }
            Request::Tail => {
                self.work.tail_reads += 1;
                let from = remote(self.block, TAIL_AT, SEALED_BYTES);
                let read = SendOp::Read { len: SEALED_BYTES as u32, remote: from };
                let staged = self.queue.stage_at(self.tail_id, 0, read, SIGNALLED);
                staged.map_err(|e| e.to_string())
            }
            Request::Words(words) => self.stage_words(words),
        }
    }

    fn stage_words(&mut self, words: Words) -> Result<(), String> {
        self.work.words_written += 1;
        let slot = self.queue.next_slot().ok_or("no slot for a head")?;
        sealed::put(&[words.head, words.landed], slot).ok_or("no room for a head")?;
        let to: RemoteSpan = remote(self.block, HEAD_AT, WORDS_BYTES.into());
        let write = SendOp::Write { len: WORDS_BYTES, remote: to };
        self.queue.stage_with(write, SIGNALLED).map_err(|e| e.to_string())
    }
}

/// One request has completed.
fn take_completion(
    reader: &mut Reader,
    queue: &mut SendQueue,
    tail: &SharedRegion,
    completion: &Completion<'_>,
) -> Result<(), Ended> {
    let lost = Err(Ended::Protocol(Violation::Completion));
    if queue.retire(completion).is_err() {
        return lost;
    }
    if let Some(error) = completion.error() {
        return Err(Ended::PeerLost(error));
    }
    match reader.on_completion(|| sealed::observe(tail, 0).map(|[tail]| tail)) {
        Ok(()) => Ok(()),
        Err(ReaderError::Tail(e)) => Err(Ended::Protocol(Violation::Tail(e))),
        Err(_) => lost,
    }
}

/// Ending.
impl<R: Landing> Link<R> {
    /// The first reason is kept. Once the sender has said that it is all, and was told that
    /// all was read, it may go before its device has answered us.
    pub(super) fn fail(&mut self, ended: Ended) {
        let is_said = self.reader.state() == State::Ended;
        let ended = match ended {
            Ended::PeerLost(_) if is_said => Ended::Closed,
            other => other,
        };
        self.ended.get_or_insert(ended);
    }

    /// Why it is over, if it is: handed out is all that there was.
    pub(super) fn end(&self) -> Option<Ended> {
        match &self.ended {
            Some(_) if self.has_whole() => None,
            Some(ended) => Some(ended.clone()),
            None => self.reader.is_over().then_some(Ended::Closed),
        }
    }

    /// Why it has failed, if it has.
    pub(super) fn failure(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// Why nothing more will land, if so; what has landed may still be handed out.
    pub(super) fn end_of_landing(&self) -> Option<Ended> {
        let is_all = self.reader.state() == State::Ended;
        self.ended.clone().or_else(|| is_all.then_some(Ended::Closed))
    }

    /// How far all has landed, and was freed.
    pub(super) fn progress(&mut self) -> (u64, u64) {
        (self.ring.landed(), self.ring.freed())
    }

    /// Whether nothing more is on its way, or ever will be.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.collect();
        // What found no room before: STOP, behind heads that were on their way.
        if self.ended.is_none() {
            self.post();
        }
        self.ended.is_some() || self.reader.on_their_way() == 0 && self.queue.staged() == 0
    }

    /// Has the tail looked at although there is something to hand out, unless it comes with
    /// data anyway.
    pub(super) fn look_ahead(&mut self) {
        self.reader.look_again();
    }

    /// Tells the sender all that it does not know, before a sleep.
    pub(super) fn tell_all(&mut self) {
        self.reader.tell_all();
    }

    /// Tells the sender that nothing more is read.
    pub(super) fn stop(&mut self) {
        // Heads that have arrived make room for what is to be said.
        self.collect();
        if self.ended.is_none() {
            self.take_in_frees();
            self.reader.stop();
            self.post();
        }
    }

    /// Looks at the tail in vain, one after the other.
    pub(super) fn vain_looks(&self) -> u32 {
        self.reader.vain_looks()
    }
}
