//! A receiver's side of one queue pair: its READs, its landing ring, its end.

mod requests;
mod sleep;

use host::thread::pause;

use conn_core::buffered_read::{Reader, ReaderError, ReaderState};
use conn_core::ring::offer::{HEAD_AT, Place, TAKEN_AT};
use conn_core::ring::{Record, Taken};
use verbs_safe::{
    Claims, Completion, CompletionBatch, CompletionChannel, CompletionQueue, LandingRing,
    RecvQueue, RegionId, RingBytes, SendQueue, SharedLandingRing, SharedRegion,
};

use super::landing::ReadRing;
use crate::checked::{self, checked_bytes};
use crate::error::{CloseReason, ProtocolError, close_reason};
use crate::peer::Peer;
use crate::wait::shares_processor;
use crate::wire::ConnectedQp;

/// Bytes that a receiver writes: its head, the position up to which it has read, and the checksum
/// of both.
pub(super) const WORDS_BYTES: u32 = checked_bytes(2) as u32;

// Both words go with one write.
const _: () = assert!(TAKEN_AT == HEAD_AT + 8);

/// Counters of a receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Messages handed out.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Work requests executed: READs of data and tails, and WRITEs of heads.
    pub work_requests: u64,
    /// READs of data.
    pub reads: u64,
    /// The bytes that they brought: divided by `reads`, the mean transfer.
    pub read_bytes: u64,
    /// READs of a tail.
    pub tail_reads: u64,
    /// WRITEs of a head to a sender.
    pub heads_written: u64,
}

impl ReceiverStats {
    pub(super) fn plus(self, more: ReceiverStats) -> ReceiverStats {
        ReceiverStats {
            messages: self.messages + more.messages,
            bytes: self.bytes + more.bytes,
            work_requests: self.work_requests + more.work_requests,
            reads: self.reads + more.reads,
            read_bytes: self.read_bytes + more.read_bytes,
            tail_reads: self.tail_reads + more.tail_reads,
            heads_written: self.heads_written + more.heads_written,
        }
    }
}

/// One sender's ring, as its receiver sees it.
#[derive(Debug)]
pub struct BufferedReadLink<R = LandingRing> {
    pub(super) peer: Peer,
    pub(super) reader: Reader,
    pub(super) ring: R,
    pub(super) queue: SendQueue,
    /// For the wake-up that the sender is asked for.
    pub(super) wake_ups: RecvQueue<()>,
    pub(super) control: ConnectedQp,
    pub(super) cq: CompletionQueue,
    /// The channel that announces its completions.
    pub(super) channel: Option<CompletionChannel>,
    pub(super) batch: CompletionBatch,
    /// Memory that READs of the tail land in.
    pub(super) tail: SharedRegion,
    pub(super) tail_id: RegionId,
    /// The sender's ring, and its bytes.
    pub(super) source: (Place, u64),
    /// The sender's control block.
    pub(super) block: Place,
    pub(super) ended: Option<CloseReason>,
    /// Nothing in the ring can be handed out any more.
    pub(super) is_broken: bool,
    pub(super) work: ReceiverStats,
}

/// A record that is shown to a closure. Dropping this frees the record, also when the closure
/// panics.
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
type TakenRecord = (u64, Record);

/// Completions polled at a time: the requests that a link has in flight.
pub(super) const POLL_BATCH: usize = 32;
/// Rounds of posting and polling in one look. On a fast device they bring the tail, the data, and
/// the data behind the next tail.
const ROUNDS: u32 = 3;
/// Pauses of the processor between two looks at a tail: each look holds the sender up.
const PAUSES: u32 = 16;

impl BufferedReadLink {
    /// Lets several threads receive, if none has received yet.
    // The error is the link itself, unchanged.
    #[allow(clippy::result_large_err)]
    pub(super) fn share(
        self,
    ) -> Result<(BufferedReadLink<SharedLandingRing>, Claims), BufferedReadLink> {
        let BufferedReadLink { peer, reader, ring, queue, wake_ups, control, cq, channel, .. } =
            self;
        let BufferedReadLink {
            batch, tail, tail_id, source, block, ended, is_broken, work, ..
        } = self;
        macro_rules! with {
            ($ring:expr) => {
                BufferedReadLink {
                    peer,
                    ring: $ring,
                    reader,
                    queue,
                    wake_ups,
                    control,
                    cq,
                    channel,
                    batch,
                    tail,
                    tail_id,
                    source,
                    block,
                    ended,
                    is_broken,
                    work,
                }
            };
        }
        match ring.share(*reader.ring().geometry()) {
            Ok((mut ring, claims)) => {
                // Records that landed before can be claimed from the beginning.
                ring.land(&queue, reader.ring().tail());
                Ok((with!(ring), claims))
            }
            Err(ring) => Err(with!(ring)),
        }
    }
}

impl<R: ReadRing> BufferedReadLink<R> {
    pub(super) fn qp(&self) -> &ConnectedQp {
        &self.control
    }

    pub(super) fn qp_num(&self) -> u32 {
        self.control.qp_num()
    }

    /// Returns the counters of its work, and of no messages.
    pub(super) fn work(&self) -> ReceiverStats {
        ReceiverStats { work_requests: self.queue.posted_total(), ..self.work }
    }

    /// Bytes of memory that READs land in.
    pub(super) fn registered_bytes(&self) -> u64 {
        self.ring.capacity() as u64
    }
}

/// Handing out.
impl BufferedReadLink {
    /// The next message that has landed.
    #[inline]
    pub(super) fn next(&mut self) -> Option<RingBytes> {
        if !self.ring.can_lend() {
            return None;
        }
        let (position, record) = self.take()?;
        match self.ring.lend(position, record.payload.len, record.end) {
            Ok(bytes) => Some(bytes),
            Err(_) => self.internal_error(),
        }
    }

    /// Shows landed messages to `each`, and frees them; returns their number, and how many bytes
    /// they had.
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

    /// Takes the next message that has landed; `None` where there is none yet, or never will be.
    #[inline]
    fn take(&mut self) -> Option<TakenRecord> {
        loop {
            let at = self.reader.ring().read_pointer();
            let header = self.ring.word(at)?;
            match self.reader.take(header) {
                Ok(Taken::Record(record)) => return Some((at + 8, record)),
                Ok(Taken::Skipped) => self.ring.pass(self.reader.ring().read_pointer()),
                Ok(Taken::Partial) => return None,
                Err(e) => {
                    self.is_broken = true;
                    self.fail(CloseReason::Protocol(ProtocolError::Record(e)));
                    return None;
                }
            }
        }
    }

    /// Ends the link: the ring does not lend a record of the machine. This is a bug of ours.
    #[cold]
    fn internal_error(&mut self) -> Option<RingBytes> {
        debug_assert!(false, "the ring and the machine have different books");
        self.is_broken = true;
        self.fail(CloseReason::Device("a record lies where nothing has landed".into()));
        None
    }

    /// Frees a message on the receiver's own thread.
    #[inline]
    pub(super) fn free(&mut self, bytes: RingBytes) {
        self.ring.free(bytes);
    }
}

/// Driving the device.
impl<R: ReadRing> BufferedReadLink<R> {
    /// Posts the next READs, and tells the sender the head that is due. Returns whether there
    /// may be messages to hand out.
    pub(super) fn drive(&mut self) -> bool {
        for round in 0..ROUNDS {
            self.collect();
            self.take_in_frees();
            let is_hungry = !self.has_whole();
            if self.ended.is_some() {
                // Messages that landed before the failure are handed out first.
                return !is_hungry && self.ring.can_lend();
            }
            if is_hungry {
                if round > 0 && self.is_vain() && shares_processor() {
                    return false; // the sender does not run between two looks
                }
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

    /// Books the messages that other threads have claimed, and then the ones that were freed.
    pub(super) fn take_in_frees(&mut self) {
        let freed = self.ring.freed();
        if let Some(claimed) = self.ring.claimed() {
            self.reader.on_claimed(claimed);
        }
        self.reader.on_freed(freed);
    }

    /// Reports whether the link knows of more data than has landed.
    pub(super) fn is_behind(&self) -> bool {
        self.reader.is_behind()
    }

    /// Reports whether the last look at the tail found nothing new, and there is nothing to read.
    fn is_vain(&self) -> bool {
        let is_idle = self.reader.on_their_way() == 0 && !self.is_behind();
        self.reader.vain_looks() > 0 && is_idle
    }

    /// Pauses before the next look at a tail that is still moving, or that the last look
    /// found unchanged: each look holds the sender up.
    fn pause(&self, round: u32) {
        if shares_processor() {
            return; // the sender does not run meanwhile
        }
        if self.reader.on_their_way() > 0 {
            return; // the next look is a poll, which holds nothing up
        }
        if self.reader.is_gathering() || round > 0 && self.reader.vain_looks() > 0 {
            pause(PAUSES);
        }
    }

    /// Reports whether a whole record has landed: one to be handed out or, if it is malformed, to
    /// be reported once.
    fn has_whole(&self) -> bool {
        let at = self.reader.ring().read_pointer();
        let is_partial = |header| self.reader.is_partial(header);
        let has_landed = self.ring.landed() > at && !self.is_broken;
        has_landed && !self.ring.word(at).is_some_and(is_partial)
    }

    /// Takes completions, if there can be any but wake-ups.
    fn collect(&mut self) {
        if self.reader.on_their_way() > 0 {
            self.poll();
        }
    }

    fn poll(&mut self) {
        match self.cq.poll(&mut self.batch) {
            Ok(0) => return self.reader.polled(),
            Ok(_) => {}
            Err(e) => return self.fail(CloseReason::Device(e.to_string())),
        }
        let mut failure = None;
        let (reader, queue, tail) = (&mut self.reader, &mut self.queue, &self.tail);
        let wake_ups = &mut self.wake_ups;
        for completion in self.batch.drain() {
            let taken = match completion.queue_id() == wake_ups.queue_id() {
                true => take_wake_up(reader, wake_ups, completion),
                false => take_completion(reader, queue, tail, &completion),
            };
            failure = failure.or(taken.err());
        }
        self.reader.polled();
        self.ring.land(&self.queue, self.reader.ring().tail());
        if let Some(ended) = failure {
            self.fail(ended);
        }
    }
}

/// One request has completed.
fn take_completion(
    reader: &mut Reader,
    queue: &mut SendQueue,
    tail: &SharedRegion,
    completion: &Completion<'_>,
) -> Result<(), CloseReason> {
    let lost = Err(CloseReason::Protocol(ProtocolError::Completion));
    if queue.retire(completion).is_err() {
        return lost;
    }
    if let Some(error) = completion.error() {
        return Err(CloseReason::from(error));
    }
    match reader.on_completion(|| checked::observe(tail, 0).map(|[tail]| tail)) {
        Ok(()) => Ok(()),
        Err(ReaderError::Tail(e)) => Err(CloseReason::Protocol(ProtocolError::Tail(e))),
        Err(_) => lost,
    }
}

/// Takes a wake-up. Its buffer is reposted with the next request for one.
fn take_wake_up(
    reader: &mut Reader,
    wake_ups: &mut RecvQueue<()>,
    completion: Completion<'_>,
) -> Result<(), CloseReason> {
    let taken = wake_ups.take(completion).map_err(|e| close_reason(&e))?;
    wake_ups.reclaim(taken);
    reader.on_wake_up();
    Ok(())
}

/// Ending.
impl<R: ReadRing> BufferedReadLink<R> {
    /// Ends the link; the first reason is kept. A sender that has sent FIN and received SEEN may
    /// leave before its device has answered us: that is a close.
    pub(super) fn fail(&mut self, reason: CloseReason) {
        let is_said = self.reader.state() == ReaderState::Ended;
        let reason = match reason {
            CloseReason::PeerLost(_) if is_said => CloseReason::Closed,
            other => self.control.explain(other),
        };
        self.ended.get_or_insert(reason);
    }

    /// Returns the reason of the end, once all messages were handed out.
    pub(super) fn end(&self) -> Option<CloseReason> {
        match &self.ended {
            Some(_) if self.has_whole() => None,
            Some(ended) => Some(ended.clone()),
            None => self.reader.is_over().then_some(CloseReason::Closed),
        }
    }

    /// Returns the reason of the failure, if the link has failed.
    pub(super) fn failure(&self) -> Option<&CloseReason> {
        self.ended.as_ref()
    }

    /// Returns the reason why nothing more will land, if there is one. Landed messages may still be
    /// handed out.
    pub(super) fn end_of_landing(&self) -> Option<CloseReason> {
        let is_all = self.reader.state() == ReaderState::Ended;
        self.ended.clone().or_else(|| is_all.then_some(CloseReason::Closed))
    }

    /// Returns the positions up to which all has landed, and up to which all was freed.
    pub(super) fn progress(&mut self) -> (u64, u64) {
        (self.ring.landed(), self.ring.freed())
    }

    /// Reports whether nothing more is on its way, or ever will be.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.collect();
        // Posts requests that found no room before: STOP, behind heads in flight.
        if self.ended.is_none() {
            self.post();
        }
        self.ended.is_some() || self.reader.on_their_way() == 0 && self.queue.staged() == 0
    }

    /// Requests a READ of the tail although there are messages to hand out, unless the tail
    /// comes with data anyway.
    pub(super) fn look_ahead(&mut self) {
        self.reader.look_again();
    }

    /// Tells the sender all that it does not know, before a sleep.
    pub(super) fn tell_all(&mut self) {
        self.reader.tell_all();
    }

    /// Tells the sender that nothing more is read.
    pub(super) fn stop(&mut self) {
        // Heads that have arrived make room for STOP.
        self.collect();
        if self.ended.is_none() {
            self.take_in_frees();
            self.reader.stop();
            self.post();
        }
    }

    /// Consecutive looks at the tail that found nothing new.
    pub(super) fn vain_looks(&self) -> u32 {
        self.reader.vain_looks()
    }
}
