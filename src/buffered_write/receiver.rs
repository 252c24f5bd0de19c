//! The receiving half: one thread, one completion queue, any number of peers.

mod look;
mod taking;
mod wait;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use conn_core::ring::{HEADER_BYTES, Span};
use verbs_safe::{CompletionBatch, CompletionChannel, CompletionQueue, SharedView};

use super::chunk::{Chunks, Message};
use super::link::Link;
use super::{ConnectError, Ended, Peer, RecvError};
use crate::send_recv::index::QpIndex;
use crate::wait::{Deadline, Silence, WaitStrategy};
use taking::{copy, take_from, take_in_place};

/// What a receiver has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Messages handed out.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Work requests executed on the send queues: heads, keepalives.
    pub work_requests: u64,
    /// Heads told.
    pub heads_told: u64,
}

/// The receiving half of one connection, or of many.
///
/// Of many peers, each that has something gets its turn: what of it is copied together is
/// handed out, and then it is the next one's turn. Those that are idle cost nothing where
/// tails are told by immediates; where they are written, a peer that was found silent for
/// long is looked at now and then.
///
/// Whatever the receiver owes its peers it does in the calls that receive.
#[derive(Debug)]
pub struct Receiver {
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    batch: CompletionBatch,
    links: Vec<Option<Link>>,
    /// From the numbers of queue pairs to places.
    index: QpIndex,
    joined: u32,
    open_links: u32,
    chunks: Chunks,
    open: Option<Open>,
    /// Places of links that have something to hand out or to report, each once.
    ready: VecDeque<u32>,
    /// Places of links whose tails are polled: those that were not silent for long, and all.
    hot: Vec<u32>,
    polled: Vec<u32>,
    /// Which of the polled ones is looked at next though it is not hot.
    cold: usize,
    polls: u32,
    /// Turns that links had.
    served: u32,
    asked: Option<Instant>,
    silence: Silence,
    policy: Policy,
    stats: ReceiverStats,
    ended: Option<Ended>,
}

/// What was copied of one link, and is being handed out.
#[derive(Debug, Clone, Copy)]
struct Open {
    place: u32,
    /// The positions that the copy begins at and ends at.
    from: u64,
    until: u64,
}

/// A message that was taken where it lies in the ring.
#[derive(Debug, Clone, Copy)]
struct InPlace {
    open: Open,
    payload: Span,
}

/// What of the configuration a receiver needs after it was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    pub(super) wait: WaitStrategy,
    pub(super) keepalive: Duration,
    pub(super) linger: Duration,
    pub(super) poll_batch: u32,
    pub(super) max_peers: u32,
    pub(super) window: u32,
}

/// Making, inspecting.
impl Receiver {
    pub(super) fn new(
        cq: CompletionQueue,
        channel: Option<CompletionChannel>,
        policy: Policy,
    ) -> Receiver {
        Receiver {
            cq,
            channel,
            batch: CompletionBatch::new(policy.poll_batch as usize),
            links: Vec::new(),
            index: QpIndex::default(),
            joined: 0,
            open_links: 0,
            chunks: Chunks::new(),
            open: None,
            ready: VecDeque::new(),
            hot: Vec::new(),
            polled: Vec::new(),
            cold: 0,
            polls: 0,
            served: 0,
            asked: None,
            silence: Silence::default(),
            policy,
            stats: ReceiverStats::default(),
            ended: None,
        }
    }

    /// Senders that are connected now.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.open_links as usize
    }

    /// What was done so far, for the senders that are connected or were last.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        let mut stats = self.stats;
        for link in self.links.iter().flatten() {
            stats.work_requests += link.work_requests();
            stats.heads_told += link.updates;
        }
        stats
    }

    /// Bytes of rings registered now; both copies of mirrored ones.
    #[must_use]
    pub fn registered_bytes(&self) -> u64 {
        self.links.iter().flatten().map(Link::registered_bytes).sum()
    }

    pub(super) fn cq(&self) -> &CompletionQueue {
        &self.cq
    }

    pub(super) fn window(&self) -> u32 {
        self.policy.window
    }
}

/// Coming and going.
impl Receiver {
    /// Makes sure that there is a place for one more: where all are taken, that of a link
    /// which has ended.
    pub(super) fn make_place(&mut self) -> Result<(), ConnectError> {
        let is_vacant = |link: &Option<Link>| link.is_none();
        if self.links.len() < self.policy.max_peers as usize || self.links.iter().any(is_vacant) {
            return Ok(());
        }
        let has_gone = |link: &Option<Link>| {
            link.as_ref().is_some_and(|link| !link.is_open() && !link.has_more() && link.is_told)
        };
        let place = self.links.iter().position(has_gone);
        let place = place.ok_or(ConnectError::TooManyPeers(self.policy.max_peers))?;
        self.bury(place as u32);
        Ok(())
    }

    fn bury(&mut self, place: u32) {
        if self.open.is_some_and(|open| open.place == place) {
            self.open = None;
        }
        // Room in the completion queue is given again: what is in it goes first.
        while let Ok(1..) = self.poll_completions() {}
        let Some(link) = self.links[place as usize].take() else { return };
        self.stats.work_requests += link.work_requests();
        self.stats.heads_told += link.updates;
        self.index.remove(link.qp_num());
        for list in [&mut self.hot, &mut self.polled] {
            list.retain(|other| *other != place);
        }
        self.ready.retain(|other| *other != place);
    }

    /// Gives a link a place, and its peer a number.
    pub(super) fn add(&mut self, mut link: Link) -> Peer {
        let peer = Peer(self.joined);
        self.joined += 1;
        self.open_links += 1;
        let vacant = self.links.iter().position(Option::is_none);
        let place = vacant.unwrap_or(self.links.len()) as u32;
        link.peer = peer;
        self.chunks_hold(&link);
        self.index.insert(link.qp_num(), place);
        if link.is_polled() {
            self.polled.push(place);
            self.hot.push(place);
        }
        match vacant {
            Some(at) => self.links[at] = Some(link),
            None => self.links.push(Some(link)),
        }
        peer
    }

    /// What is open stays so: messages are only taken out of copies that were filled.
    fn chunks_hold(&mut self, link: &Link) {
        if let Some(open) = self.open.take() {
            // It is copied again when it is its turn.
            self.make_ready(open.place);
        }
        self.chunks.hold(link.core.geometry().max_payload());
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
    #[inline]
    pub fn try_recv(&mut self) -> Result<Message, RecvError> {
        if let Some(message) = self.take_beside() {
            return Ok(message);
        }
        loop {
            if let Some((start, len, peer)) = self.next_record()
                && let Some(message) = self.chunks.message(start, len, peer)
            {
                return Ok(message);
            }
            if self.open.is_none() {
                self.go_on(copy)?;
            }
        }
    }

    /// Receives the messages that are there and were copied together, and returns how many:
    /// `each` is shown who has sent a message, and its bytes. It costs less than
    /// [`try_recv`](Receiver::try_recv) for each of them. If `each` panics, the messages after
    /// that one are still to be received.
    ///
    /// ```
    /// use rdma_conn::buffered_write::{Config, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut a, mut b) = pair(&device, &device, &Config::default())?;
    /// for number in 0..100_u8 {
    ///     a.sender.send_async(&[number])?;
    /// }
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
        let mut count = 0;
        loop {
            while let Some((start, len, peer)) = self.next_record() {
                count += 1;
                each(peer, &self.chunks.bytes_of_open()[start as usize..][..len as usize]);
            }
            if count > 0 {
                return Ok(count);
            }
            if self.open.is_none() {
                self.go_on(copy)?;
            }
        }
    }

    /// Receives the next message where it lies in the ring, if there is one now: `read` is
    /// shown who has sent it, and its bytes; when it returns, their place is the sender's
    /// again. That spares the copy, and goes through messages one by one: worth it for large
    /// ones of which little is read, or whose sender is trusted.
    ///
    /// The sender can write to its place at any time, if it breaks the protocol: so the
    /// bytes are seen by atomic loads. Whoever trusts the sender has them as a slice, by an
    /// `unsafe` method of the [view](SharedView).
    ///
    /// ```
    /// use rdma_conn::buffered_write::{Config, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut a, mut b) = pair(&device, &device, &Config::default())?;
    /// a.sender.send(&[1; 1000])?;
    /// let sum = b.receiver.try_recv_in_place(|_, message| {
    ///     message.words().map(u64::from_le_bytes).fold(0, u64::wrapping_add)
    /// })?;
    /// assert_eq!(sum, 125 * 0x0101_0101_0101_0101);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`try_recv`](Receiver::try_recv).
    pub fn try_recv_in_place<R>(
        &mut self,
        read: impl FnOnce(Peer, SharedView<'_>) -> R,
    ) -> Result<R, RecvError> {
        let InPlace { open, payload } = self.next_in_place()?;
        // Should `read` panic: what is open is freed by who receives next.
        let link = self.links.get(open.place as usize).and_then(Option::as_ref);
        let view = link
            .map(|link| (link.peer, link.ring.view(payload.offset as usize, payload.len as usize)));
        let Some((peer, Ok(view))) = view else { return Err(RecvError::Empty) };
        self.stats.messages += 1;
        self.stats.bytes += u64::from(payload.len);
        let done = read(peer, view);
        self.close_copy(open.place);
        Ok(done)
    }

    /// Waits for the next message, and receives it as
    /// [`try_recv_in_place`](Receiver::try_recv_in_place) does.
    ///
    /// # Errors
    /// As [`recv`](Receiver::recv).
    pub fn recv_in_place<R>(
        &mut self,
        read: impl FnOnce(Peer, SharedView<'_>) -> R,
    ) -> Result<R, RecvError> {
        let mut read = Some(read);
        self.recv_with(Deadline::NEVER, |receiver| {
            receiver.try_recv_in_place(|peer, view| read.take().map(|read| read(peer, view)))
        })
        // It is called once, by the one that has succeeded.
        .and_then(|done| done.ok_or(RecvError::Empty))
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// As [`try_recv`](Receiver::try_recv), without `Empty`; [`RecvError::Closed`] also
    /// when no sender has joined yet.
    #[inline]
    pub fn recv(&mut self) -> Result<Message, RecvError> {
        match self.try_recv() {
            Err(RecvError::Empty) => self.recv_with(Deadline::NEVER, Receiver::try_recv),
            done => done,
        }
    }

    /// Waits for the next message, for at most `timeout`.
    ///
    /// # Errors
    /// Also [`RecvError::TimedOut`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Message, RecvError> {
        match self.try_recv() {
            Err(RecvError::Empty) => self.recv_with(Deadline::after(timeout), Receiver::try_recv),
            done => done,
        }
    }

    /// Tells every sender that this end stops receiving, and ends. Messages that
    /// were not received are lost: receive until [`RecvError::Closed`] first.
    pub fn close(mut self) {
        self.stop();
    }
}

/// Handing out.
impl Receiver {
    /// Where the only link is, if it has a tail to look at and nothing else is to be done: it
    /// waits for its turn only when there are several.
    #[inline]
    fn alone(&self) -> Option<u32> {
        match self.polled[..] {
            [place] if self.open_links == 1 && self.open.is_none() && self.ready.is_empty() => {
                Some(place)
            }
            _ => None,
        }
    }

    /// The message beside the tail of the only link, if it is all that there is: the way of a
    /// message for which somebody waits.
    #[inline]
    fn take_beside(&mut self) -> Option<Message> {
        let place = self.alone()?;
        let link = self.links.get_mut(place as usize)?.as_mut()?;
        let (record, len) = link.take_beside()?;
        let message = Message::short(&record, len, link.peer);
        self.stats.messages += 1;
        self.stats.bytes += u64::from(len);
        self.close_copy(place);
        Some(message)
    }

    /// Looks at the tail of the only link for a while, until it is another one.
    #[inline]
    fn await_tail(&self) {
        const LOOKS: u32 = 64;
        let link = self.alone().and_then(|place| self.links.get(place as usize)?.as_ref());
        if let Some(link) = link {
            let _ = (0..LOOKS).any(|_| link.is_news());
        }
    }

    /// The next message of the open copy: where it lies there, and whose it is. The copy is
    /// closed behind its last one.
    #[inline]
    fn next_record(&mut self) -> Option<(u32, u32, Peer)> {
        let open = self.open?;
        let link = self.links.get_mut(open.place as usize)?.as_mut()?;
        let (position, peer) = (link.core.read_pointer(), link.peer);
        let Some(record) = take_from(link, self.chunks.bytes_of_open(), open) else {
            self.close_copy(open.place);
            return None;
        };
        let (at, len) = ((position - open.from) as u32 + HEADER_BYTES, record.payload.len);
        self.stats.messages += 1;
        self.stats.bytes += u64::from(len);
        if record.end == open.until {
            self.close_copy(open.place);
        }
        Some((at, len, peer))
    }

    /// Takes the next message without a copy: of what is open, what is left of it, else of
    /// the next link.
    fn next_in_place(&mut self) -> Result<InPlace, RecvError> {
        if let Some(Open { place, from, until }) = self.open {
            let link = self.links.get_mut(place as usize).and_then(Option::as_mut);
            // The rest of a copy lies in the ring, too; it is copied again if need be.
            let rest = link.filter(|link| (from..until).contains(&link.core.read_pointer()));
            if let Some(taken) = rest.and_then(|link| take_in_place(link, place)) {
                return Ok(taken);
            }
            self.close_copy(place);
        }
        let mut taken = None;
        self.go_on(|link, _, place| {
            taken = take_in_place(link, place);
            taken.map(|taken| taken.open)
        })?;
        taken.ok_or(RecvError::Empty)
    }

    /// All of the copy was handed out: its place in the ring is the sender's again, and the
    /// next link has its turn.
    #[inline]
    fn close_copy(&mut self, place: u32) {
        self.open = None;
        let Some(link) = self.links.get_mut(place as usize).and_then(Option::as_mut) else {
            return;
        };
        link.core.on_freed(link.core.read_pointer());
        link.see_end();
        let (is_settled, has_more) = (link.settle(), link.has_more() || !link.is_open());
        if has_more {
            self.make_ready(place);
        }
        if !is_settled {
            self.settle_late(place);
        }
    }

    /// The send queue was full: completions make room. If there are none yet, it is still
    /// due, and tried again by the calls that receive.
    #[cold]
    fn settle_late(&mut self, place: u32) {
        // A dead queue is told of by whoever polls next.
        let _ = self.poll_completions();
        if let Some(link) = self.links.get_mut(place as usize).and_then(Option::as_mut) {
            link.settle();
        }
        self.polls |= Self::LOOK_NOW;
    }

    /// Turns of those that have something until the others are looked at, too: who holds a
    /// backlog keeps nobody waiting.
    const SERVES_PER_POLL: u32 = 64;

    /// Opens what the next link has, or says why there is none.
    #[inline(never)]
    fn go_on(
        &mut self,
        mut open: impl FnMut(&mut Link, &mut Chunks, u32) -> Option<Open>,
    ) -> Result<(), RecvError> {
        loop {
            while let Some(place) = self.ready.pop_front() {
                self.served = self.served.wrapping_add(1);
                if self.served.is_multiple_of(Self::SERVES_PER_POLL) {
                    // A dead queue is told of when nothing is left.
                    let _ = self.poll();
                }
                if self.serve(place, &mut open)? {
                    return Ok(());
                }
            }
            if let Some(ended) = &self.ended {
                return Err(ended.clone().into());
            }
            self.poll()?;
            if self.ready.is_empty() {
                return Err(self.nothing());
            }
        }
    }

    /// A link's turn: opens what it has, or reports its end; whether something is open.
    fn serve(
        &mut self,
        place: u32,
        open: impl FnOnce(&mut Link, &mut Chunks, u32) -> Option<Open>,
    ) -> Result<bool, RecvError> {
        let Some(link) = self.links.get_mut(place as usize).and_then(Option::as_mut) else {
            return Ok(false);
        };
        link.is_ready = false;
        self.open = open(link, &mut self.chunks, place);
        link.see_end();
        if self.open.is_some() {
            return Ok(true);
        }
        let Some(ended) = link.untold_end().cloned() else { return Ok(false) };
        link.is_told = true;
        self.open_links -= 1;
        self.hot.retain(|other| *other != place);
        self.polled.retain(|other| *other != place);
        match ended {
            Ended::Closed => Ok(false),
            ended => Err(RecvError::Peer { peer: link.peer, ended }),
        }
    }

    #[inline]
    fn make_ready(&mut self, place: u32) {
        if let Some(link) = self.links.get_mut(place as usize).and_then(Option::as_mut)
            && !link.is_ready
        {
            link.is_ready = true;
            self.ready.push_back(place);
        }
    }

    /// Why there is nothing: not yet, or never.
    fn nothing(&self) -> RecvError {
        if self.open_links > 0 || self.joined == 0 { RecvError::Empty } else { RecvError::Closed }
    }
}
