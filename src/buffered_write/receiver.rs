//! The receiving half: one thread, one completion queue, any number of peers.

mod look;
mod taking;
mod wait;

use std::time::Duration;

use conn_core::ring::{HEADER_BYTES, record_bytes};
use verbs_safe::{CompletionBatch, CompletionQueue, SharedView};

use super::Config;
use super::link::BufferedWriteLink;
use crate::arm::Arm;
use crate::copies::{CopyPool, Message};
use crate::error::{CloseReason, ConnectError, RecvError};
use crate::half::RecvHalf;
use crate::new_pair::LinkHost;
use crate::peer::Peer;
use crate::places::{LinkPlace, LinkPlaces};
use crate::taking::Takes;
use crate::wait::Deadline;
use crate::waiting::{CqWaiting, Waits};
use taking::{InRing, Open, copy, take_from, take_in_place};

/// Counters of a receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Messages handed out.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Work requests executed on the send queues: heads, keepalives.
    pub work_requests: u64,
    /// Heads written to senders.
    pub heads_told: u64,
}

/// The receiving half of one connection, or of many.
///
/// Many peers are served in turn: the messages of one peer that were copied together are
/// handed out, then those of the next peer that has some. Idle peers cost nothing where
/// tails arrive as immediates; where tails are written, the receiver looks at a peer that was
/// silent for long only now and then.
///
/// The receiver updates and probes its peers in the calls that receive.
#[derive(Debug)]
pub struct Receiver {
    waiting: CqWaiting,
    batch: CompletionBatch,
    places: LinkPlaces<BufferedWriteLink>,
    /// Receives that a link has for immediates, at most.
    window: u32,
    chunks: CopyPool,
    open: Option<Open>,
    /// Places of links with polled tails: those active lately, and all of them.
    hot: Vec<u32>,
    polled: Vec<u32>,
    /// Index of the polled link that is looked at next though it is not hot.
    cold: usize,
    polls: u32,
    /// Turns that links had.
    served: u32,
    stats: ReceiverStats,
    ended: Option<CloseReason>,
}

/// Making, inspecting.
impl Receiver {
    pub(super) fn new(waiting: CqWaiting, config: &Config, max_peers: u32) -> Receiver {
        Receiver {
            waiting,
            batch: CompletionBatch::new(config.poll_batch as usize),
            places: LinkPlaces::new(max_peers),
            window: config.window(),
            chunks: CopyPool::new(),
            open: None,
            hot: Vec::new(),
            polled: Vec::new(),
            cold: 0,
            polls: 0,
            served: 0,
            stats: ReceiverStats::default(),
            ended: None,
        }
    }

    /// Returns the counters, for the senders that are connected or were last.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        self.places.iter().fold(self.stats, with_work_of)
    }

    pub(super) fn cq(&self) -> &CompletionQueue {
        &self.waiting.cq
    }

    pub(super) fn window(&self) -> u32 {
        self.window
    }
}

/// Coming and going.
impl Receiver {
    /// Makes sure that there is a place for one more link: where all are taken, releases a link
    /// that has ended.
    pub(super) fn make_place(&mut self) -> Result<(), ConnectError> {
        let Some(at) = self.places.to_release()? else { return Ok(()) };
        if self.open.is_some_and(|open| open.place == at) {
            self.open = None;
        }
        // The next link reuses the room in the completion queue: its completions are taken first.
        while let Ok(1..) = self.poll_completions() {}
        let place = self.places.release(at);
        self.stats = place.iter().fold(self.stats, with_work_of);
        Ok(())
    }

    /// Makes the copies long enough for the link's messages. An open copy is closed, and its
    /// link served again: the copies may be replaced, and messages are taken from filled ones.
    fn chunks_hold(&mut self, link: &BufferedWriteLink) {
        if let Some(open) = self.open.take() {
            // Its messages are copied again in the link's next turn.
            self.places.make_ready(open.place);
        }
        self.chunks.hold(record_bytes(link.core.geometry().max_payload()));
    }
}

impl LinkHost for Receiver {
    type Link = BufferedWriteLink;

    fn add(&mut self, link: BufferedWriteLink) -> Peer {
        self.chunks_hold(&link);
        let is_polled = link.is_polled();
        let (at, peer) = self.places.add(link);
        if is_polled {
            self.polled.push(at);
            self.hot.push(at);
        }
        peer
    }
}

impl RecvHalf for Receiver {
    type Message = Message;

    fn arm(&mut self) -> Result<Arm<'_>, RecvError> {
        self.waiting.disarm().map_err(|reason| self.fail(reason))?;
        self.look_after();
        self.polls |= Self::LOOK_NOW;
        // A tail that is written makes no event.
        if self.waiting.channel.is_none() || !self.polled.is_empty() {
            return Ok(self.waiting.no_event());
        }
        self.waiting.arm_loop().map_err(|reason| self.fail(reason))?;
        let has_more = self.places.has_ready() || self.open.is_some();
        if has_more || self.poll_completions()? > 0 {
            return Ok(Arm::Ready);
        }
        let left = self.waiting.left();
        Ok(self.waiting.event(None, left)?)
    }

    fn peers(&self) -> usize {
        self.places.open() as usize
    }

    fn registered_bytes(&self) -> u64 {
        self.places.iter().map(|place| place.link.registered_bytes()).sum()
    }

    #[inline]
    fn try_recv(&mut self) -> Result<Message, RecvError> {
        if let Some(message) = self.take_inline() {
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

    #[inline]
    fn try_recv_each(&mut self, mut each: impl FnMut(Peer, &[u8])) -> Result<usize, RecvError> {
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
}

/// Receiving.
impl Receiver {
    /// Receives the next message in the ring, if there is one: `read` gets the peer that sent it,
    /// and a view of its bytes. When `read` returns, their place is the sender's again. This saves
    /// the copy, but frees messages one by one: use it for large messages of which you read little,
    /// or if you trust the sender.
    ///
    /// The sender can write to its place at any time, if it breaks the protocol: so the
    /// bytes are read by atomic loads. A caller that trusts the sender gets them as a slice
    /// from an `unsafe` method of the [view](SharedView).
    ///
    /// ```
    /// use rdma_conn::buffered_write::Config;
    /// use rdma_conn::{BufferedWrite, RecvHalf, SendHalf, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut a, mut b) = pair::<BufferedWrite>(&device, &device, &Config::default())?;
    /// a.sender.send_acked(&[1; 1000])?;
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
        let InRing { open, payload } = self.next_in_place()?;
        // If `read` panics, the next call that receives frees the open message.
        let (at, len) = (payload.offset as usize, payload.len as usize);
        let place = self.places.get(open.place);
        let view = place.map(|place| (place.peer, place.link.ring.view(at, len)));
        let Some((peer, Ok(view))) = view else { return Err(RecvError::Empty) };
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
        self.recv_in_place_until(Deadline::NEVER, read)
    }

    /// As [`recv_in_place`](Receiver::recv_in_place), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`RecvError::TimedOut`].
    pub fn recv_in_place_timeout<R>(
        &mut self,
        timeout: Duration,
        read: impl FnOnce(Peer, SharedView<'_>) -> R,
    ) -> Result<R, RecvError> {
        self.recv_in_place_until(Deadline::after(timeout), read)
    }

    fn recv_in_place_until<R>(
        &mut self,
        deadline: Deadline,
        read: impl FnOnce(Peer, SharedView<'_>) -> R,
    ) -> Result<R, RecvError> {
        let mut read = Some(read);
        self.recv_with(deadline, |receiver| {
            receiver.try_recv_in_place(|peer, view| read.take().map(|read| read(peer, view)))
        })
        // `read` is called once, by the try that succeeds.
        .and_then(|done| done.ok_or(RecvError::Empty))
    }
}

/// Handing out.
impl Receiver {
    /// The place of the only link, if its tail is polled, no copy is open and no link is ready.
    #[inline]
    fn only_link(&self) -> Option<u32> {
        match self.polled[..] {
            [at] if self.places.open() == 1 && self.open.is_none() && !self.places.has_ready() => {
                Some(at)
            }
            _ => None,
        }
    }

    /// The inline record of the only link, if it is the only message: the fast path of a message
    /// for which the caller waits.
    #[inline]
    fn take_inline(&mut self) -> Option<Message> {
        let at = self.only_link()?;
        let place = self.places.get_mut(at)?;
        let (record, len) = place.link.take_inline()?;
        let message = Message::inline(&record, len, place.peer);
        place.messages += 1;
        place.has_spoken = true;
        self.stats.bytes += u64::from(len);
        self.close_copy(at);
        Some(message)
    }

    /// Looks at the tail of the only link for a while, until it is another one.
    #[inline]
    fn await_tail(&self) {
        const LOOKS: u32 = 64;
        if let Some(place) = self.only_link().and_then(|at| self.places.get(at)) {
            let _ = (0..LOOKS).any(|_| place.link.is_news());
        }
    }

    /// Takes the next message of the open copy: its offset, its length and its peer. The copy is
    /// closed behind its last message.
    #[inline]
    fn next_record(&mut self) -> Option<(u32, u32, Peer)> {
        let open = self.open?;
        let place = self.places.get_mut(open.place)?;
        let (position, peer) = (place.link.core.read_pointer(), place.peer);
        let Some(record) = take_from(&mut place.link, self.chunks.bytes_of_open(), open) else {
            self.close_copy(open.place);
            return None;
        };
        let (at, len) = ((position - open.from) as u32 + HEADER_BYTES, record.payload.len);
        place.messages += 1;
        self.stats.bytes += u64::from(len);
        if record.end == open.until {
            self.close_copy(open.place);
        }
        Some((at, len, peer))
    }

    /// Takes the next message without a copy: from the rest of the open copy, else from the
    /// next link.
    fn next_in_place(&mut self) -> Result<InRing, RecvError> {
        if let Some(Open { place: at, from, until }) = self.open {
            let place = self.places.get_mut(at);
            // The rest of the copy still lies in the ring, where it is taken in place.
            let rest =
                place.filter(|place| (from..until).contains(&place.link.core.read_pointer()));
            if let Some(taken) = rest.and_then(|place| take_in_place(place, at)) {
                return Ok(taken);
            }
            self.close_copy(at);
        }
        let mut taken = None;
        self.go_on(|place, _, at| {
            taken = take_in_place(place, at);
            taken.map(|taken| taken.open)
        })?;
        taken.ok_or(RecvError::Empty)
    }

    /// All of the copy was handed out: its place in the ring is the sender's again, and the
    /// next link has its turn.
    #[inline]
    fn close_copy(&mut self, at: u32) {
        self.open = None;
        let Some(LinkPlace { link, .. }) = self.places.get_mut(at) else { return };
        link.core.on_freed(link.core.read_pointer());
        link.see_end();
        let (is_settled, has_more) = (link.settle(), link.has_more() || !link.is_open());
        if has_more {
            self.places.make_ready(at);
        }
        if !is_settled {
            self.settle_late(at);
        }
    }

    /// The send queue was full: completions make room. If there are none yet, the update stays
    /// due, and the calls that receive try it again.
    #[cold]
    fn settle_late(&mut self, at: u32) {
        // The next poll reports a dead queue.
        let _ = self.poll_completions();
        if let Some(place) = self.places.get_mut(at) {
            place.link.settle();
        }
        self.polls |= Self::LOOK_NOW;
    }

    /// Turns of links with messages until the other links are looked at, too: a link with a
    /// backlog does not keep the others waiting.
    const SERVES_PER_POLL: u32 = 64;

    /// Opens messages of the next ready link, or returns the reason why there are none.
    #[inline(never)]
    fn go_on(
        &mut self,
        mut open: impl FnMut(&mut LinkPlace<BufferedWriteLink>, &mut CopyPool, u32) -> Option<Open>,
    ) -> Result<(), RecvError> {
        loop {
            while let Some(at) = self.places.next_ready() {
                self.served = self.served.wrapping_add(1);
                if self.served.is_multiple_of(Self::SERVES_PER_POLL) {
                    // A dead queue is reported when no messages are left.
                    let _ = self.poll();
                }
                if self.serve(at, &mut open)? {
                    return Ok(());
                }
            }
            if let Some(ended) = &self.ended {
                return Err(ended.clone().into());
            }
            self.poll()?;
            if !self.places.has_ready() {
                return Err(self.places.nothing());
            }
        }
    }

    /// Serves a link: opens its messages, or reports its end; returns true if messages are open.
    fn serve(
        &mut self,
        at: u32,
        open: impl FnOnce(&mut LinkPlace<BufferedWriteLink>, &mut CopyPool, u32) -> Option<Open>,
    ) -> Result<bool, RecvError> {
        let Some(place) = self.places.get_mut(at) else { return Ok(false) };
        self.open = open(place, &mut self.chunks, at);
        place.link.see_end();
        if self.open.is_some() {
            return Ok(true);
        }
        let ended = place.link.end().filter(|_| !place.is_told).cloned();
        let Some(ended) = ended else { return Ok(false) };
        self.hot.retain(|other| *other != at);
        self.polled.retain(|other| *other != at);
        self.places.tell(at, ended).map(|()| false)
    }
}

/// Counts the work of a link, too.
fn with_work_of(stats: ReceiverStats, place: &LinkPlace<BufferedWriteLink>) -> ReceiverStats {
    ReceiverStats {
        messages: stats.messages + place.messages,
        work_requests: stats.work_requests + place.link.work_requests(),
        heads_told: stats.heads_told + place.link.updates,
        ..stats
    }
}
