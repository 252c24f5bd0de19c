//! The receiving half, for one peer or many.

mod reading;
mod requests;
mod sweep;
mod wait;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use conn_core::direct_read::Refusal;
use verbs_safe::{Completion, CompletionBatch, ProtectionDomain, RecvPoster};

use super::landing::LandingBuffers;
use super::link::{Arrived, DirectReadLink, Landed, SenderMessage};
use super::room::ReadSink;
use super::{Config, NotReadReason};
use crate::arm::Arm;
use crate::doorbell;
use crate::error::{CloseReason, Losses, ProtocolError, RecvError, close_reason};
use crate::keepalive::KeepaliveDue;
use crate::new_pair::LinkHost;
use crate::peer::Peer;
use crate::wait::polls_in_a_row;
use crate::waiting::{CqWaiting, Waits};

/// Counters of a receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Messages that were read.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// Work requests of all send queues: READs, acknowledgements, keepalives.
    pub work_requests: u64,
    /// Shared buffers for requests that may be lost, as in
    /// [`send_recv::ReceiverStats`](crate::send_recv::ReceiverStats::unaccounted_buffers).
    pub unaccounted_buffers: u64,
}

/// Numbers of receivers, so that a ticket identifies its receiver.
static RECEIVERS: AtomicU32 = AtomicU32::new(0);

/// The receiving half of a Direct Read connection: of one sender or of many, on one
/// completion queue, for one thread.
///
/// Requests are seen in the order of their arrival
/// ([`next_request`](crate::ZeroCopyRecv::next_request)), and decided one after the other; any
/// number of messages is being read at a time. Every call drives the messages that are being read;
/// a receiver that is not called acknowledges nothing.
///
/// Dropping a receiver tells its senders that nothing more will be read.
#[derive(Debug)]
pub struct Receiver {
    pub(super) serial: u32,
    pub(super) waiting: CqWaiting,
    /// Here but for the time of a poll.
    batch: Option<CompletionBatch>,
    pub(super) links: Vec<DirectReadLink>,
    pub(super) max_peers: u32,
    pub(super) peers_so_far: u32,
    /// Buffers for the requests of all peers, where they are shared.
    pub(super) shared: Option<RecvPoster<()>>,
    /// Shared buffers that each link takes, at most.
    pub(super) share: u32,
    /// Requests that are not decided, in the order of their arrival.
    pub(super) arrived: VecDeque<Arrived>,
    /// Messages that were read, and not waited for yet.
    pub(super) landed: VecDeque<Landed>,
    /// Buffers for messages that are received without one of the user's.
    pub(super) landing: LandingBuffers,
    /// Tickets given out so far.
    tickets: u64,
    pub(super) config: Config,
    ended: Option<CloseReason>,
    stats: ReceiverStats,
    /// Work requests of links that are gone.
    past_requests: u64,
    losses: Losses,
    /// Requests that have arrived, and that had when the program looked for one.
    arrivals: u64,
    pub(super) seen: u64,
}

/// Making, inspecting.
impl Receiver {
    const POLL_BATCH: usize = 32;

    pub(crate) fn new(
        waiting: CqWaiting,
        shared: Option<RecvPoster<()>>,
        share: u32,
        max_peers: u32,
        config: Config,
        pd: ProtectionDomain,
    ) -> Receiver {
        let most = config.window as usize * max_peers as usize;
        Receiver {
            // Relaxed: a number, and nothing that it would publish.
            serial: RECEIVERS.fetch_add(1, Ordering::Relaxed),
            waiting,
            batch: None,
            links: Vec::new(),
            max_peers,
            peers_so_far: 0,
            shared,
            share,
            arrived: VecDeque::new(),
            landed: VecDeque::new(),
            landing: LandingBuffers::new(pd, config.message_bytes, most),
            tickets: 0,
            config,
            ended: None,
            stats: ReceiverStats::default(),
            past_requests: 0,
            losses: Losses::default(),
            arrivals: 0,
            seen: 0,
        }
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        let now: u64 = self.links.iter().map(|link| link.posting.posted_total()).sum();
        ReceiverStats { work_requests: self.past_requests + now, ..self.stats }
    }

    fn link(&mut self, peer: Peer) -> Option<&mut DirectReadLink> {
        self.links.iter_mut().find(|link| link.peer == peer)
    }
}

impl LinkHost for Receiver {
    type Link = DirectReadLink;

    fn add(&mut self, mut link: DirectReadLink) -> Peer {
        link.peer = Peer(self.peers_so_far);
        self.peers_so_far += 1;
        let peer = link.peer;
        self.links.push(link);
        peer
    }

    /// Its queue pair may have taken buffers that the links share: it goes as a link that has ended
    /// does.
    fn forget(&mut self, mut link: DirectReadLink) {
        link.fail(CloseReason::Closed);
        link.reported = true;
        self.links.push(link);
    }
}

/// Deciding requests.
impl Receiver {
    pub(super) fn oldest(&self) -> Option<&Arrived> {
        self.arrived.front()
    }

    /// Reads the oldest request into a buffer or a file: its ticket.
    pub(super) fn read_oldest(&mut self, room: ReadSink) -> Result<u64, (ReadSink, NotReadReason)> {
        let Some(arrived) = self.arrived.front() else {
            return Err((room, NotReadReason::Ended(CloseReason::Closed)));
        };
        let (len, bytes, ticket) = (arrived.len, room.bytes(), self.tickets + 1);
        if len > bytes {
            return Err((room, NotReadReason::BufferTooShort { len, room: bytes }));
        }
        let peer = arrived.peer;
        let Some(link) = self.links.iter_mut().find(|link| link.peer == peer) else {
            return Err((room, NotReadReason::Ended(CloseReason::Closed)));
        };
        if let Some(ended) = link.posting.ended().cloned() {
            return Err((room, NotReadReason::Ended(ended)));
        }
        if !room.takes(len, link.max_read()) {
            return Err((room, NotReadReason::NotForFiles { len }));
        }
        link.read(arrived, room, ticket).map_err(|room| (room, NotReadReason::OtherDevice))?;
        link.work();
        self.tickets = ticket;
        self.arrived.pop_front();
        self.collect(peer);
        Ok(ticket)
    }

    /// Acknowledges the oldest request if it has no bytes.
    pub(super) fn take_empty_oldest(&mut self) -> bool {
        let Some(arrived) = self.arrived.pop_front_if(|arrived| arrived.len == 0) else {
            return false;
        };
        self.stats.messages += 1;
        if let Some(link) = self.link(arrived.peer).filter(|link| link.posting.ended().is_none()) {
            link.take_empty();
            link.work();
        }
        true
    }

    pub(super) fn refuse_oldest(&mut self, why: Refusal) {
        let Some(arrived) = self.arrived.pop_front() else { return };
        self.stats.refused += 1;
        if let Some(link) = self.link(arrived.peer).filter(|link| link.posting.ended().is_none()) {
            link.refuse(why);
            link.work();
        }
    }
}

/// Driving.
impl Receiver {
    /// Polls completions and executes the work that follows from them; returns their number.
    pub fn progress(&mut self) -> Result<usize, RecvError> {
        self.progress_within(1)
    }

    /// As [`progress`](Self::progress), in a wait.
    pub(super) fn watch(&mut self) -> Result<usize, RecvError> {
        self.progress_within(polls_in_a_row())
    }

    /// Polls until something has completed, at most `polls` times.
    fn progress_within(&mut self, polls: u32) -> Result<usize, RecvError> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone().into());
        }
        let mut batch = self.batch.take().unwrap_or_else(|| CompletionBatch::new(Self::POLL_BATCH));
        let mut polled = self.waiting.cq.poll(&mut batch);
        for _ in 1..polls {
            if !matches!(polled, Ok(0)) {
                break;
            }
            polled = self.waiting.cq.poll(&mut batch);
        }
        for completion in batch.drain() {
            self.completed(completion);
        }
        self.batch = Some(batch);
        let polled = polled.map_err(|e| self.fail(CloseReason::Device(e.to_string())))?;
        if polled > 0 {
            // An event loop is awake: frees need no wakeup, which is a system call.
            self.landing.retract();
            let reposted = self.repost();
            self.probe_now_and_then();
            self.links.iter_mut().for_each(DirectReadLink::work);
            // Landed messages are handed out in spite of a failure.
            for at in 0..self.links.len() {
                self.collect(self.links[at].peer);
            }
            reposted?;
        }
        Ok(polled)
    }

    /// In calls that never wait, and while other peers are busy: probes silent peers once in a
    /// round. Returns true if the caller has to check for failures.
    pub(super) fn probe_now_and_then(&mut self) -> bool {
        let look = self.waiting.look();
        if look == KeepaliveDue::Round {
            self.begin_round();
        }
        look != KeepaliveDue::No
    }

    /// Arms the queue for an event loop of the program's, if nothing is there that it has not seen.
    /// `wants_buffers`: a message that another thread frees gives a buffer for the next one.
    pub(super) fn arm_for(
        &mut self,
        wants_buffers: bool,
        has_landed: impl Fn(&Receiver) -> bool,
    ) -> Result<Arm<'_>, RecvError> {
        if self.waiting.channel.is_none() {
            self.probe_silent_peers();
            return Ok(self.waiting.no_event());
        }
        // The descriptor is the same from the first call on.
        if wants_buffers {
            self.landing.home().map_err(RecvError::Ended)?;
        }
        self.landing.retract();
        self.waiting.disarm().map_err(|reason| self.fail(reason))?;
        self.landing.is_wanted = wants_buffers;
        let goes_on = self.landing.announce() && self.oldest().is_some();
        self.landing.is_wanted = false;
        self.waiting.arm_loop().map_err(|reason| self.fail(reason))?;
        // Accepting a sender may have found a message or the end of a peer.
        let is_untold = |link: &DirectReadLink| {
            let has_closed = self.arrived.is_empty() && link.is_over() && link.is_idle();
            !link.reported && (link.posting.ended().is_some() || has_closed)
        };
        let is_here = has_landed(self) || self.links.iter().any(is_untold);
        if goes_on || is_here || self.progress()? > 0 {
            return Ok(Arm::Ready);
        }
        self.probe_silent_peers();
        let left = self.waiting.left();
        Ok(self.waiting.event(self.landing.wakeup(), left)?)
    }

    /// Reports whether a request has arrived since the program looked for one.
    pub(super) fn has_new_requests(&self) -> bool {
        self.arrivals != self.seen && !self.arrived.is_empty()
    }

    /// Probes the peers that have been silent since the round before.
    pub(super) fn probe_silent_peers(&mut self) {
        if self.waiting.begins_round() {
            self.begin_round();
        }
    }

    fn begin_round(&mut self) {
        let mut asks = false;
        for link in &mut self.links {
            if !std::mem::take(&mut link.heard) {
                link.ask();
                asks = true;
            }
        }
        self.waiting.watch.asks(asks);
    }

    fn completed(&mut self, completion: Completion<'_>) {
        let id = completion.queue_id();
        if let Some(link) = self.links.iter_mut().find(|link| link.posting.queue_id() == id) {
            return link.completed(&completion);
        }
        let (imm, qp_num) = (completion.imm(), completion.qp_num());
        let own = self.links.iter().position(|link| link.posting.qp_num() == qp_num);
        let Some(at) = own else { return self.stale(completion) };
        let link = &mut self.links[at];
        let (is_shared, shared) = (link.recv.is_none(), self.shared.as_mut());
        let Some(recv) = link.recv.as_mut().or(shared).filter(|recv| recv.queue_id() == id) else {
            return link.fail(CloseReason::Protocol(ProtocolError::Completion));
        };
        let taken = match recv.take(completion) {
            Ok(buf) => buf,
            Err(e) => {
                // Its buffer is free again; a shared one is needed by other links.
                if is_shared && let Some(slot) = e.slot() {
                    recv.gather(slot);
                }
                let ended = close_reason(&e);
                return if link.posting.ended().is_none() {
                    link.fail(ended)
                };
            }
        };
        // The request is a few bytes, and is taken out at once.
        if link.posting.ended().is_none() {
            match link.received(imm, &taken) {
                Ok(SenderMessage::Request(arrived)) => {
                    self.arrivals += 1;
                    self.arrived.push_back(arrived);
                }
                Ok(SenderMessage::Notice) => {}
                Err(ended) => link.fail(ended),
            }
        }
        if let Some(recv) = link.recv.as_mut().or(self.shared.as_mut()) {
            recv.put_back(taken);
        }
    }

    /// Reposts the buffers of received requests. It precedes every acknowledgement: the sender
    /// offers the next message after it.
    fn repost(&mut self) -> Result<(), RecvError> {
        for link in &mut self.links {
            if let Some(Err(e)) = link.recv.as_mut().map(doorbell::post_gathered) {
                link.fail(CloseReason::Device(e.to_string()));
            }
        }
        match self.shared.as_mut().map(doorbell::post_gathered) {
            Some(Err(e)) => Err(self.fail(CloseReason::Device(e.to_string()))),
            _ => Ok(()),
        }
    }

    /// A completion of a queue pair that is gone: of a shared queue, its buffer comes back.
    fn stale(&mut self, completion: Completion<'_>) {
        let Some(shared) = &mut self.shared else { return };
        if completion.queue_id() != shared.queue_id() {
            return;
        }
        match shared.take(completion) {
            Ok(taken) => drop(shared.put_back(taken)),
            Err(e) => drop(e.slot().map(|slot| shared.gather(slot))),
        }
    }

    /// Gathers the messages of a link that have been read.
    fn collect(&mut self, peer: Peer) {
        let Some(link) = self.links.iter_mut().find(|link| link.peer == peer) else { return };
        while let Some(landed) = link.landed() {
            if landed.ended.is_none() {
                self.stats.messages += 1;
                self.stats.bytes += landed.len;
            }
            self.landed.push_back(landed);
        }
        self.landing.lost(std::mem::take(&mut link.lost_buffers));
    }

    /// The error of a peer that has ended, if it was not reported yet: the peer's offers
    /// cannot be read any more.
    pub(super) fn failure(&mut self) -> Option<RecvError> {
        self.failure_unless(|_, _| false)
    }

    /// As [`failure`](Self::failure), of a peer for which `is_held_up` is false: no landed message
    /// precedes the error.
    pub(super) fn failure_unless(
        &mut self,
        is_held_up: impl Fn(&VecDeque<Landed>, Peer) -> bool,
    ) -> Option<RecvError> {
        let landed = &self.landed;
        let is_new = |link: &&mut DirectReadLink| {
            let has_failed =
                link.posting.ended().is_some_and(|reason| *reason != CloseReason::Closed);
            !link.reported && has_failed && !is_held_up(landed, link.peer)
        };
        let link = self.links.iter_mut().find(is_new)?;
        link.reported = true;
        let (peer, ended) = (link.peer, link.posting.ended().cloned()?);
        self.arrived.retain(|arrived| arrived.peer != peer);
        Some(self.losses.report(peer, ended))
    }

    /// An end that was not reported yet: of one peer with an error, or of all peers.
    pub(super) fn report(&mut self) -> Option<RecvError> {
        if let Some(failure) = self.failure() {
            return Some(failure);
        }
        for link in self.links.iter_mut().filter(|link| link.is_over() && link.is_idle()) {
            link.posting.close();
            link.reported = true;
        }
        let has_had_any = self.peers_so_far > 0;
        let are_all = has_had_any && self.links.iter().all(|link| link.reported);
        are_all.then(|| self.losses.end(self.peers_so_far))
    }
}
