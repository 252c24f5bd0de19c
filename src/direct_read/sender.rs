//! The sending half.

mod drive;
mod wait;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use conn_core::direct_read::{Offers, Outcome, Place, ReadRequest, SignalAt};
use conn_core::wr::WrClass;
use verbs_safe::{
    CompletionBatch, CompletionChannel, CompletionQueue, QpControl, RecvQueue, SendOp, SendQueue,
    SharedRegion,
};

use super::error::misjudged;
use super::{Config, NotSent, Offer, SendError};
use crate::send_recv::Ended;
use crate::wait::{Deadline, Silence};
use crate::wire::Tracker;

use verbs_safe::Buffer;

/// Proof that a message was offered, and what to [`wait`](Sender::wait) for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The number of its sender.
    sender: u32,
    number: u64,
}

/// Numbers of senders, so that a ticket tells whose it is.
static SENDERS: AtomicU32 = AtomicU32::new(0);

/// A message that the receiver is done with: its buffer is its owner's again.
#[derive(Debug)]
#[must_use = "it may have been refused"]
pub struct Sent<B> {
    /// The buffer, as it was.
    pub buffer: B,
    /// Whether it was read, or refused.
    pub outcome: Outcome,
}

/// What a sender has done so far.
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
    /// Work requests of the send queue: read requests, pulls, bells, keepalives.
    pub work_requests: u64,
}

/// A message that is on offer.
#[derive(Debug)]
struct OnOffer<B> {
    number: u64,
    buffer: B,
}

/// The sending half of a Direct Read connection: one queue pair, one thread.
///
/// A message is a registered buffer, which the sender has from
/// [`send_async`](Sender::send_async) until [`wait`](Sender::wait) gives it back: until
/// the receiver has read it, nobody can change or free it, and nothing copies it.
///
/// The receiver can read a buffer as long as it is registered, also after it was given
/// back, and so can every peer of a connection on the same device that learns its key.
/// Drop it to end that, and use buffers of their own for receivers that must not see each
/// other's messages.
///
/// Dropping a sender waits for what was offered and says goodbye, for at most
/// [`linger`](Config::linger).
#[derive(Debug)]
pub struct Sender<B: Offer = Buffer> {
    serial: u32,
    control: QpControl,
    queue: SendQueue,
    /// Empty buffers for the receiver's notices.
    notices: RecvQueue<()>,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    /// Here but for the time of a poll.
    batch: Option<CompletionBatch>,
    tracker: Tracker,
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
    /// Pulls that told nothing since one did, and looks since the last one.
    vain_pulls: u32,
    looks: u32,
    /// The receiver was asked for a bell, and has not rung.
    bell: bool,
    /// The message that a bell was asked for last.
    bell_for: u64,
    /// Looks in vain since the receiver has rung.
    vain_looks: u32,
    config: Config,
    app_limit: usize,
    ended: Option<Ended>,
    silence: Silence,
    stats: SenderStats,
}

/// What the set-up hands over.
pub(crate) struct SenderParts {
    pub(crate) control: QpControl,
    pub(crate) queue: SendQueue,
    pub(crate) notices: RecvQueue<()>,
    pub(crate) cq: CompletionQueue,
    pub(crate) channel: Option<CompletionChannel>,
    pub(crate) tracker: Tracker,
    pub(crate) offers: Offers,
    pub(crate) memory: SharedRegion,
    pub(crate) counts: Option<Place>,
    pub(crate) config: Config,
    pub(crate) app_limit: usize,
}

/// Where the signals begin in a sender's memory, and how far it is to the next one.
pub(crate) const SIGNALS_AT: usize = 64;
pub(crate) const SIGNAL_STRIDE: usize = 8;

/// Making, inspecting.
impl<B: Offer> Sender<B> {
    pub(super) const POLL_BATCH: usize = 32;

    pub(crate) fn new(parts: SenderParts) -> Sender<B> {
        Sender {
            // Relaxed: a number, and nothing that it would publish.
            serial: SENDERS.fetch_add(1, Ordering::Relaxed),
            control: parts.control,
            queue: parts.queue,
            notices: parts.notices,
            cq: parts.cq,
            channel: parts.channel,
            batch: None,
            tracker: parts.tracker,
            offers: parts.offers,
            on_offer: VecDeque::new(),
            done: VecDeque::new(),
            memory: parts.memory,
            seen: 0,
            counts: parts.counts,
            pull: None,
            vain_pulls: 0,
            looks: 0,
            bell: false,
            bell_for: 0,
            vain_looks: 0,
            config: parts.config,
            app_limit: parts.app_limit,
            ended: None,
            silence: Silence::default(),
            stats: SenderStats::default(),
        }
    }

    /// Longest application data, in bytes.
    #[must_use]
    pub fn max_app_bytes(&self) -> usize {
        self.app_limit
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        SenderStats { work_requests: self.queue.posted_total(), ..self.stats }
    }

    /// The queue pair's number.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.control.qp_num()
    }

    /// Messages that are offered and not acknowledged yet.
    #[must_use]
    pub fn unacked(&self) -> usize {
        self.on_offer.len()
    }
}

/// Sending.
impl<B: Offer> Sender<B> {
    /// Offers a whole buffer, with application data for the receiver to decide by; waits
    /// for room in the window.
    ///
    /// ```
    /// use rdma_conn::direct_read::{BufferConfig, Config, Outcome, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut sender, mut receiver) = pair(&device, &device, &Config::default())?;
    /// let mut message = device.pd().register_buffer(1 << 20, BufferConfig::READABLE)?;
    /// message.fill(7);
    /// let ticket = sender.send_async(message, b"block 3")?;
    ///
    /// let request = receiver.next_request()?;
    /// assert_eq!((request.bytes(), request.app()), (1 << 20, &b"block 3"[..]));
    /// let place = device.pd().register_buffer(1 << 20, BufferConfig::default())?;
    /// let reading = request.read_into(place).map_err(|e| e.why)?;
    /// let message = receiver.wait(reading)?;
    /// assert!(message.iter().all(|byte| *byte == 7));
    ///
    /// let sent = sender.wait(ticket)?; // the buffer is ours again
    /// assert_eq!(sent.outcome, Outcome::Read);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`NotSent`] with the buffer.
    pub fn send_async(&mut self, buffer: B, app: &[u8]) -> Result<Ticket, NotSent<B>> {
        let range = 0..buffer.bytes();
        self.send_part(buffer, range, app, Deadline::NEVER)
    }

    /// Offers a part of a buffer.
    ///
    /// # Errors
    /// As [`send_async`](Sender::send_async).
    pub fn send_part_async(
        &mut self,
        buffer: B,
        range: Range<usize>,
        app: &[u8],
    ) -> Result<Ticket, NotSent<B>> {
        self.send_part(buffer, range, app, Deadline::NEVER)
    }

    /// As [`send_part_async`](Sender::send_part_async), if there is room now.
    ///
    /// # Errors
    /// [`SendError::Full`] in the [`NotSent`] when there is none: try again later.
    pub fn try_send_part(
        &mut self,
        buffer: B,
        range: Range<usize>,
        app: &[u8],
    ) -> Result<Ticket, NotSent<B>> {
        match self.offer(&buffer, range, app) {
            Ok(number) => Ok(self.offered(buffer, number)),
            Err(error) => Err(NotSent { buffer, error }),
        }
    }

    fn send_part(
        &mut self,
        buffer: B,
        range: Range<usize>,
        app: &[u8],
        deadline: Deadline,
    ) -> Result<Ticket, NotSent<B>> {
        let mut idle = self.idle(deadline);
        loop {
            let error = match self.offer(&buffer, range.clone(), app) {
                Ok(number) => return Ok(self.offered(buffer, number)),
                Err(SendError::Full) => self.wait_a_little(&mut idle).err(),
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                return Err(NotSent { buffer, error });
            }
        }
    }

    fn offered(&mut self, buffer: B, number: u64) -> Ticket {
        self.on_offer.push_back(OnOffer { number, buffer });
        Ticket { sender: self.serial, number }
    }

    /// Takes the next message that the receiver is done with, in order, if there is one;
    /// never waits.
    ///
    /// # Errors
    /// [`SendError::Ended`] when nothing more will be acknowledged.
    pub fn try_take(&mut self) -> Result<Option<(Ticket, Sent<B>)>, SendError> {
        if self.done.is_empty() {
            self.progress(true)?;
        }
        if let Some((number, sent)) = self.done.pop_front() {
            return Ok(Some((Ticket { sender: self.serial, number }, sent)));
        }
        self.check_alive()?;
        Ok(None)
    }

    /// Waits until the receiver has read the message of `ticket`, or has refused it, and
    /// takes the buffer.
    ///
    /// # Errors
    /// [`SendError::Ended`], [`SendError::UnknownTicket`].
    pub fn wait(&mut self, ticket: Ticket) -> Result<Sent<B>, SendError> {
        self.wait_until(ticket, Deadline::NEVER)
    }

    /// As [`wait`](Sender::wait), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`SendError::TimedOut`]; the ticket stays good.
    pub fn wait_timeout(
        &mut self,
        ticket: Ticket,
        timeout: Duration,
    ) -> Result<Sent<B>, SendError> {
        self.wait_until(ticket, Deadline::after(timeout))
    }

    /// Waits for the next message that the receiver is done with, in order.
    ///
    /// # Errors
    /// [`SendError::Ended`], [`SendError::UnknownTicket`] when nothing is on offer and
    /// nothing to be taken.
    pub fn wait_next(&mut self) -> Result<Sent<B>, SendError> {
        let first = self.done.front().map(|(number, _)| *number);
        let number = first.or(self.offers.awaited()).ok_or(SendError::UnknownTicket)?;
        self.wait(Ticket { sender: self.serial, number })
    }

    /// Whether the receiver is done with the message of `ticket`; never waits.
    ///
    /// # Errors
    /// As [`wait`](Sender::wait).
    pub fn is_done(&mut self, ticket: Ticket) -> Result<bool, SendError> {
        self.check_known(ticket)?;
        if ticket.number > self.offers.acked() {
            self.progress(true)?;
        }
        match &self.ended {
            _ if ticket.number <= self.offers.acked() => Ok(true),
            Some(ended) => Err(ended.clone().into()),
            None => Ok(false),
        }
    }

    /// Waits until every message is acknowledged. The buffers stay to be taken.
    ///
    /// # Errors
    /// [`SendError::Ended`].
    pub fn wait_all(&mut self) -> Result<(), SendError> {
        self.drain(Deadline::NEVER)
    }

    /// After the connection has ended, takes the buffer of a message that was not
    /// acknowledged. `None` before, and when it was taken.
    pub fn take_back(&mut self, ticket: Ticket) -> Option<B> {
        self.ended.as_ref()?;
        if ticket.sender != self.serial {
            return None;
        }
        let at = self.on_offer.iter().position(|on| on.number == ticket.number)?;
        self.on_offer.remove(at).map(|on| on.buffer)
    }

    /// Waits for all that was offered, says goodbye and ends the half; gives the buffers
    /// back that were not taken, in order.
    ///
    /// # Errors
    /// [`SendError::Ended`] when something offered was not acknowledged.
    pub fn close(mut self) -> Result<Vec<Sent<B>>, SendError> {
        self.goodbye(Deadline::NEVER)?;
        Ok(self.done.drain(..).map(|(_, sent)| sent).collect())
    }
}

/// Offering.
impl<B: Offer> Sender<B> {
    /// Posts the read request of a message: its number.
    fn offer(&mut self, buffer: &B, range: Range<usize>, app: &[u8]) -> Result<u64, SendError> {
        self.check_alive()?;
        if app.len() > self.app_limit {
            let (bytes, limit) = (app.len(), self.app_limit);
            return Err(SendError::AppTooLong { bytes, limit });
        }
        let span = buffer.span(range)?;
        let tail = self.tail(buffer)?;
        self.make_room()?;
        let number = self.offers.offer().map_err(|_| SendError::Full)?;
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
    fn tail<'b>(&self, buffer: &'b B) -> Result<Option<&'b SharedRegion>, SendError> {
        let wanted = self.config.ack.signals() && self.config.signal_at == SignalAt::Tail;
        let tail = buffer.tail();
        if wanted && tail.is_none() {
            return Err(SendError::NoSignal);
        }
        Ok(tail.filter(|_| wanted))
    }

    /// Makes sure that one more request may be staged.
    fn make_room(&mut self) -> Result<(), SendError> {
        if self.offers.room() == 0 || self.tracker.available(WrClass::Data) == 0 {
            self.progress(true)?;
            self.check_alive()?;
        }
        if self.offers.room() == 0 || self.tracker.available(WrClass::Data) == 0 {
            return Err(SendError::Full);
        }
        Ok(())
    }

    /// Says in the message's signal that there is no outcome yet; where it is.
    fn clear_signal(
        &mut self,
        tail: Option<&SharedRegion>,
        number: u64,
    ) -> Result<Option<Place>, SendError> {
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
        let Some(slot) = self.queue.next_slot() else {
            return Err(self.fail(misjudged(verbs_safe::StageError::NoSlot)).into());
        };
        let len = match request.encode(slot) {
            Ok(len) => len as u32,
            Err(e) => return Err(self.fail(Ended::Device(e.to_string())).into()),
        };
        self.stage(SendOp::Send { len }, WrClass::Data, false)?;
        self.post()
    }
}

impl<B: Offer> Drop for Sender<B> {
    fn drop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        if let Err(e) = self.goodbye(Deadline::after(self.config.linger)) {
            let qp = self.qp_num();
            tracing::warn!(qp, error = %e, "sender dropped before all was acknowledged");
        }
    }
}
