//! The receiving half: one thread, one completion queue, any number of peers.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conn_core::control::Control;
use verbs_safe::{CompletionBatch, CompletionChannel, CompletionQueue, RecvRun};

use super::link::{Arrival, Link, Owed, Work};
use super::links::Links;
use super::message::{Message, OpenPack, Peer};
use super::returns::{Returns, SlotReturn};
use super::{Ended, RecvError, Violation};
use crate::wait::{Deadline, Idle, SILENT, Silence, Step, WaitStrategy};

/// What a receiver has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Messages handed out.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Work requests executed on the send queues: credits, keepalives, goodbyes.
    pub work_requests: u64,
    /// Credit messages sent.
    pub credits_sent: u64,
    /// Receive buffers posted, the first ones included.
    pub buffers_posted: u64,
}

/// The receiving half of one connection, or of many.
///
/// With one peer it is a connection's other half. In *single-receiver mode*
/// ("Send Receive", section Single Receiver) the completions of many queue pairs
/// end up in one completion queue, and the queue pair number of a completion tells
/// whose it is.
///
/// Whatever the receiver owes its peers (reposted buffers, credits) it does in the
/// calls that receive. Messages may be dropped by other threads meanwhile: a
/// receiver that sleeps is woken by it.
///
/// A sender that has gone takes no place any more when its last message was freed; its
/// queue pair and its buffers are freed in the calls that receive, after
/// [`linger`](super::Config::linger) or as soon as another one needs the place. So a
/// receiver may have any number of senders in its life, one after the other.
#[derive(Debug)]
pub struct Receiver {
    pub(super) cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    batch: CompletionBatch,
    /// Messages that were taken from the batch, of one peer. They come before what is
    /// left in it.
    run: RecvRun<SlotReturn>,
    /// Whose they are, and the place of the link.
    run_of: (Peer, u32),
    pub(super) links: Links,
    /// Places of links whose books have changed since they were last looked after.
    dirty: Vec<u32>,
    /// Places of links that need not be looked after until they are marked again, or the
    /// receiver is idle: of many peers most have gathered a few buffers.
    resting: Vec<u32>,
    pub(super) returns: Arc<Returns>,
    freed: Box<[u32]>,
    open_pack: Option<OpenPack>,
    /// What the slow ways of receiving have found, for the fast one to hand out.
    found: Option<Message>,
    trouble: Option<RecvError>,
    policy: Policy,
    silence: Silence,
    /// Polls for more, and when those who had sent nothing were last asked after.
    polls: u32,
    asked: Option<Instant>,
    stats: ReceiverStats,
    ended: Option<Ended>,
}

/// What of the configuration a receiver needs after it was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) wait: WaitStrategy,
    pub(crate) keepalive: Duration,
    pub(crate) linger: Duration,
    pub(crate) poll_batch: u32,
    pub(crate) max_peers: u32,
}

/// Making, inspecting.
impl Receiver {
    pub(crate) fn new(
        cq: CompletionQueue,
        channel: Option<CompletionChannel>,
        returns: Arc<Returns>,
        policy: Policy,
    ) -> Receiver {
        Receiver {
            cq,
            channel,
            batch: CompletionBatch::new(policy.poll_batch as usize),
            run: RecvRun::new(policy.poll_batch as usize),
            run_of: (Peer(u32::MAX), u32::MAX),
            links: Links::new(policy.max_peers, policy.linger),
            dirty: Vec::with_capacity(policy.max_peers as usize),
            resting: Vec::new(),
            returns,
            freed: vec![0; 64].into_boxed_slice(),
            open_pack: None,
            found: None,
            trouble: None,
            policy,
            silence: Silence::default(),
            polls: 0,
            asked: None,
            stats: ReceiverStats::default(),
            ended: None,
        }
    }

    /// Senders that are connected now.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.links.iter().filter(|l| l.is_open()).count()
    }

    /// What was done so far, for the senders that have gone as well.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        let Work { work_requests, credits_sent, buffers_posted } = self.links.work();
        // Messages were counted when they were taken.
        let messages = self.stats.messages - self.run.len() as u64;
        let bytes = self.stats.bytes - self.run.bytes();
        ReceiverStats { messages, bytes, work_requests, credits_sent, buffers_posted }
    }

    /// Bytes of receive buffers registered now for this receiver's own pools; a shared
    /// pool counts for itself.
    #[must_use]
    pub fn registered_bytes(&self) -> u64 {
        self.links.iter().map(Link::registered_bytes).sum()
    }
}

/// Receiving.
impl Receiver {
    /// The next message if there is one; never waits, and so never asks whether a
    /// silent peer is still there: the calls that wait do.
    ///
    /// # Errors
    /// [`RecvError::Empty`] when there is none now, [`RecvError::Closed`] when there
    /// never will be, [`RecvError::Peer`] once for each connection that failed.
    // Always: a message that is returned through memory is copied about (see below).
    #[inline(always)]
    pub fn try_recv(&mut self) -> Result<Message, RecvError> {
        // A message comes out of this loop in registers: nothing that is called here
        // writes to where the result lies, or each message would be copied about.
        // What the slow ways find waits in `found` and `trouble`.
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

    /// Receives the messages that are there, up to
    /// [`poll_batch`](super::Config::poll_batch) of them, and returns how many: `each` is
    /// shown who has sent a message, and its bytes, and the message is free when `each`
    /// returns. It costs less than [`try_recv`](Receiver::try_recv) and
    /// [`free`](Receiver::free) for each of them. If `each` panics, the messages after that
    /// one are still to be received.
    ///
    /// ```
    /// use rdma_conn::send_recv::{Config, RecvError, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut a, mut b) = pair(&device, &device, &Config::default())?;
    /// for number in 0..100_u8 {
    ///     a.sender.send_async(&[number])?;
    /// }
    /// a.sender.flush()?;
    /// let mut sum = 0;
    /// while let Ok(count) = b.receiver.try_recv_each(|_, message| sum += u32::from(message[0])) {
    ///     assert!(count > 0);
    /// }
    /// assert_eq!(sum, 99 * 100 / 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`try_recv`](Receiver::try_recv).
    #[inline]
    pub fn try_recv_each(&mut self, mut each: impl FnMut(Peer, &[u8])) -> Result<usize, RecvError> {
        loop {
            let (count, (peer, place)) = (self.run.len(), self.run_of);
            if count > 0 {
                if let Some(link) = self.links.get_mut(place) {
                    // First, so that what was freed is looked after if `each` panics.
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

    /// Goes on when the messages that were taken are handed out: there may be a packed
    /// one to finish, completions that were polled, or new ones.
    #[inline(never)]
    fn go_on(&mut self) {
        if self.open_pack.is_some() {
            self.found = self.next_packed();
        } else if let Some(qp_num) = self.batch.next_qp_num() {
            self.advance(qp_num);
        } else {
            self.trouble = self.refill().err();
        }
    }

    /// Takes what is next in the batch, which is of that queue pair: as many messages as
    /// there are, or one completion of another kind.
    #[inline]
    fn advance(&mut self, qp_num: u32) {
        let place = self.links.find(qp_num);
        let Some((place, link)) = place.and_then(|p| Some((p, self.links.get_mut(p)?))) else {
            return self.batch.pop().into_iter().for_each(|c| self.links.absorb_stray(c));
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

    /// Takes the next completion, which is of that place.
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
                if link.arrive(other) == Arrival::Failed {
                    self.trouble = report(link);
                }
            }
        }
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// As [`try_recv`](Receiver::try_recv), without `Empty`; [`RecvError::Closed`] also
    /// when no sender has joined yet.
    #[inline]
    pub fn recv(&mut self) -> Result<Message, RecvError> {
        match self.try_recv() {
            Err(RecvError::Empty) => self.recv_until(Deadline::NEVER),
            done => done,
        }
    }

    /// Waits for the next message, for at most `timeout`.
    ///
    /// # Errors
    /// Also [`RecvError::TimedOut`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Message, RecvError> {
        match self.try_recv() {
            Err(RecvError::Empty) => self.recv_until(Deadline::after(timeout)),
            done => done,
        }
    }

    /// Frees a message on the receiver's own thread: what dropping it does, without
    /// atomic operations. A message of another receiver is dropped.
    // Always: as `try_recv`.
    #[inline(always)]
    pub fn free(&mut self, message: Message) {
        let Message { buffer, place, .. } = message;
        // Of another link than the one that is there now, it is dropped.
        let Some(link) = self.links.get_mut(place) else { return };
        link.reclaim(buffer);
        mark(&mut self.dirty, link, place);
    }

    /// Tells every sender that this end stops receiving, and ends. Messages that
    /// were not received are lost: receive until [`RecvError::Closed`] first.
    pub fn close(mut self) {
        self.stop();
    }

    #[cold]
    fn recv_until(&mut self, deadline: Deadline) -> Result<Message, RecvError> {
        if !self.links.has_had_any() {
            // Nobody can join while we wait: a wait would never end.
            return Err(RecvError::Closed);
        }
        let idle = Idle::new(self.policy.wait, deadline, self.policy.keepalive);
        let mut idle = idle.resume(&mut self.silence);
        loop {
            match self.try_recv() {
                Err(RecvError::Empty) => {}
                done => return done,
            }
            match idle.step() {
                Step::Again => {}
                Step::Sleep(time) => {
                    self.ask_the_silent();
                    if let Some(message) = self.sleep(time)? {
                        return Ok(message);
                    }
                }
                Step::Probe => {
                    tracing::debug!("{SILENT}");
                    self.links.iter_mut().for_each(Link::probe);
                }
                Step::TimedOut => {
                    self.silence = idle.silence();
                    return Err(RecvError::TimedOut);
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
                link.fail(Ended::Protocol(Violation::Pack(e)));
                self.trouble = report(link);
                None
            }
        }
    }

    /// Polls for more, after doing what is owed: each poll batch pays for the one
    /// before it.
    fn refill(&mut self) -> Result<(), RecvError> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(Self::POLLS_PER_LOOK) {
            self.ask_the_silent();
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

    /// Polls between two looks at the clock: so many that looking costs nothing.
    const POLLS_PER_LOOK: u32 = 64;

    /// Asks after those who have sent nothing for a keepalive interval: while others
    /// send, or for whoever only polls, there is no wait that would do it.
    #[cold]
    fn ask_the_silent(&mut self) {
        let now = Instant::now();
        let asked = *self.asked.get_or_insert(now);
        if now.duration_since(asked) < self.policy.keepalive {
            return;
        }
        self.asked = Some(now);
        for link in self.links.iter_mut() {
            link.probe_if_silent();
            // It may have failed at that.
            let place = link.place();
            mark(&mut self.dirty, link, place);
        }
    }

    fn poll(&mut self) -> Result<usize, RecvError> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone().into());
        }
        self.cq
            .poll(&mut self.batch)
            .map_err(|e| self.ended.get_or_insert(Ended::Device(e.to_string())).clone().into())
    }

    /// Lets those go that never got ready, as far as nothing that has come for others is in
    /// the way: who joins next may need their share of a pool, and nobody might receive
    /// meanwhile. (They are silent: what there is of theirs comes to an end.)
    pub(super) fn sweep(&mut self) {
        while self.links.has_strays() && self.run.is_empty() {
            while let Some(qp_num) = self.batch.next_qp_num()
                && self.links.find(qp_num).is_none()
                && let Some(completion) = self.batch.pop()
            {
                self.links.absorb_stray(completion);
            }
            if !self.batch.is_empty() {
                return;
            }
            match self.poll() {
                Ok(0) => self.links.let_strays_go(),
                Ok(_) => {}
                // It is told to whoever receives.
                Err(_) => return,
            }
        }
    }

    /// Why there is nothing: not yet, or never.
    fn nothing(&mut self) -> RecvError {
        // A failure that no completion reported (a post that was refused).
        if let Some(failed) = self.links.iter_mut().find_map(report) {
            return failed;
        }
        let open = !self.links.has_had_any() || self.links.iter().any(Link::is_open);
        if open { RecvError::Empty } else { RecvError::Closed }
    }
}

/// What is owed to the senders.
impl Receiver {
    /// Books the buffers that other threads have freed.
    fn collect_freed(&mut self) {
        loop {
            let count = self.returns.drain(&mut self.freed);
            for &id in &self.freed[..count] {
                let (place, slot) = self.returns.split(id);
                if let Some(link) = self.links.get_mut(place) {
                    link.free(slot);
                    mark(&mut self.dirty, link, place);
                }
            }
            if count < self.freed.len() {
                return;
            }
        }
    }

    /// Reposts and grants for the links that something has happened to. An idle
    /// receiver reposts all it has, a busy one in batches. A link that has failed at it
    /// is reported when all that may have come before was polled, busy or not.
    #[inline]
    fn settle(&mut self, idle: bool) -> Result<(), RecvError> {
        // The place of a link that has gone may be there once more.
        if idle || self.resting.len() > 2 * self.policy.max_peers as usize {
            self.wake_resting();
        }
        let all = |polls| polls > self.cq.capacity() / self.policy.poll_batch + 1;
        let (links, resting, mut trouble) = (&mut self.links, &mut self.resting, None);
        self.dirty.retain(|&place| {
            let Some(link) = links.get_mut(place) else { return false };
            let owed = link.settle(idle);
            if owed == Owed::Rest && !std::mem::replace(&mut link.rests, true) {
                resting.push(place);
            }
            if owed == Owed::More && trouble.is_none() && link.untold().is_some_and(all) {
                trouble = report(link);
            }
            owed == Owed::More
        });
        trouble.map_or(Ok(()), Err)
    }

    fn wake_resting(&mut self) {
        for place in self.resting.drain(..) {
            if let Some(link) = self.links.get_mut(place) {
                link.rests = false;
                mark(&mut self.dirty, link, place);
            }
        }
    }

    /// Sleeps until something happens: a completion, or a buffer freed elsewhere.
    fn sleep(&mut self, time: Duration) -> Result<Option<Message>, RecvError> {
        let Some(channel) = self.channel.clone() else { return Ok(None) };
        self.returns.bell().announce();
        self.links.iter_mut().for_each(Link::announce_sleep);
        let found = self.arm_and_sleep(&channel, time);
        self.links.iter_mut().for_each(Link::retract_sleep);
        self.returns.bell().retract();
        found
    }

    /// Arms the queue, looks once more at everything that would wake us, and sleeps:
    /// what comes after the look does wake us.
    fn arm_and_sleep(
        &mut self,
        channel: &CompletionChannel,
        time: Duration,
    ) -> Result<Option<Message>, RecvError> {
        let device = |e: &dyn std::fmt::Display| RecvError::Ended(Ended::Device(e.to_string()));
        self.cq.arm(false).map_err(|e| device(&e))?;
        match self.try_recv() {
            Err(RecvError::Empty) => {}
            done => return done.map(Some),
        }
        let bell = self.returns.bell().as_fd();
        channel.wait_with(&[bell], Some(time)).map_err(|e| device(&e))?;
        Ok(None)
    }

    fn stop(&mut self) {
        self.open_pack = None;
        self.run.clear();
        // A sender that has said goodbye needs none from us. What the queue holds is
        // looked at and no more: without credits a sender may go on for ever.
        let mut left = self.cq.capacity() as usize;
        while left > 0
            && let Some(polled @ 1..) = self.absorb()
        {
            left = left.saturating_sub(polled);
        }
        self.links.iter_mut().for_each(|link| link.stop(Control::Stop));
        // The goodbyes are on their way; their completions say when they are there.
        let deadline = Deadline::after(self.policy.linger);
        let mut idle = Idle::new(WaitStrategy::Spin, deadline, self.policy.linger);
        while self.links.iter().any(Link::is_saying_goodbye) {
            if self.absorb().is_none() || idle.step() == Step::TimedOut {
                break;
            }
            // There may be room now for a goodbye that found none.
            self.links.iter_mut().for_each(Link::say_goodbye);
        }
        // What arrives until the end may have a buffer of a shared pool.
        self.links.iter_mut().filter(|link| link.is_shared()).for_each(Link::silence);
        while self.absorb().is_some_and(|polled| polled > 0) {}
    }

    /// Books completions and drops their messages; returns how many there were,
    /// nothing when the queue is dead.
    fn absorb(&mut self) -> Option<usize> {
        if self.batch.is_empty() {
            self.cq.poll(&mut self.batch).ok()?;
        }
        let polled = self.batch.len();
        while let Some(completion) = self.batch.pop() {
            let place = self.links.find(completion.qp_num());
            match place.and_then(|place| self.links.get_mut(place)) {
                Some(link) => link.absorb(completion),
                None => self.links.absorb_stray(completion),
            }
        }
        Some(polled)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The error of a link that has failed, to be handed out once.
#[cold]
fn report(link: &mut Link) -> Option<RecvError> {
    Link::error_of(link).map(|(peer, ended)| RecvError::Peer { peer, ended })
}

/// Notes that a link has something to settle.
#[inline]
fn mark(dirty: &mut Vec<u32>, link: &mut Link, place: u32) {
    if !link.marked {
        link.marked = true;
        dirty.push(place);
    }
}
