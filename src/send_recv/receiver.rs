//! The receiving half: one thread, one completion queue, any number of peers.

mod settling;
mod sweep;
mod wait;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use verbs_safe::{CompletionBatch, RecvRun};

use super::Config;
use super::link::{CompletionEffect, ReceiverStats, SendRecvLink};
use super::links::Links;
use super::message::{Message, OpenPack};
use super::returns::SlotReturns;
use super::shared::SlotReturn;
use super::shared::{LoanClock, RECALL_AFTER};
use crate::arm::Arm;
use crate::error::{CloseReason, Losses, ProtocolError, RecvError};
use crate::half::RecvHalf;
use crate::keepalive::KeepaliveDue;
use crate::peer::Peer;
use crate::wait::{POLL_SLEEP, polls_in_a_row};
use crate::waiting::{CqWaiting, Waits};

/// The receiving half of one connection, or of many.
///
/// With one peer it is a connection's other half. In *single-receiver mode*
/// ("Send Receive", section Single Receiver) the completions of many queue pairs
/// end up in one completion queue, and the queue pair number of a completion tells
/// which peer it belongs to.
///
/// The receiver reposts buffers and grants credits in the calls that receive. Other
/// threads may drop messages meanwhile: that wakes a receiver that sleeps.
///
/// A sender that has gone takes no place any more when its last message was freed; its
/// queue pair and its buffers are freed in the calls that receive, after
/// [`linger`](crate::Common::linger) or as soon as another one needs the place. So a
/// receiver may have any number of senders in its life, one after the other.
#[derive(Debug)]
pub struct Receiver {
    pub(super) waiting: CqWaiting,
    batch: CompletionBatch,
    /// Messages of one peer that were taken from the batch. They precede the rest of the batch.
    run: RecvRun<SlotReturn>,
    /// The peer that sent them, and the place of its link.
    run_of: (Peer, u32),
    pub(super) links: Links,
    /// Places of links with changed books since they were last settled.
    dirty: Vec<u32>,
    /// Places of links that need not be settled until they are marked again, or the receiver
    /// is idle: of many peers most have gathered a few buffers.
    resting: Vec<u32>,
    pub(super) returns: Arc<SlotReturns>,
    freed: Box<[u32]>,
    /// The pools that links have buffers of.
    pools: Vec<LoanClock>,
    open_pack: Option<OpenPack>,
    /// Found by the slow paths of receiving, for the fast path to hand out.
    found: Option<Message>,
    trouble: Option<RecvError>,
    /// All senders have closed, which a sender that joined has found out before the program.
    has_untold_close: bool,
    max_peers: u32,
    polls: u32,
    losses: Losses,
    stats: ReceiverStats,
    ended: Option<CloseReason>,
}

/// Making, inspecting.
impl Receiver {
    pub(crate) fn new(
        waiting: CqWaiting,
        returns: Arc<SlotReturns>,
        config: &Config,
        max_peers: u32,
    ) -> Receiver {
        let batch = config.poll_batch as usize;
        Receiver {
            batch: CompletionBatch::new(batch),
            run: RecvRun::new(batch),
            run_of: (Peer(u32::MAX), u32::MAX),
            links: Links::new(max_peers, waiting.common.linger),
            waiting,
            dirty: Vec::with_capacity(max_peers as usize),
            resting: Vec::new(),
            returns,
            freed: vec![0; 64].into_boxed_slice(),
            pools: Vec::new(),
            open_pack: None,
            found: None,
            trouble: None,
            has_untold_close: false,
            max_peers,
            polls: 0,
            losses: Losses::default(),
            stats: ReceiverStats::default(),
            ended: None,
        }
    }

    /// Returns the counters, which include senders that have left.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        // Messages were counted when they were taken.
        let messages = self.stats.messages - self.run.len() as u64;
        let bytes = self.stats.bytes - self.run.bytes();
        ReceiverStats { messages, bytes, ..self.links.stats() }
    }
}

impl RecvHalf for Receiver {
    type Message = Message;

    fn peers(&self) -> usize {
        self.links.iter().filter(|l| l.is_open()).count()
    }

    fn registered_bytes(&self) -> u64 {
        self.links.iter().map(SendRecvLink::registered_bytes).sum()
    }

    // Always: a message that is returned through memory is copied about (see below).
    #[inline(always)]
    fn try_recv(&mut self) -> Result<Message, RecvError> {
        // A message leaves this loop in registers: no callee writes to the result's memory, which
        // would copy each message. The slow paths leave their results in `found` and `trouble`.
        loop {
            if let Some(buffer) = self.run.next() {
                let (peer, place) = self.run_of;
                return Ok(Message { buffer, peer, place });
            }
            self.go_on();
            if let Some(message) = self.found.take() {
                return Ok(message);
            }
            if let Some(trouble) = self.trouble.take() {
                return Err(trouble);
            }
        }
    }

    fn arm(&mut self) -> Result<Arm<'_>, RecvError> {
        self.returns.wakeup().retract();
        self.waiting.disarm().map_err(|reason| self.fail(reason))?;
        self.look_after();
        if self.waiting.channel.is_none() {
            return Ok(self.waiting.no_event());
        }
        self.returns.wakeup().announce();
        if !self.pools.is_empty() {
            self.links.iter_mut().for_each(SendRecvLink::hurry);
        }
        self.collect_freed();
        self.settle(true)?;
        self.waiting.arm_loop().map_err(|reason| self.fail(reason))?;
        let has_more = !self.run.is_empty() || !self.batch.is_empty() || self.open_pack.is_some();
        if has_more || self.found.is_some() || self.trouble.is_some() || self.poll()? > 0 {
            return Ok(Arm::Ready);
        }
        // A failure that no completion reports.
        if let Some((peer, reason)) = self.links.next_error() {
            return Err(self.losses.report(peer, reason));
        }
        if std::mem::take(&mut self.has_untold_close) && !self.has_open_links() {
            return Ok(Arm::Ready);
        }
        let within = match () {
            () if !self.links.stale.is_empty() => POLL_SLEEP,
            () if self.pools.iter().any(LoanClock::is_needed) => RECALL_AFTER,
            () => Duration::MAX,
        };
        let within = within.min(self.waiting.left());
        Ok(self.waiting.event(Some(self.returns.wakeup().as_fd()), within)?)
    }

    #[inline]
    fn try_recv_each(&mut self, mut each: impl FnMut(Peer, &[u8])) -> Result<usize, RecvError> {
        loop {
            let (count, (peer, place)) = (self.run.len(), self.run_of);
            if count > 0 {
                if let Some(link) = self.links.get_mut(place) {
                    // First, so that the freed buffers are settled if `each` panics.
                    mark(&mut self.dirty, link, place);
                    link.reclaim_each(&mut self.run, |bytes| each(peer, bytes));
                }
                return Ok(count);
            }
            self.go_on();
            if let Some(message) = self.found.take() {
                each(message.peer(), &message);
                self.free(message);
                return Ok(1);
            }
            if let Some(trouble) = self.trouble.take() {
                return Err(trouble);
            }
        }
    }

    // Always: as `try_recv`.
    #[inline(always)]
    fn free(&mut self, message: Message) {
        let Message { buffer, place, .. } = message;
        // A message of an earlier link of the place is dropped.
        let Some(link) = self.links.get_mut(place) else { return };
        link.reclaim(buffer);
        mark(&mut self.dirty, link, place);
    }
}

/// Receiving.
impl Receiver {
    /// Finds more when the messages that were taken are handed out: there may be a packed
    /// one to finish, completions that were polled, or new ones.
    #[inline(never)]
    fn go_on(&mut self) {
        // Messages or errors that were found while a sender joined are handed out first.
        if self.found.is_some() || self.trouble.is_some() {
            return;
        }
        if self.open_pack.is_some() {
            self.found = self.next_packed();
        } else if let Some(qp_num) = self.batch.next_qp_num() {
            self.advance(qp_num);
        } else {
            self.trouble = self.refill().err();
        }
    }

    /// Takes the next entries of the batch, which are of the queue pair `qp_num`: a run of
    /// messages, or one completion of another kind.
    #[inline]
    fn advance(&mut self, qp_num: u32) {
        let place = self.links.find(qp_num);
        let Some((place, link)) = place.and_then(|p| Some((p, self.links.get_mut(p)?))) else {
            return self.batch.pop().into_iter().for_each(|c| self.links.stale.absorb(c));
        };
        mark(&mut self.dirty, link, place);
        let taken = link.take_run(&mut self.batch, &mut self.run);
        if taken == 0 {
            return self.take_one(place);
        }
        self.run_of = (link.peer(), place);
        self.stats.messages += u64::from(taken);
        self.stats.bytes += self.run.taken_bytes();
    }

    /// Takes the next completion, which is of the link at `place`.
    #[inline(never)]
    fn take_one(&mut self, place: u32) {
        let Some(link) = self.links.get_mut(place) else { return };
        let Some(completion) = self.batch.pop() else { return };
        match link.take(completion) {
            Ok(buffer) if link.is_packed() => self.open_pack = Some(OpenPack::new(buffer, link)),
            Ok(buffer) => {
                self.stats.messages += 1;
                self.stats.bytes += buffer.len() as u64;
                self.found = Some(Message { buffer, peer: link.peer(), place });
            }
            Err(other) => {
                if link.arrive(other) == CompletionEffect::Failed {
                    self.trouble = report(link, &mut self.losses);
                }
            }
        }
    }
}

/// Completions.
impl Receiver {
    /// The next message of the open pack; closes it after its last.
    fn next_packed(&mut self) -> Option<Message> {
        let OpenPack { buffer, records, peer, place } = self.open_pack.as_mut()?;
        let (peer, place) = (*peer, *place);
        match records.next(buffer) {
            Ok(Some(span)) => {
                let buffer = buffer.slice(span.range());
                self.stats.messages += 1;
                self.stats.bytes += buffer.len() as u64;
                Some(Message { buffer, peer, place })
            }
            Ok(None) => {
                self.open_pack = None;
                None
            }
            Err(e) => {
                self.open_pack = None;
                let link = self.links.get_mut(place).filter(|link| link.peer() == peer)?;
                link.fail(CloseReason::Protocol(ProtocolError::Pack(e)));
                self.trouble = report(link, &mut self.losses);
                None
            }
        }
    }

    /// Polls for more, after the work owed for the batch before.
    fn refill(&mut self) -> Result<(), RecvError> {
        self.polls = self.polls.wrapping_add(1);
        let is_round = self.waiting.look() == KeepaliveDue::Round;
        if is_round {
            self.ask_silent_peers();
        }
        if is_round || self.polls.is_multiple_of(Self::POLLS_PER_LOOK) {
            self.tick_pools();
        }
        self.collect_freed();
        self.settle(false)?;
        if self.poll()? > 0 {
            return Ok(());
        }
        self.settle(true)?;
        self.links.tidy();
        Err(self.nothing())
    }

    /// Polls between two checks for loans to recall.
    const POLLS_PER_LOOK: u32 = 64;

    fn tick_pools(&self) {
        let now = host::time::now();
        self.pools.iter().for_each(|pool| pool.tick(now));
    }

    /// Does the work that is due before a sleep: recalls loans, and begins a round.
    #[cold]
    fn look_after(&mut self) {
        self.tick_pools();
        if self.waiting.begins_round() {
            self.ask_silent_peers();
        }
    }

    /// Begins a round: probes the peers that have sent nothing since the last one.
    #[cold]
    fn ask_silent_peers(&mut self) {
        for link in self.links.iter_mut() {
            link.ask_if_silent();
            // The probe may have failed.
            let place = link.place();
            mark(&mut self.dirty, link, place);
        }
    }

    /// Polls a few times, until something has arrived. The next try takes it, or a failure.
    #[inline]
    fn watch(&mut self) {
        debug_assert!(self.batch.is_empty(), "a try has found nothing");
        for _ in 0..polls_in_a_row() {
            if self.poll() != Ok(0) {
                return;
            }
        }
    }

    fn poll(&mut self) -> Result<usize, RecvError> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone().into());
        }
        let polled = self.waiting.cq.poll(&mut self.batch);
        let polled = polled.map_err(|e| self.fail(CloseReason::device(e)))?;
        if polled > 0 {
            // An event loop is awake: frees need no wakeup, which is a system call.
            self.returns.wakeup().retract();
        }
        Ok(polled)
    }

    /// Returns the reason why there is nothing: not yet, or never.
    fn nothing(&mut self) -> RecvError {
        // A failure that no completion reported (a post that was refused).
        if let Some((peer, ended)) = self.links.next_error() {
            return self.losses.report(peer, ended);
        }
        if self.has_open_links() { RecvError::Empty } else { self.losses.end(self.links.joined()) }
    }

    /// Reports whether a message may still come: also before any sender has joined.
    fn has_open_links(&self) -> bool {
        self.links.joined() == 0 || self.links.iter().any(SendRecvLink::is_open)
    }
}

/// The error of a link that has failed, to be handed out once.
#[cold]
fn report(link: &mut SendRecvLink, losses: &mut Losses) -> Option<RecvError> {
    SendRecvLink::error_of(link).map(|(peer, ended)| losses.report(peer, ended))
}

/// Notes that a link has something to settle.
#[inline]
fn mark(dirty: &mut Vec<u32>, link: &mut SendRecvLink, place: u32) {
    if !link.marked {
        link.marked = true;
        dirty.push(place);
    }
}
