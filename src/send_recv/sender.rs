//! The sending half.

mod drive;
mod wait;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use conn_core::credit::CreditWindow;
use conn_core::pack::Packer;
use conn_core::wr::{WrClass, WrId};
use verbs_safe::{
    CompletionBatch, CompletionChannel, CompletionQueue, InRun, QpControl, RecvQueue, SendOp,
    SendQueue,
};

use super::{Config, Ended, Full, SendError};
use crate::wait::{Deadline, Silence};
use crate::wire::Tracker;

/// Proof that a message was accepted, and what to [`wait`](Sender::wait) for. Of one
/// sender's tickets the later one is the greater one; another sender does not know them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The number of its sender.
    sender: u32,
    id: WrId,
}

/// Numbers of senders, so that a ticket tells whose it is. They come again after 2^32
/// senders, when no ticket of the first ones is waited for.
static SENDERS: AtomicU32 = AtomicU32::new(0);

/// What a sender has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// Messages accepted.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Work requests executed on the send queue: data, keepalives and the goodbye.
    pub work_requests: u64,
    /// Credit messages received.
    pub credits_received: u64,
    /// Times that a message had to wait for credits.
    pub credit_stalls: u64,
}

/// The sending half of a connection: one queue pair, one completion queue, one
/// thread.
///
/// A message is copied into the next slot of a registered ring and given a
/// [`Ticket`]; the work requests go to the device in postlists of
/// [`batch`](Config::batch). What was accepted but not posted yet is posted by
/// [`flush`](Sender::flush), and by every call that waits.
///
/// Dropping a sender delivers what was accepted and says goodbye, for at most
/// [`linger`](Config::linger); [`close`](Sender::close) does the same and tells
/// how it went. A sender that has ended with an error says no goodbye, for a goodbye
/// tells that everything is well: it takes no part any more, and the peer's receiver,
/// which asks after it once in a [`keepalive`](Config::keepalive) interval, reports
/// [`Ended::PeerLost`].
#[derive(Debug)]
pub struct Sender {
    number: u32,
    control: QpControl,
    queue: SendQueue,
    /// Zero-length buffers for the peer's credits.
    credits: RecvQueue<()>,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    batch: CompletionBatch,
    tracker: Tracker,
    window: CreditWindow,
    packer: Option<Packer>,
    /// Longest message that can be packed.
    pack_limit: usize,
    config: Config,
    /// Longest message: the smaller one of the peer's buffers and our slots.
    limit: usize,
    ended: Option<Ended>,
    silence: Silence,
    /// Tries that found no credit; when the receiver was last asked after for that, and
    /// how many messages had been accepted.
    vain_tries: u32,
    asked: Option<(Instant, u64)>,
    stats: SenderStats,
}

/// What the set-up hands over.
pub(crate) struct SenderParts {
    pub(crate) control: QpControl,
    pub(crate) queue: SendQueue,
    pub(crate) credits: RecvQueue<()>,
    pub(crate) cq: CompletionQueue,
    pub(crate) channel: Option<CompletionChannel>,
    pub(crate) tracker: Tracker,
    pub(crate) window: CreditWindow,
    pub(crate) config: Config,
    pub(crate) limit: usize,
}

/// Making, inspecting.
impl Sender {
    /// Completions polled at a time. A completion stands for many messages here,
    /// so that a small number is as good as a large one.
    pub(crate) const POLL_BATCH: usize = 16;
    /// Tries without a credit between two looks at the clock.
    const TRIES_PER_LOOK: u32 = 64;

    pub(crate) fn new(parts: SenderParts) -> Sender {
        let SenderParts { control, queue, credits, cq, channel, tracker, window, config, limit } =
            parts;
        let pack = Packer::new(config.pack_bytes.min(limit as u32));
        Sender {
            // Relaxed: a number, and nothing that it would publish.
            number: SENDERS.fetch_add(1, Ordering::Relaxed),
            control,
            queue,
            credits,
            cq,
            channel,
            batch: CompletionBatch::new(Self::POLL_BATCH),
            tracker,
            window,
            pack_limit: pack.largest().unwrap_or(0) as usize,
            packer: (config.pack_bytes > 0).then_some(pack),
            config,
            limit,
            ended: None,
            silence: Silence::default(),
            vain_tries: 0,
            asked: None,
            stats: SenderStats::default(),
        }
    }

    /// Longest message that can be sent, in bytes.
    #[must_use]
    pub fn max_message_bytes(&self) -> usize {
        match &self.packer {
            Some(_) => self.pack_limit,
            None => self.limit,
        }
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        let messages = self.stats.messages + u64::from(self.unbooked());
        SenderStats { messages, work_requests: self.queue.posted_total(), ..self.stats }
    }

    /// The queue pair's number.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.control.qp_num()
    }

    /// Longest message that goes inside its work request, in bytes.
    #[must_use]
    pub fn inline_bytes(&self) -> u32 {
        self.queue.max_inline()
    }
}

/// Sending.
impl Sender {
    /// Accepts a message if there is room for it now. It never waits, and so never
    /// asks whether a silent peer is still there: the calls that wait do.
    ///
    /// # Errors
    /// [`SendError::Full`] when there is none: nothing was sent, try again later.
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        self.try_send_with(message.len(), |slot| slot.copy_from_slice(message))
    }

    /// As [`try_send`](Sender::try_send), filled in place: `fill` is given exactly
    /// `bytes` bytes of registered memory, which hold what an earlier message left.
    ///
    /// # Errors
    /// As [`try_send`](Sender::try_send); `fill` is then not called.
    #[inline]
    pub fn try_send_with(
        &mut self,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Ticket, SendError> {
        match self.queue.stage_next(bytes, fill) {
            Ok(staged) => self.accepted(bytes, staged),
            Err(fill) => self.send_apart(bytes, fill),
        }
    }

    /// Accepts a message, waiting for room as long as that takes. It is posted when
    /// [`batch`](Config::batch) messages have gathered (8 by default), by
    /// [`flush`](Sender::flush), or by a call of this sender that waits: whoever goes on to
    /// wait for an answer to it flushes first, or waits for ever.
    ///
    /// ```
    /// use rdma_conn::send_recv::{Config, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut a, mut b) = pair(&device, &device, &Config::default())?;
    /// let ticket = a.sender.send_async(b"one")?;
    /// a.sender.wait(ticket)?; // acknowledged: it lies in b's memory
    /// assert_eq!(&*b.receiver.recv()?, b"one");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::Ended`].
    #[inline]
    pub fn send_async(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        match self.try_send(message) {
            Err(SendError::Full(_)) => self.send_when_free(message, Deadline::NEVER),
            done => done,
        }
    }

    /// As [`send_async`](Sender::send_async), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]; the message was then not accepted.
    pub fn send_async_timeout(
        &mut self,
        message: &[u8],
        timeout: Duration,
    ) -> Result<Ticket, SendError> {
        match self.try_send(message) {
            Err(SendError::Full(_)) => self.send_when_free(message, Deadline::after(timeout)),
            done => done,
        }
    }

    /// Waits until [`try_send`](Sender::try_send) has room for a message.
    ///
    /// # Errors
    /// [`SendError::Ended`].
    pub fn wait_for_room(&mut self) -> Result<(), SendError> {
        self.room_until(Deadline::NEVER)
    }

    /// Sends a message and waits until it is acknowledged.
    ///
    /// # Errors
    /// As [`send_async`](Sender::send_async) and [`wait`](Sender::wait).
    pub fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        let ticket = self.send_async(message)?;
        self.wait(ticket)
    }

    /// Posts what was accepted and is still being gathered into a batch or a pack.
    ///
    /// # Errors
    /// [`SendError::Ended`].
    pub fn flush(&mut self) -> Result<(), SendError> {
        self.seal()?;
        self.post()
    }

    /// Whether the message of `ticket` is acknowledged; never waits. Where it is not, what
    /// was accepted before is posted, and its acknowledgement asked for: so it will be,
    /// however rarely completions are.
    ///
    /// # Errors
    /// [`SendError::Ended`] when it never will be, [`SendError::UnknownTicket`].
    pub fn is_sent(&mut self, ticket: Ticket) -> Result<bool, SendError> {
        if !self.is_known(ticket) {
            return Err(SendError::UnknownTicket);
        }
        if !self.tracker.is_complete(ticket.id) {
            self.progress()?;
        }
        if self.ended.is_none() && !self.tracker.is_complete(ticket.id) {
            self.flush()?;
            self.nudge(ticket)?;
            self.progress()?;
        }
        match (&self.ended, self.tracker.is_complete(ticket.id)) {
            (_, true) => Ok(true),
            (Some(ended), false) => Err(ended.clone().into()),
            (None, false) => Ok(false),
        }
    }

    /// Waits until the message of `ticket`, and so every earlier one, is
    /// acknowledged: it lies in the receiver's memory.
    ///
    /// # Errors
    /// [`SendError::Ended`], [`SendError::UnknownTicket`].
    pub fn wait(&mut self, ticket: Ticket) -> Result<(), SendError> {
        self.wait_until(ticket, Deadline::NEVER)
    }

    /// As [`wait`](Sender::wait), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]; the ticket stays good.
    pub fn wait_timeout(&mut self, ticket: Ticket, timeout: Duration) -> Result<(), SendError> {
        self.wait_until(ticket, Deadline::after(timeout))
    }

    /// Waits until everything accepted is acknowledged.
    ///
    /// # Errors
    /// [`SendError::Ended`].
    pub fn wait_all(&mut self) -> Result<(), SendError> {
        self.drain(Deadline::NEVER)
    }

    /// Delivers what was accepted, says goodbye and ends the half. The peer's
    /// receiver hands out every message before it reports the end.
    ///
    /// # Errors
    /// [`SendError::Ended`] when something accepted was not delivered, or the peer has
    /// stopped receiving before this end had said goodbye.
    pub fn close(mut self) -> Result<(), SendError> {
        self.goodbye(Deadline::NEVER)
    }
}

/// Accepting a message.
impl Sender {
    #[cold]
    fn too_long(&self, bytes: usize) -> SendError {
        SendError::TooLong { bytes, limit: self.max_message_bytes() }
    }

    #[inline]
    fn ticket(&self, id: WrId) -> Ticket {
        Ticket { sender: self.number, id }
    }

    #[inline]
    fn accepted(&mut self, bytes: usize, staged: InRun) -> Result<Ticket, SendError> {
        self.stats.bytes += bytes as u64;
        if staged.is_last {
            self.end_run()?;
        }
        Ok(self.ticket(WrId(staged.count)))
    }

    /// A message that is not simply the next one of a run.
    #[inline(never)]
    fn send_apart(
        &mut self,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Ticket, SendError> {
        if bytes > self.limit {
            return Err(self.too_long(bytes));
        }
        if self.packer.is_some() {
            return self.pack(bytes, fill);
        }
        self.make_room()?;
        match self.queue.stage_next(bytes, fill) {
            Ok(staged) => self.accepted(bytes, staged),
            Err(fill) if bytes == 0 => {
                fill(&mut []);
                let ticket = self.stage_data(0)?;
                self.stats.messages += 1;
                Ok(ticket)
            }
            Err(_) => Err(self.misjudged_room()),
        }
    }

    /// Room was counted that the send queue does not have: a bug of ours, after which
    /// nothing is certain.
    #[cold]
    fn misjudged_room(&mut self) -> SendError {
        debug_assert!(false, "room was counted that the send queue does not have");
        self.fail_device(&std::io::Error::other("the send queue was fuller than it was counted"))
    }

    /// Makes sure that one more request may be staged; looks at the completion queue only
    /// when it may not.
    fn make_room(&mut self) -> Result<(), SendError> {
        self.check_alive()?;
        self.book();
        if self.room() == 0 {
            // What waits for the rest of its batch would otherwise never complete.
            self.post()?;
            self.progress()?;
            self.check_alive()?;
        }
        self.open_run();
        match self.room() {
            0 if self.tracker.available(WrClass::Data) == 0 => Err(SendError::Full(Full::Window)),
            0 => Err(self.out_of_credits()?),
            _ => Ok(()),
        }
    }

    /// No credit is left. Now and then, it is looked whether that goes on for so long
    /// that the receiver has to be asked after.
    #[cold]
    fn out_of_credits(&mut self) -> Result<SendError, SendError> {
        self.vain_tries = self.vain_tries.wrapping_add(1);
        if self.vain_tries.is_multiple_of(Self::TRIES_PER_LOOK) {
            self.ask_if_silent(Instant::now())?;
        }
        Ok(SendError::Full(Full::Credits))
    }

    fn check_alive(&self) -> Result<(), SendError> {
        self.ended.clone().map_or(Ok(()), |ended| Err(ended.into()))
    }

    /// Stages the first bytes of the next slot; there is room, and it is known how much.
    fn stage_data(&mut self, bytes: usize) -> Result<Ticket, SendError> {
        self.book();
        let Ok(planned) = self.tracker.plan(WrClass::Data) else {
            return Err(self.misjudged_room());
        };
        let op = SendOp::Send { len: bytes as u32 };
        if self.queue.stage(op, planned.signalled).is_err() {
            return Err(self.misjudged_room());
        }
        self.take_credits(1);
        if self.queue.staged() >= self.config.batch {
            self.post()?;
        }
        Ok(self.ticket(planned.id))
    }

    #[cold]
    fn send_when_free(&mut self, message: &[u8], deadline: Deadline) -> Result<Ticket, SendError> {
        loop {
            self.room_until(deadline)?;
            match self.try_send(message) {
                Err(SendError::Full(_)) => {}
                done => return done,
            }
        }
    }

    fn room_until(&mut self, deadline: Deadline) -> Result<(), SendError> {
        let mut idle = self.idle(deadline);
        let mut stalled = false;
        loop {
            match self.make_room() {
                Err(SendError::Full(full)) => stalled |= full == Full::Credits,
                done => {
                    self.stats.credit_stalls += u64::from(stalled);
                    return done;
                }
            }
            self.wait_a_little(&mut idle)?;
        }
    }
}

/// Runs: messages of which nothing has to be looked at but their length. What is staged
/// in one is booked for all of it: its ids, its credits.
impl Sender {
    /// Begins a run of messages: until the batch is full, the next one has to be signalled
    /// (which it then is), or there is no room.
    fn open_run(&mut self) {
        let most = match (&self.ended, &self.packer) {
            (None, None) => self.room().min(self.tracker.run(WrClass::Data)),
            _ => 0,
        };
        let batch = self.config.batch.saturating_sub(self.queue.staged());
        self.queue.open_run(most.min(batch), self.limit);
    }

    /// Messages that credits and the queue have room for; the run is booked.
    fn room(&self) -> u32 {
        let credits = if self.config.credits { self.window.available() } else { u32::MAX };
        self.tracker.available(WrClass::Data).min(credits)
    }

    /// The last message of a run was staged.
    #[inline(never)]
    fn end_run(&mut self) -> Result<(), SendError> {
        if self.queue.staged() >= self.config.batch {
            return self.post();
        }
        self.book();
        self.open_run();
        Ok(())
    }

    /// Messages staged in a run that are not booked yet: all other requests are planned
    /// when they are staged.
    fn unbooked(&self) -> u32 {
        (self.queue.staged_total() + 1 - self.tracker.next_id().0) as u32
    }

    /// Books what was staged in the run: before the tracker or the window are asked for
    /// anything, and before it is posted.
    pub(super) fn book(&mut self) {
        let staged = self.unbooked();
        if staged == 0 {
            return;
        }
        self.stats.messages += u64::from(staged);
        self.take_credits(staged);
        let planned = self.tracker.plan_run(WrClass::Data, staged);
        debug_assert!(planned.is_ok(), "there was room");
        if planned.is_ok_and(|planned| planned.signalled) {
            self.queue.signal_last();
        }
    }

    fn take_credits(&mut self, messages: u32) {
        if self.config.credits {
            let taken = self.window.consume(messages);
            debug_assert!(taken.is_ok(), "there was room, so there were credits");
        }
    }
}

/// Packing: small messages share a work request (seed "Batching": larger messages
/// outperform batches of small ones).
impl Sender {
    fn pack(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<Ticket, SendError> {
        if bytes > self.pack_limit {
            return Err(self.too_long(bytes));
        }
        if self.packer.as_ref().is_some_and(|packer| !packer.fits(bytes)) {
            self.seal()?;
        }
        match &self.packer {
            Some(packer) if packer.count() == 0 => self.make_room()?,
            // The room of an open pack is its own, but it may never be sent.
            _ => self.check_alive()?,
        }
        // The slot stays ours until the pack is sealed: nothing else is staged
        // meanwhile, so the pack's request will get the next id.
        let slot = self.queue.next_slot().ok_or(SendError::Full(Full::Window))?;
        let packer = self.packer.as_mut().ok_or(SendError::Full(Full::Window))?;
        // Booked after `fill`: one that panics has packed nothing.
        let mut packed = packer.clone();
        let record = packed.reserve(slot, bytes).map_err(|_| SendError::Full(Full::Window))?;
        fill(record);
        *packer = packed;
        self.stats.messages += 1;
        self.stats.bytes += bytes as u64;
        Ok(self.ticket(self.tracker.next_id()))
    }

    /// Stages the pack that is being filled, if there is one.
    fn seal(&mut self) -> Result<(), SendError> {
        let Some(packer) = &mut self.packer else { return Ok(()) };
        if packer.count() == 0 {
            return Ok(());
        }
        let bytes = packer.len() as usize;
        packer.reset();
        self.stage_data(bytes).map(drop)
    }
}
