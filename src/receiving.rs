//! A receiving half of messages that are copied out: one completion queue, links to any number of
//! peers, waits. A protocol adds the detection of messages ([`ReceiverLink`]).

mod receives;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

use verbs_safe::{Completion, CompletionBatch, CompletionQueue};

use crate::arm::Arm;
use crate::copies::{BULK, CopyPool, IntoMessage};
use crate::error::{CloseReason, ConnectError, RecvError};
use crate::keepalive::{KeepaliveDue, SILENT};
use crate::peer::Peer;
use crate::places::{LinkPlaces, Peered};
use crate::taking::{Takes, waits_for_messages};
use crate::wait::{Deadline, POLL_SLEEP};
use crate::waiting::{CqWaiting, Waits};
use crate::wire::ConnectedQp;

pub(crate) use receives::receives_copies;

/// A receiver's side of one queue pair.
pub(crate) trait ReceiverLink: Peered + Debug {
    /// State that all links of a receiver have in common.
    type Shared: Debug;
    /// Type of message that it hands out.
    type Taken: IntoMessage;

    /// Reports whether its messages are found by looking for them, and not by completions.
    fn is_polled(&self) -> bool;

    /// Takes a completion of its receive queue, if it is one.
    fn on_receive(&mut self, completion: Completion<'_>);

    /// Looks for messages, and copies some of them out, or lends them: each goes to the back of
    /// `out`. Nothing more comes from a link that has ended.
    fn take(
        &mut self,
        shared: &mut Self::Shared,
        peer: Peer,
        copies: &mut CopyPool,
        out: &mut VecDeque<Self::Taken>,
    );

    /// Reports freed room to the peer, if a report is due; returns true if none is due any more. If
    /// the send queue is full, it stays due.
    fn settle(&mut self, shared: &mut Self::Shared) -> bool;

    /// Sends STOP to a peer that has not said goodbye; `taken` messages were copied out.
    fn stop(&mut self, taken: u64);

    /// Reports whether the peer has said goodbye.
    fn has_heard_goodbye(&self, shared: &Self::Shared) -> bool;

    /// Reports whether the peer has said goodbye, as far as memory shows now. The peer has gone: no
    /// later look would show more.
    fn looks_for_goodbye(&mut self, shared: &mut Self::Shared) -> bool;

    /// True while buffers are lent: their return raises no completion, so the receiver polls for
    /// it.
    fn lends(&self) -> bool {
        false
    }

    /// Gives back its part of the shared memory. The link has ended, and nothing more is taken.
    fn leave(&mut self, shared: &mut Self::Shared) {
        let _ = shared;
    }

    /// Bytes of memory of its own that are registered to receive into.
    fn registered_bytes(&self) -> u64 {
        0
    }

    /// Bytes of the shared memory that are.
    fn shared_bytes(shared: &Self::Shared) -> u64 {
        let _ = shared;
        0
    }
}

/// The part of a receiver that every protocol of copied messages has.
#[derive(Debug)]
pub(crate) struct CopyReceiving<L: ReceiverLink> {
    pub(crate) shared: L::Shared,
    waiting: CqWaiting,
    batch: CompletionBatch,
    places: LinkPlaces<L>,
    /// Places of open links that are polled.
    polled: Vec<u32>,
    next_polled: usize,
    /// Places of links that lend, each once.
    lenders: Vec<u32>,
    copies: CopyPool,
    /// Messages that were taken and not handed out.
    out: VecDeque<L::Taken>,
    polls: u32,
    /// Turns that links had.
    served: u32,
    ended: Option<CloseReason>,
    messages: u64,
    bytes: u64,
}

impl<L: ReceiverLink> CopyReceiving<L> {
    const POLL_BATCH: usize = 32;
    /// Most polls between two checks of state that no message announces; a tick causes one, too.
    const POLLS_PER_LOOK: u32 = 64;

    pub(crate) fn new(shared: L::Shared, waiting: CqWaiting, max_peers: u32) -> CopyReceiving<L> {
        CopyReceiving {
            shared,
            waiting,
            batch: CompletionBatch::new(Self::POLL_BATCH),
            places: LinkPlaces::new(max_peers),
            polled: Vec::new(),
            next_polled: 0,
            lenders: Vec::new(),
            copies: CopyPool::new(),
            out: VecDeque::new(),
            polls: 0,
            served: 0,
            ended: None,
            messages: 0,
            bytes: 0,
        }
    }

    pub(crate) fn cq(&self) -> &CompletionQueue {
        &self.waiting.cq
    }

    pub(crate) fn peers(&self) -> usize {
        self.places.open() as usize
    }

    pub(crate) fn registered_bytes(&self) -> u64 {
        let own: u64 = self.places.iter().map(|place| place.link.registered_bytes()).sum();
        own + L::shared_bytes(&self.shared)
    }

    pub(crate) fn qp_of(&self, peer: Peer) -> Option<&ConnectedQp> {
        self.places.qp_of(peer)
    }

    /// Has [`stop`](Self::stop) wait for nothing.
    pub(crate) fn abandon(&mut self) {
        self.waiting.common.linger = Duration::ZERO;
    }

    /// Messages handed out, and their bytes.
    pub(crate) fn handed_out(&self) -> (u64, u64) {
        (self.messages, self.bytes)
    }

    /// The links that there are.
    pub(crate) fn links(&self) -> impl Iterator<Item = &L> {
        self.places.iter().map(|place| &place.link)
    }
}

/// Coming and going.
impl<L: ReceiverLink> CopyReceiving<L> {
    /// Makes sure that there is a place for one more link: where all are taken, releases one that
    /// has ended.
    pub(crate) fn make_place(&mut self) -> Result<(), ConnectError> {
        let Some(at) = self.places.to_release()? else { return Ok(()) };
        // The next link reuses the room in the completion queue: its completions are taken first.
        while let Ok(1..) = self.poll_completions() {}
        self.places.release(at);
        Ok(())
    }

    /// Gives a link a place, and its peer a number. Its messages have at most `max_message` bytes.
    pub(crate) fn add(&mut self, link: L, max_message: u32) -> Peer {
        self.copies.hold(BULK + u64::from(max_message).next_multiple_of(8));
        let is_polled = link.is_polled();
        let (at, peer) = self.places.add(link);
        if is_polled {
            self.polled.push(at);
        }
        // Messages may have arrived before it had a place.
        self.places.make_ready(at);
        peer
    }

    /// Tells the senders that this end stops, and waits until they know, for at most `linger`.
    pub(crate) fn stop(&mut self) {
        // A peer that has said goodbye needs no STOP from us.
        if self.drain_queue().is_err() {
            return;
        }
        let deadline = Deadline::after(self.waiting.common.linger);
        let mut unseen = VecDeque::new();
        for place in self.places.iter_mut().filter(|place| !place.is_told) {
            // A peer that has said goodbye gets no STOP. Taking messages may make room for more:
            // with a fast sender the deadline ends the loop.
            while {
                unseen.clear();
                place.link.take(&mut self.shared, place.peer, &mut self.copies, &mut unseen);
                !unseen.is_empty() && !deadline.has_passed(host::time::now())
            } {}
            let is_open = place.link.posting().ended().is_none();
            if is_open && !place.link.has_heard_goodbye(&self.shared) {
                place.link.stop(place.messages);
            }
        }
        // The STOPs are in flight; completions report their delivery.
        self.linger_until(deadline, |CopyReceiving { places, shared, .. }| {
            places.iter().all(|place| is_heard(&place.link, shared))
        });
    }
}

/// Receiving.
impl<L: ReceiverLink> CopyReceiving<L> {
    /// The next message.
    #[inline]
    pub(crate) fn try_recv(&mut self) -> Result<L::Taken, RecvError> {
        loop {
            if let Some(message) = self.out.pop_front() {
                self.messages += 1;
                self.bytes += message.bytes() as u64;
                return Ok(message);
            }
            self.go_on()?;
        }
    }

    /// Receives the messages that have arrived; returns their number.
    pub(crate) fn try_recv_each(
        &mut self,
        mut each: impl FnMut(Peer, &[u8]),
    ) -> Result<usize, RecvError> {
        if self.out.is_empty() {
            self.go_on()?;
        }
        let mut count = 0;
        // One by one: if `each` panics, the other messages stay receivable.
        while let Some(message) = self.out.pop_front() {
            let message = message.into_message();
            self.messages += 1;
            self.bytes += message.len() as u64;
            each(message.peer(), &message);
            count += 1;
        }
        Ok(count)
    }

    /// Turns of links with messages until the other links are looked at, too: a link with a
    /// backlog does not keep the others waiting.
    const SERVES_PER_POLL: u32 = 8;

    /// Takes messages of the next ready link, or returns the reason why there are none.
    fn go_on(&mut self) -> Result<(), RecvError> {
        let look = self.waiting.look();
        if look == KeepaliveDue::Round {
            self.places.ask_silent(&mut self.waiting.watch);
        }
        self.served = self.served.wrapping_add(1);
        if look != KeepaliveDue::No || self.served.is_multiple_of(Self::SERVES_PER_POLL) {
            // A dead queue is reported when no messages are left.
            let _ = self.poll_completions();
            self.settle_lenders();
            self.polled.iter().for_each(|at| self.places.make_ready(*at));
        }
        if self.serve_ready()? {
            return Ok(());
        }
        if let Some(ended) = &self.ended {
            return Err(ended.clone().into());
        }
        if self.poll()? || self.serve_ready()? {
            return Ok(());
        }
        Err(self.places.nothing())
    }

    // Always: the path of each message, which a call costs 2 % of.
    #[inline(always)]
    fn serve_ready(&mut self) -> Result<bool, RecvError> {
        while let Some(at) = self.places.next_ready() {
            if self.serve(at)? {
                // It may have more messages: it gets its next turn after the others.
                self.places.make_ready(at);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Serves a link: takes its messages, or reports its end; returns true if messages were taken.
    /// All taken before were handed out.
    #[inline]
    fn serve(&mut self, at: u32) -> Result<bool, RecvError> {
        let Some(place) = self.places.get_mut(at) else { return Ok(false) };
        if place.is_told {
            return Ok(false);
        }
        debug_assert!(self.out.is_empty(), "messages are counted when they are taken");
        place.link.take(&mut self.shared, place.peer, &mut self.copies, &mut self.out);
        if !self.out.is_empty() {
            place.messages += self.out.len() as u64;
            place.has_spoken = true;
            if place.link.lends() && !place.is_lender {
                place.is_lender = true;
                self.lenders.push(at);
            }
            if !place.link.settle(&mut self.shared) {
                self.settle_late(at);
            }
            return Ok(true);
        }
        let Some(ended) = place.link.posting().ended().cloned() else { return Ok(false) };
        place.link.leave(&mut self.shared);
        self.polled.retain(|other| *other != at);
        self.places.tell(at, ended).map(|()| false)
    }

    /// The send queue was full: completions make room. If there are none yet, the report stays
    /// due, and the calls that receive try it again.
    #[cold]
    fn settle_late(&mut self, at: u32) {
        // The next poll reports a dead queue.
        let _ = self.poll_completions();
        if let Some(place) = self.places.get_mut(at) {
            place.link.settle(&mut self.shared);
        }
    }

    /// Reports lent buffers that the program has freed.
    fn settle_lenders(&mut self) {
        let (places, shared) = (&mut self.places, &mut self.shared);
        self.lenders.retain(|at| {
            let Some(place) = places.get_mut(*at) else { return false };
            if !place.is_told {
                place.link.settle(shared);
            }
            place.is_lender = place.link.lends() && !place.is_told;
            place.is_lender
        });
    }

    /// Polls for news; returns true if messages were taken.
    fn poll(&mut self) -> Result<bool, RecvError> {
        self.polls = self.polls.wrapping_add(1);
        let looks = self.polls.is_multiple_of(Self::POLLS_PER_LOOK);
        if looks {
            self.look_after();
        }
        let lends = !self.lenders.is_empty();
        self.settle_lenders();
        if looks || lends || self.polled.len() < self.places.open() as usize {
            self.poll_completions()?;
        }
        // Each polled link once, beginning behind the last one with news.
        for _ in 0..self.polled.len() {
            let Some(at) = self.polled.get(self.next_polled).or(self.polled.first()).copied()
            else {
                break;
            };
            self.next_polled = (self.next_polled + 1) % self.polled.len();
            if self.serve(at)? {
                self.places.make_ready(at);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes completions; returns their number.
    fn poll_completions(&mut self) -> Result<usize, RecvError> {
        let polled = self.waiting.cq.poll(&mut self.batch).map_err(CloseReason::device);
        let polled = polled.map_err(|reason| self.fail(reason))?;
        while let Some(completion) = self.batch.pop() {
            let Some(at) = self.places.find(completion.qp_num()) else { continue };
            let Some(place) = self.places.get_mut(at) else { continue };
            place.has_spoken = true;
            if completion.queue_id() == place.link.posting().queue_id() {
                if let Err(reason) = place.link.posting_mut().retire(&completion)
                    && !place.link.looks_for_goodbye(&mut self.shared)
                {
                    place.link.posting_mut().fail(reason);
                }
            } else {
                place.link.on_receive(completion);
            }
            if !place.is_told {
                self.places.make_ready(at);
            }
        }
        Ok(polled)
    }

    /// Sends reports that found no room in a send queue, and in each round probes the peers that
    /// were silent since the last one.
    #[cold]
    fn look_after(&mut self) {
        for place in self.places.iter_mut().filter(|place| !place.is_told) {
            place.link.settle(&mut self.shared);
        }
        if self.waiting.begins_round() {
            self.places.ask_silent(&mut self.waiting.watch);
        }
    }

    /// Returns the event to wait for.
    pub(crate) fn arm(&mut self) -> Result<Arm<'_>, RecvError> {
        self.waiting.disarm().map_err(|reason| self.fail(reason))?;
        self.look_after();
        self.settle_lenders();
        if self.waiting.channel.is_none() || !self.all_news_has_events() {
            return Ok(if self.has_news() { Arm::Ready } else { self.waiting.no_event() });
        }
        self.waiting.arm_loop().map_err(|reason| self.fail(reason))?;
        if self.has_news() || self.poll_completions()? > 0 {
            return Ok(Arm::Ready);
        }
        let left = self.waiting.left();
        Ok(self.waiting.event(None, left)?)
    }

    /// True if every source of news raises an event: a trailer and a returned buffer raise none.
    fn all_news_has_events(&self) -> bool {
        self.polled.is_empty() && self.lenders.is_empty()
    }

    fn has_news(&self) -> bool {
        !self.out.is_empty() || self.places.has_ready()
    }

    /// Waits for a message.
    pub(crate) fn recv_until(&mut self, deadline: Deadline) -> Result<L::Taken, RecvError> {
        self.recv_with(deadline, Self::try_recv)
    }
}

/// Reports whether the peer has acknowledged all that was sent to it, or needs nothing more.
fn is_heard<L: ReceiverLink>(link: &L, shared: &L::Shared) -> bool {
    let posting = link.posting();
    let is_gone = posting.ended().is_some() || link.has_heard_goodbye(shared);
    is_gone || !posting.awaits_completion()
}

impl<L: ReceiverLink> Waits for CopyReceiving<L> {
    waits_for_messages!();

    fn ask(&mut self) -> Result<(), RecvError> {
        tracing::debug!("{SILENT}");
        self.places.ask(|_| true);
        Ok(())
    }

    fn before_sleep(&mut self, most: Duration) -> Result<Duration, RecvError> {
        self.look_after();
        self.settle_lenders();
        Ok(most.min(self.waiting.left()))
    }

    /// A trailer makes no event, nor does a buffer that is given back.
    fn sleep_time(&self, most: Duration) -> Option<Duration> {
        Some(if self.all_news_has_events() { most } else { most.min(POLL_SLEEP) })
    }

    fn woken(&mut self) -> Result<(), RecvError> {
        self.poll_completions().map(drop)
    }
}

impl<L: ReceiverLink> Takes for CopyReceiving<L> {
    fn joined(&self) -> u32 {
        self.places.joined()
    }

    fn take_completions(&mut self) -> Result<usize, RecvError> {
        self.poll_completions()
    }

    fn look_everywhere(&mut self) -> Result<(), RecvError> {
        self.poll_completions().map(drop)
    }
}
