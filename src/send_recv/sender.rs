//! The sending half.

mod drive;
mod loan_waits;
mod loans;
mod staged;
mod stopped;
mod wait;

use conn_core::credit::CreditWindow;
use conn_core::loan::Borrower;
use conn_core::pack::Packer;
use conn_core::wr::{WrClass, WrId};
use verbs_safe::{CompletionBatch, InRun, RecvQueue, SendOp};

use self::loan_waits::LoanWaits;
use self::staged::{Controls, Packs};
use super::Config;
use crate::arm::Arm;
use crate::error::{CloseReason, Full, SendError};
use crate::half::{Room, SendHalf, check_within};
use crate::sending::{Half, Sends};
use crate::ticket::Ticket;
use crate::waiting::Waits;

/// Counters of a sender.
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
/// [`Ticket`]. The call that accepts it also posts it, unless the configuration asks for
/// gathering: with a [`batch`](Config::batch) of more than 1 or with
/// [`pack_bytes`](Config::pack_bytes), work requests go to the device in postlists.
/// [`flush`](Sender::flush), and every call that waits, posts gathered messages.
///
/// Dropping a sender delivers accepted messages and says goodbye, for at most
/// [`linger`](crate::Common::linger); [`close`](Sender::close) does the same and returns the
/// result. A goodbye means that everything was delivered, so a sender that has ended with an error
/// says none. It no longer answers, and the peer's receiver, which probes it once in a
/// [`keepalive`](crate::Common::keepalive) interval, reports [`CloseReason::PeerLost`].
#[derive(Debug)]
pub struct Sender {
    half: Half,
    /// Zero-length buffers for the peer's credits.
    credits: RecvQueue<()>,
    batch: CompletionBatch,
    window: CreditWindow,
    /// Account of the loans; `None` where credits are no loans.
    borrower: Option<Borrower>,
    /// FIN is staged: the last message.
    has_finished: bool,
    packer: Option<Packer>,
    /// Needed to tell which messages the receiver has taken when it stops.
    controls: Controls,
    packs: Packs,
    /// The last request that is known to be taken without its completion: the receiver has
    /// said so when it stopped.
    taken: WrId,
    /// Longest message that can be packed.
    pack_limit: usize,
    config: Config,
    /// Longest message: the smaller one of the peer's buffers and our slots.
    limit: usize,
    loan_waits: LoanWaits,
    stats: SenderStats,
}

/// Making, inspecting.
impl Sender {
    /// Completions polled at a time. A completion stands for many messages here, so that a
    /// small number is enough.
    pub(crate) const POLL_BATCH: usize = 16;

    pub(crate) fn new(
        half: Half,
        credits: RecvQueue<()>,
        window: CreditWindow,
        borrower: Option<Borrower>,
        config: Config,
        limit: u32,
    ) -> Sender {
        let pack = Packer::new(config.pack_bytes.min(limit));
        Sender {
            half,
            credits,
            batch: CompletionBatch::new(Self::POLL_BATCH),
            window,
            borrower,
            has_finished: false,
            pack_limit: pack.largest().unwrap_or(0) as usize,
            packer: (config.pack_bytes > 0).then_some(pack),
            controls: Controls::default(),
            packs: Packs::new(if config.pack_bytes > 0 { config.unacked } else { 0 }),
            taken: WrId(0),
            config,
            limit: limit as usize,
            loan_waits: LoanWaits::default(),
            stats: SenderStats::default(),
        }
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        let messages = self.stats.messages + u64::from(self.half.posting.unbooked());
        SenderStats { messages, work_requests: self.half.posting.posted_total(), ..self.stats }
    }

    /// Messages that were accepted and are still being gathered: [`flush`](Sender::flush) sends
    /// them. None, unless the configuration asks for gathering.
    #[must_use]
    pub fn unflushed(&self) -> u64 {
        let open = self.packer.as_ref().map_or(0, Packer::count);
        let sent = self.data_sent() + u64::from(self.half.posting.unbooked());
        self.packs.messages(sent, self.half.posting.queue().staged()) + u64::from(open)
    }

    /// The queue pair's number.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.half.posting.qp_num()
    }

    /// Longest message that goes inside its work request, in bytes.
    #[must_use]
    pub fn inline_bytes(&self) -> u32 {
        self.half.posting.queue().max_inline()
    }
}

impl SendHalf for Sender {
    type Room<'a> = Reserved<'a>;

    fn max_message_bytes(&self) -> usize {
        match &self.packer {
            Some(_) => self.pack_limit,
            None => self.limit,
        }
    }

    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        self.try_send_with(message.len(), |slot| slot.copy_from_slice(message))
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.look_after_peer()?;
        self.half.posting.check()?;
        self.push()?;
        if self.borrower.is_some() {
            // Credits that were lent meanwhile are returned, too.
            self.progress()?;
        }
        self.give_back()
    }

    fn arm(&mut self) -> Result<Arm<'_>, SendError> {
        // Credits, too, come with completions.
        self.arm_by(|_| Ok(false))
    }

    fn is_acked(&mut self, ticket: Ticket) -> Result<bool, SendError> {
        self.is_acked_now(ticket)
    }

    fn try_reserve(&mut self, bytes: usize) -> Result<Reserved<'_>, SendError> {
        self.look_after_peer()?;
        self.prepare(bytes)?;
        let at = self.packer.as_ref().map_or(0, |packer| packer.next_payload() as usize);
        Ok(Reserved { sender: self, at, bytes })
    }
}

/// Room for one message in the slot that it is sent from.
#[derive(Debug)]
#[must_use = "nothing is sent before `commit`"]
pub struct Reserved<'a> {
    sender: &'a mut Sender,
    /// Offset of the message in the slot: behind those that it is packed with.
    at: usize,
    bytes: usize,
}

impl Room for Reserved<'_> {
    fn capacity(&self) -> usize {
        self.bytes
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), SendError> {
        check_within(at.saturating_add(bytes.len()), self.bytes)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let slot = self.sender.half.posting.slot().ok_or(SendError::Full(Full::Window))?;
        slot[self.at + at..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn commit(self, bytes: usize) -> Result<Ticket, SendError> {
        check_within(bytes, self.bytes)?;
        // The message is in place already. `try_reserve` has checked the peer: a probe now would
        // send the pack before this message.
        self.sender.put(bytes, |_| ())
    }
}

/// Sending.
impl Sender {
    /// As [`try_send`](Sender::try_send), filled in place: `fill` gets exactly `bytes` bytes of
    /// registered memory, with contents of an earlier message.
    ///
    /// # Errors
    /// As [`try_send`](Sender::try_send); `fill` is then not called.
    #[inline]
    pub fn try_send_with(
        &mut self,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Ticket, SendError> {
        if self.half.waiting.watch.has_ticked() {
            self.look_after_peer()?;
        }
        self.put(bytes, fill)
    }
}

/// Accepting a message.
impl Sender {
    /// Takes a message, without a look after the peer.
    #[inline(always)]
    fn put(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<Ticket, SendError> {
        match self.half.posting.queue_mut().stage_next(bytes, fill) {
            Ok(staged) => self.accepted(bytes, staged),
            Err(fill) => self.send_apart(bytes, fill),
        }
    }

    #[cold]
    fn too_long(&self, bytes: usize) -> SendError {
        SendError::TooLong { bytes, limit: self.max_message_bytes() }
    }

    #[inline]
    fn ticket(&self, id: WrId) -> Ticket {
        self.half.ticket(id.0)
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
        match self.half.posting.queue_mut().stage_next(bytes, fill) {
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
        self.fail(CloseReason::device("the send queue was fuller than it was counted"))
    }

    /// Makes sure that one more request may be staged; looks at the completion queue only
    /// when it may not.
    fn make_room(&mut self) -> Result<(), SendError> {
        self.half.posting.check()?;
        self.book();
        if self.room() == 0 {
            // Messages that wait for the rest of their batch would otherwise never complete.
            self.post()?;
            self.progress()?;
            self.half.posting.check()?;
        }
        self.open_run();
        match self.room() {
            0 if self.half.posting.room() == 0 => Err(SendError::Full(Full::Window)),
            0 => Err(self.out_of_credits()?),
            _ => Ok(()),
        }
    }

    /// No credit is left.
    #[cold]
    fn out_of_credits(&mut self) -> Result<SendError, SendError> {
        self.ask_for_loan()?;
        Ok(SendError::Full(Full::Credits))
    }

    /// Stages the first bytes of the next slot; there is room, and it is known how much.
    fn stage_data(&mut self, bytes: usize) -> Result<Ticket, SendError> {
        self.book();
        let Some(planned) = self.half.posting.plan(WrClass::Data, false) else {
            return Err(self.misjudged_room());
        };
        let op = SendOp::Send { len: bytes as u32 };
        if self.half.posting.queue_mut().stage(op, planned.signalled).is_err() {
            return Err(self.misjudged_room());
        }
        self.take_credits(1);
        if self.half.posting.queue().staged() >= self.batch_limit() {
            self.post_batch()?;
        }
        Ok(self.ticket(planned.id))
    }

    /// Makes sure that a message of `bytes` bytes may be staged, or joins the open pack.
    fn prepare(&mut self, bytes: usize) -> Result<(), SendError> {
        if bytes > self.max_message_bytes() {
            return Err(self.too_long(bytes));
        }
        match &self.packer {
            Some(packer) if packer.count() > 0 && packer.fits(bytes) => {
                Ok(self.half.posting.check()?)
            }
            Some(_) => {
                self.end_pack()?;
                self.make_room()
            }
            None => self.make_room(),
        }
    }

    /// Messages of a list, beyond which it is posted.
    fn batch_limit(&self) -> u32 {
        if self.half.gathers { u32::MAX } else { self.config.batch }
    }
}

/// Runs: messages with only their length to check. The ids and credits of a run are booked for all
/// its messages at once.
impl Sender {
    /// Begins a run of messages: until the batch is full, the next one has to be signalled
    /// (which it then is), or there is no room.
    fn open_run(&mut self) {
        let most = match (self.half.posting.ended(), &self.packer) {
            (None, None) => self.room(),
            _ => 0,
        };
        let batch = self.batch_limit().saturating_sub(self.half.posting.queue().staged());
        self.half.posting.open_run(most.min(batch), self.limit);
    }

    /// Messages that credits and the queue have room for; the run is booked.
    fn room(&self) -> u32 {
        let credits = if self.config.credits { self.window.available() } else { u32::MAX };
        self.half.posting.room().min(credits)
    }

    /// The last message of a run was staged.
    #[inline(never)]
    fn end_run(&mut self) -> Result<(), SendError> {
        if self.half.posting.queue().staged() >= self.batch_limit() {
            return self.post_batch();
        }
        self.book();
        self.open_run();
        Ok(())
    }

    /// Books the messages staged in the run. Call it before the send queue or the window is used
    /// otherwise, and before the run is posted.
    pub(super) fn book(&mut self) {
        let booked = self.half.posting.book();
        if booked > 0 {
            self.stats.messages += u64::from(booked);
            self.take_credits(booked);
        }
    }

    fn take_credits(&mut self, messages: u32) {
        if self.config.credits {
            let taken = self.window.consume(messages);
            debug_assert!(taken.is_ok(), "there was room, so there were credits");
        }
    }
}

/// Packing: small messages share a work request, because larger messages outperform batches of
/// small ones (Fischer, "Send Receive", section Batching).
impl Sender {
    fn pack(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<Ticket, SendError> {
        if bytes > self.pack_limit {
            return Err(self.too_long(bytes));
        }
        if self.packer.as_ref().is_some_and(|packer| !packer.fits(bytes)) {
            self.end_pack()?;
        }
        match &self.packer {
            Some(packer) if packer.count() == 0 => self.make_room()?,
            // An open pack has room of its own, but may never be sent.
            _ => self.half.posting.check()?,
        }
        // The slot stays ours until the pack has ended: nothing else is staged
        // meanwhile, so the pack's request will get the next id.
        let slot = self.half.posting.slot().ok_or(SendError::Full(Full::Window))?;
        let packer = self.packer.as_mut().ok_or(SendError::Full(Full::Window))?;
        // Booked after `fill`: one that panics has packed nothing.
        let mut packed = packer.clone();
        let record = packed.reserve(slot, bytes).map_err(|_| SendError::Full(Full::Window))?;
        fill(record);
        *packer = packed;
        self.stats.messages += 1;
        self.stats.bytes += bytes as u64;
        Ok(self.ticket(self.half.posting.next_id()))
    }

    /// Posts accepted messages.
    fn push(&mut self) -> Result<(), SendError> {
        self.end_pack()?;
        self.post()
    }

    /// Stages the pack that is being filled, if there is one.
    fn end_pack(&mut self) -> Result<(), SendError> {
        let Some(packer) = &mut self.packer else { return Ok(()) };
        if packer.count() == 0 {
            return Ok(());
        }
        let (bytes, count) = (packer.len() as usize, packer.count());
        packer.reset();
        self.packs.note(self.data_sent(), count);
        self.stage_data(bytes).map(drop)
    }
}
