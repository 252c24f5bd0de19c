//! The sending half.

mod drive;
mod wait;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use conn_core::direct_read::{Offers, Place, ReadRequest, Refusal, SignalAt};
use conn_core::wr::WrClass;
use verbs_safe::{CompletionBatch, ProtectionDomain, RecvQueue, SendOp, SharedRegion};

use super::Config;
use crate::arm::Arm;
use crate::error::{CloseReason, Full, SendError, internal_error};
use crate::sending::{Half, Sends};
use crate::ticket::Ticket;
use crate::wait::Deadline;
use crate::zero_copy::{NotSent, Offer, OfferError, Sent, ZeroCopySend};

use verbs_safe::Buffer;

/// Counters of a sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// Messages offered.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages acknowledged as read.
    pub read: u64,
    /// Messages refused.
    pub refused: u64,
    /// Work requests of the send queue: read requests, pulls, wakeups, keepalives.
    pub work_requests: u64,
}

/// A message that is on offer.
#[derive(Debug)]
struct OnOffer<B> {
    number: u64,
    buffer: B,
    /// One of the sender's own, for a message that was copied.
    is_pooled: bool,
}

/// The sending half of a Direct Read connection: one queue pair, one thread.
///
/// A message is a registered buffer. The sender owns it from [`offer`](ZeroCopySend::offer) until
/// [`wait_sent`](ZeroCopySend::wait_sent) gives it back: the program cannot change or free it
/// before the receiver has read it, and nothing copies it.
///
/// The receiver can read a buffer as long as it is registered, also after it was given
/// back, and so can every peer of a connection on the same device that learns its key.
/// Drop it to end that, and use buffers of their own for receivers that must not see each
/// other's messages.
///
/// Dropping a sender waits for offered messages and says goodbye, for at most
/// [`linger`](crate::Common::linger).
#[derive(Debug)]
pub struct Sender<B: Offer = Buffer> {
    pub(super) half: Half,
    /// Empty buffers for the receiver's notices.
    notices: RecvQueue<()>,
    /// Here but for the time of a poll.
    batch: Option<CompletionBatch>,
    offers: Offers,
    on_offer: VecDeque<OnOffer<B>>,
    /// Acknowledged, and not taken.
    done: VecDeque<(u64, Sent<B>)>,
    /// The count, and the signals of the window, which the receiver writes.
    memory: SharedRegion,
    /// The count word that was looked at last.
    seen: u64,
    /// The receiver's count, to be pulled.
    counts: Option<Place>,
    /// The pull in flight.
    pull: Option<u64>,
    /// Consecutive pulls that found no new count, and looks since the last pull.
    vain_pulls: u32,
    looks: u32,
    /// The receiver was asked for a wakeup, and has not sent it.
    wakeup: bool,
    /// The message that a wakeup was asked for last.
    wakeup_for: u64,
    /// Looks since the receiver sent the wakeup that found no acknowledgement.
    vain_looks: u32,
    pub(super) config: Config,
    app_limit: usize,
    /// Free buffers of the sender's own. They are made when messages are first copied.
    pub(super) pool: Vec<B>,
    /// The first message of the pool that the receiver has refused.
    pub(super) refused: Option<(u64, Refusal)>,
    pub(super) pooled: u32,
    pub(super) pd: ProtectionDomain,
    pub(super) message_limit: usize,
    stats: SenderStats,
}

/// Offset of the first signal in a sender's memory, and the distance to the next one.
pub(crate) const SIGNALS_AT: usize = 64;
pub(crate) const SIGNAL_STRIDE: usize = 8;

/// Making, inspecting.
impl<B: Offer> Sender<B> {
    pub(super) const POLL_BATCH: usize = 32;

    pub(crate) fn new(
        half: Half,
        notices: RecvQueue<()>,
        offers: Offers,
        (memory, counts): (SharedRegion, Option<Place>),
        (app_limit, message_limit): (usize, usize),
        config: Config,
        pd: ProtectionDomain,
    ) -> Sender<B> {
        Sender {
            half,
            notices,
            batch: None,
            offers,
            on_offer: VecDeque::new(),
            done: VecDeque::new(),
            memory,
            seen: 0,
            counts,
            pull: None,
            vain_pulls: 0,
            looks: 0,
            wakeup: false,
            wakeup_for: 0,
            vain_looks: 0,
            config,
            app_limit,
            pool: Vec::new(),
            refused: None,
            pooled: 0,
            pd,
            message_limit,
            stats: SenderStats::default(),
        }
    }

    /// Longest application data, in bytes.
    #[must_use]
    pub fn max_app_bytes(&self) -> usize {
        self.app_limit
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        SenderStats { work_requests: self.half.posting.posted_total(), ..self.stats }
    }

    /// The queue pair's number.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.half.posting.qp_num()
    }

    /// Messages that are offered and not acknowledged yet.
    #[must_use]
    pub fn unacked(&self) -> usize {
        self.on_offer.len()
    }
}

/// Sending.
impl<B: Offer> Sender<B> {
    pub(super) fn offered(&mut self, buffer: B, number: u64, is_pooled: bool) -> Ticket {
        self.on_offer.push_back(OnOffer { number, buffer, is_pooled });
        self.half.ticket(number)
    }

    /// As [`SendHalf::is_acked`](crate::SendHalf::is_acked), for any kind of buffer. A message is
    /// acknowledged as read or as refused: [`wait_sent`](ZeroCopySend::wait_sent) returns which.
    ///
    /// # Errors
    /// [`SendError::Ended`], [`SendError::UnknownTicket`].
    pub fn is_acked(&mut self, ticket: Ticket) -> Result<bool, SendError> {
        if self.is_known(ticket) && !self.was_acked(ticket.number) {
            self.take_news(true)?;
        }
        let is_acked = self.is_acked_now(ticket)?;
        self.check_read(ticket.number).map(|()| is_acked)
    }

    /// The error of a message up to this one that was acknowledged, and not read.
    pub(super) fn check_read(&self, number: u64) -> Result<(), SendError> {
        match self.refused {
            Some((first, why)) if first <= number => Err(CloseReason::Refused(why).into()),
            _ => Ok(()),
        }
    }

    /// Waits until every message is acknowledged. The buffers stay to be taken.
    ///
    /// # Errors
    /// [`SendError::Ended`].
    pub fn wait_all(&mut self) -> Result<(), SendError> {
        self.drain_until(Deadline::NEVER)?;
        self.check_read(u64::MAX)
    }

    /// As [`wait_all`](Sender::wait_all), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`].
    pub fn wait_all_timeout(&mut self, timeout: Duration) -> Result<(), SendError> {
        self.drain_until(Deadline::after(timeout))?;
        self.check_read(u64::MAX)
    }
}

impl<B: Offer> ZeroCopySend for Sender<B> {
    type Buffer = B;

    fn try_offer_part(
        &mut self,
        buffer: B,
        range: Range<usize>,
        app: &[u8],
    ) -> Result<Ticket, NotSent<B>> {
        match self.post_offer(&buffer, range, app) {
            Ok(number) => Ok(self.offered(buffer, number, false)),
            Err(error) => Err(NotSent { buffer, error }),
        }
    }

    fn try_take(&mut self) -> Result<Option<(Ticket, Sent<B>)>, SendError> {
        self.look_after_peer()?;
        if self.done.is_empty() {
            self.take_news(true)?;
        }
        if let Some((number, sent)) = self.done.pop_front() {
            return Ok(Some((self.half.ticket(number), sent)));
        }
        self.half.posting.check()?;
        Ok(None)
    }

    fn arm_sent(&mut self) -> Result<Arm<'_>, SendError> {
        self.arm_by(|_| Ok(false))
    }

    fn take_back(&mut self, ticket: Ticket) -> Option<B> {
        self.half.posting.ended()?;
        if !self.is_known(ticket) {
            return None;
        }
        let is_it = |on: &OnOffer<B>| on.number == ticket.number && !on.is_pooled;
        let at = self.on_offer.iter().position(is_it)?;
        self.on_offer.remove(at).map(|on| on.buffer)
    }
}

/// Offering.
impl<B: Offer> Sender<B> {
    /// Posts the read request of a message: its number.
    pub(super) fn post_offer(
        &mut self,
        buffer: &B,
        range: Range<usize>,
        app: &[u8],
    ) -> Result<u64, OfferError> {
        self.look_after_peer()?;
        self.half.posting.check()?;
        if app.len() > self.app_limit {
            let (bytes, limit) = (app.len(), self.app_limit);
            return Err(OfferError::AppTooLong { bytes, limit });
        }
        let span = buffer.span(range)?;
        let tail = self.tail(buffer)?;
        self.make_room()?;
        let number = self.offers.offer().map_err(|_| SendError::Full(Full::Window))?;
        let signal = self.clear_signal(tail, number)?;
        let memory = match span.len {
            0 => ReadRequest::NOWHERE,
            _ => Place { addr: span.addr, rkey: span.rkey },
        };
        let request = ReadRequest { number: number as u32, len: span.len, memory, signal, app };
        self.post_request(&request)?;
        self.stats.messages += 1;
        self.stats.bytes += span.len;
        Ok(number)
    }

    /// The signal at the tail of a buffer, where that is where signals are.
    fn tail<'b>(&self, buffer: &'b B) -> Result<Option<&'b SharedRegion>, OfferError> {
        let wanted = self.config.ack.signals() && self.config.signal_at == SignalAt::Tail;
        let tail = buffer.tail();
        if wanted && tail.is_none() {
            return Err(OfferError::NoSignal);
        }
        Ok(tail.filter(|_| wanted))
    }

    /// Makes sure that one more request may be staged.
    pub(super) fn make_room(&mut self) -> Result<(), SendError> {
        let has_room =
            |sender: &Sender<B>| sender.offers.room() > 0 && sender.half.posting.room() > 0;
        if !has_room(self) {
            self.find_room(has_room)?;
        }
        if has_room(self) { Ok(()) } else { Err(SendError::Full(Full::Window)) }
    }

    /// Polls for acknowledgements; if they make no room, sends gathered requests.
    pub(super) fn find_room(
        &mut self,
        has_room: impl Fn(&Sender<B>) -> bool,
    ) -> Result<(), SendError> {
        self.take_news(false)?;
        if !has_room(self) {
            self.take_news(true)?;
        }
        Ok(self.half.posting.check()?)
    }

    /// Says in the message's signal that there is no outcome yet; where it is.
    fn clear_signal(
        &mut self,
        tail: Option<&SharedRegion>,
        number: u64,
    ) -> Result<Option<Place>, OfferError> {
        if !self.config.ack.signals() {
            return Ok(None);
        }
        let (region, at) = match tail {
            Some(tail) => (tail, 0),
            None => (&self.memory, self.signal_at(number)),
        };
        region.publish_tail(at, 0)?;
        let span = region.remote(at, 1)?;
        Ok(Some(Place { addr: span.addr, rkey: span.rkey }))
    }

    fn signal_at(&self, number: u64) -> usize {
        SIGNALS_AT + self.offers.place(number) as usize * SIGNAL_STRIDE
    }

    fn post_request(&mut self, request: &ReadRequest<'_>) -> Result<(), SendError> {
        let Some(slot) = self.half.posting.slot() else {
            let bug = internal_error(verbs_safe::StageError::NoSlot);
            return Err(self.half.posting.fail(bug).into());
        };
        let encoded = request.encode(slot).map_err(CloseReason::device);
        let len = encoded.map_err(|reason| self.half.posting.fail(reason))? as u32;
        self.stage(SendOp::Send { len }, WrClass::Data, false)?;
        if self.half.gathers { Ok(()) } else { Ok(self.half.posting.post()?) }
    }
}

impl<B: Offer> Drop for Sender<B> {
    fn drop(&mut self) {
        self.end();
    }
}
