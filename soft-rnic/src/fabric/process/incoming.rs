//! Progress on what other processes have sent: a thread that looks executes the requests and takes
//! the replies.
//!
//! One thread at a time does that, for all processes; another one that finds it at work
//! goes on with its own. Requests are executed as if they came from a queue pair of this
//! process: their data are where the sender has put them, or in its regions.

mod execution;
mod multicast;
mod pages;
pub(super) mod parts;
pub(super) mod progress;
mod rx_fast_path;

use core::sync::atomic::{Ordering, fence};
use std::sync::Arc;

use crate::engine::responder::ResponderSession;
use crate::limits::LONG;
use crate::objects::cq::CqWriter;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Device, PeerProcesses, ProgressEngine, Qp};
use crate::queues::outcome::PeerReply;
use crate::queues::qp_state::QueuePairState;

use crate::peers::process::barrier::{heavy, light};
use crate::peers::process::directory::slot_of;
use crate::peers::process::pair::ProcessPair;
use crate::peers::process::ring::{
    Broken, EntryOp, REPLIES, REQUESTS, Replies, ReplyEntry, RingRequest, WANTS_REPLY, is_reply_at,
    is_request_at, read_request, reply_at,
};
use crate::peers::process::serving::Serving;
use crate::peers::process::side::{FetchState, MessageScratch, ReadSide, carries_data};

use rx_fast_path::is_short;

/// Requests of a process that are executed before others have their turn.
const AT_ONCE: u32 = 256;
/// Rounds that take all of rings that are full, of which each takes [`AT_ONCE`] of the requests
/// or of the replies, or all.
const LEFT: u32 = REQUESTS.div_ceil(AT_ONCE) + REPLIES.div_ceil(AT_ONCE) + 1;
/// Requests after which their sender learns that there is room again.
const READ_STEP: u32 = 64;
/// Replies that there has to be room for: one that is held, and an entry's.
const ROOM: u32 = 3;
/// Polls in a row that find nothing, of which the last makes way: some microseconds of them.
pub(super) const MAKES_WAY: u32 = 64;
/// Queue pairs that are kept at hand.
const KEPT: usize = 2_048;

impl core::fmt::Debug for ProgressEngine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ProgressEngine").field("sides", &self.sides.len()).finish_non_exhaustive()
    }
}

/// The point up to which a thread takes what a process has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeUntil {
    /// Until there is nothing more, or others have their turn.
    Empty,
    /// Up to the first long message, so that the program can handle one, and post its receive
    /// request again, while the sender prepares the next. Receivers that copy all that is there
    /// first leave their senders waiting.
    LongMessage,
}

impl ProgressEngine {
    pub(crate) fn add(&mut self, pair: Arc<ProcessPair>) {
        self.sides.push(ReadSide {
            pair,
            requests: 0,
            replies_read: 0,
            replies: Replies::default(),
            waits_for_room: false,
            held: None,
            pauses: false,
            took_long: false,
            said: false,
            sources: Vec::new(),
            placed: None,
            brought: None,
            is_heard_out: false,
            fetch: FetchState::Nothing,
            buffer: Vec::new(),
        });
    }

    pub(crate) fn remove(&mut self, pair: &Arc<ProcessPair>) {
        self.sides.retain(|side| !Arc::ptr_eq(&side.pair, pair));
    }

    /// Lets a queue pair go.
    pub(crate) fn forget(&mut self, qpn: u32) {
        if let Some(entry) = self.qps.get_mut(qpn as usize % KEPT) {
            entry.take_if(|qp| qp.num == qpn);
        }
    }

    /// Takes what is there. Whether there was anything.
    pub(crate) fn run(&mut self, device: &Device, deferred: &mut DeferredWork) -> bool {
        self.run_of(device, deferred, TakeUntil::Empty, |_| true)
    }

    /// As [`run`](Self::run), for a thread that polls: of each process up to the first long
    /// message only.
    pub(super) fn run_for_poll(&mut self, device: &Device, deferred: &mut DeferredWork) -> bool {
        let any = self.run_of(device, deferred, TakeUntil::LongMessage, |_| true);
        self.in_vain = if any { 0 } else { self.in_vain.wrapping_add(1) };
        any
    }

    /// Reports whether a poll that finds nothing yields to the thread that it waits for: to one
    /// that copies, on a processor that may be the same, or to a peer that polls on this one. One
    /// in `MAKES_WAY` such polls does, and none that is about to find something.
    pub(super) fn makes_way(&self, peers: &PeerProcesses) -> bool {
        if self.in_vain == 0 || !self.in_vain.is_multiple_of(MAKES_WAY) {
            return false;
        }
        let processor = peers.publish_processor();
        self.sides.iter().any(|side| side.is_copying() || side.pair.polls_on(processor))
    }

    /// Takes what a process has left that writes nothing any more, but for what cannot be
    /// answered. One that has let go of us and goes on writing is not heard for ever.
    pub(crate) fn run_out(
        &mut self,
        device: &Device,
        pair: &Arc<ProcessPair>,
        deferred: &mut DeferredWork,
    ) {
        let is_it = |side: &ReadSide| Arc::ptr_eq(&side.pair, pair);
        // There is nothing to be fetched any more.
        self.give_up(pair);
        self.sides.iter_mut().filter(|side| is_it(side)).for_each(|side| side.is_heard_out = true);
        let _ = (0..LEFT).all(|_| self.run_of(device, deferred, TakeUntil::Empty, is_it));
    }

    fn run_of(
        &mut self,
        device: &Device,
        deferred: &mut DeferredWork,
        until: TakeUntil,
        is_wanted: impl Fn(&ReadSide) -> bool,
    ) -> bool {
        let ProgressEngine { sides, qps, scratch, broken, wants, spare, .. } = self;
        if qps.is_empty() {
            qps.resize(KEPT, None);
        }
        let scratch = scratch.get_or_insert_with(|| Box::new(MessageScratch::new()));
        let _serving = Serving::begin();
        let mut any = false;
        for side in sides.iter_mut().filter(|side| is_wanted(side)) {
            if side.has_nothing() || side.pair.is_dead() {
                continue;
            }
            let mut kept = RecentQps { device, qps };
            match side.run(&mut kept, scratch, deferred, until) {
                Ok(did) => {
                    any |= did;
                    *wants |= side.fetch.is_wanted();
                    side.tidy(spare);
                }
                // The progress thread finds out, and buries it.
                Err(Broken) => {
                    side.pair.declare_dead();
                    *broken = true;
                }
            }
        }
        any
    }

    /// Processes that have died, or do not keep the rules.
    pub(crate) fn dead(&self) -> Vec<Arc<ProcessPair>> {
        self.sides.iter().filter(|s| s.pair.is_dead()).map(|s| Arc::clone(&s.pair)).collect()
    }
}

/// Queue pairs that were looked up lately.
struct RecentQps<'k> {
    device: &'k Device,
    qps: &'k mut Vec<Option<Arc<Qp>>>,
}

impl RecentQps<'_> {
    fn find(&mut self, number: u32) -> Option<&Arc<Qp>> {
        let entry = &mut self.qps[number as usize % KEPT];
        let known = |qp: &Arc<Qp>| qp.num == number && qp.state() != QueuePairState::Destroyed;
        if !entry.as_ref().is_some_and(known) {
            *entry = self.device.qps.get(number);
        }
        entry.as_ref()
    }
}

impl ReadSide {
    /// Reports whether a message is being copied, by a thread of this process or by the other one,
    /// out of this one's memory.
    fn is_copying(&self) -> bool {
        // Relaxed: a hint.
        let is_read = || self.pair.incoming.reads.load(Ordering::Relaxed) & 1 == 1;
        matches!(self.fetch, FetchState::UnderWay) || is_read()
    }

    /// Reports whether there is nothing to do, as it is mostly.
    #[inline(always)]
    fn has_nothing(&self) -> bool {
        !is_request_at(&self.pair.incoming, self.requests)
            && !self.has_reply()
            && !self.pair.has_blocked()
    }

    fn run(
        &mut self,
        kept: &mut RecentQps<'_>,
        scratch: &mut MessageScratch,
        deferred: &mut DeferredWork,
        until: TakeUntil,
    ) -> Result<bool, Broken> {
        let replies = self.take_replies(kept, deferred)?;
        let requests = self.take_requests(kept, scratch, deferred, until)?;
        if self.pair.has_blocked() {
            while let Some(number) = self.pair.take_blocked() {
                if kept.find(number).is_some_and(|qp| !qp.go_on(deferred)) {
                    self.pair.block(number);
                    break;
                }
            }
        }
        Ok(replies || requests)
    }

    fn take_replies(
        &mut self,
        kept: &mut RecentQps<'_>,
        deferred: &mut DeferredWork,
    ) -> Result<bool, Broken> {
        let first = self.replies_read;
        self.pauses = false;
        while self.replies_read.wrapping_sub(first) < AT_ONCE {
            let Some(reply) = reply_at(&self.pair.incoming, self.replies_read)? else { break };
            let slot = self.pair.slot;
            if kept.find(reply.to).is_some_and(|qp| !qp.replied(slot, &reply, deferred)) {
                self.pauses = true;
                break;
            }
            self.replies_read = self.replies_read.wrapping_add(1);
        }
        let any = self.replies_read != first;
        if any {
            host::point();
            // Release: we are done with them.
            self.pair.outgoing.replies_read.store(self.replies_read, Ordering::Release);
            // The other side of the barrier in `has_room`.
            light(self.pair.spares_barriers);
            host::point();
            if self.pair.incoming.wants_reply_room.load(Ordering::Relaxed) != 0 {
                self.pair.wake();
            }
        }
        Ok(any)
    }

    /// Reports whether a reply is there.
    fn has_reply(&self) -> bool {
        is_reply_at(&self.pair.incoming, self.replies_read)
    }

    fn take_requests(
        &mut self,
        kept: &mut RecentQps<'_>,
        scratch: &mut MessageScratch,
        deferred: &mut DeferredWork,
        until: TakeUntil,
    ) -> Result<bool, Broken> {
        if self.fetch.is_awaited() || self.pauses {
            return Ok(false);
        }
        let first = self.requests;
        let mut published = first;
        self.took_long = false;
        let mut request = RingRequest::default();
        let mut is_there = self.read(&mut request)?;
        while is_there {
            // What was said before it was sent, its receiver learns before.
            self.take_replies(kept, deferred)?;
            if self.pauses {
                break;
            }
            is_there = self.take_run(&mut request, kept, scratch, deferred)?;
            if self.requests.wrapping_sub(published) >= READ_STEP {
                published = self.requests;
                host::point();
                // Release: we are done with them, and with their data.
                self.pair.outgoing.requests_read.store(published, Ordering::Release);
            }
            let is_enough = self.requests.wrapping_sub(first) >= AT_ONCE
                || (until == TakeUntil::LongMessage && self.took_long);
            if is_enough && !request.is_second() {
                break;
            }
        }
        if self.requests == first {
            return Ok(false);
        }
        host::point();
        // Release: as above.
        self.pair.outgoing.requests_read.store(self.requests, Ordering::Release);
        let replied = core::mem::take(&mut self.said);
        if !replied {
            // SeqCst: either the sender sees that there is room, or we see that it waits.
            fence(Ordering::SeqCst);
            host::point();
        }
        if replied || self.pair.incoming.wants_room.load(Ordering::Relaxed) != 0 {
            self.pair.wake();
        }
        Ok(true)
    }

    /// Reads the next request, if there is one and it can be answered.
    #[inline]
    fn read(&mut self, request: &mut RingRequest) -> Result<bool, Broken> {
        Ok(read_request(&self.pair.incoming, self.requests, request)? && self.has_room()?)
    }

    /// The request behind one that was executed, if there is one.
    #[inline(always)]
    fn next(&mut self, request: &mut RingRequest) -> Result<bool, Broken> {
        // There is room to answer both messages of an entry.
        if request.go_on() {
            return Ok(true);
        }
        self.requests = self.requests.wrapping_add(1);
        self.read(request)
    }

    /// Reports whether there is room for the held reply and those of the next entry. If not, the
    /// other process wakes this one when there is: it may have nothing more to ask for.
    #[inline]
    fn has_room(&mut self) -> Result<bool, Broken> {
        let read = &self.pair.incoming.replies_read;
        let mut has_room = self.replies.has_room(read, ROOM)?;
        if has_room == self.waits_for_room {
            let wants = &self.pair.outgoing.wants_reply_room;
            wants.store(u32::from(!has_room), Ordering::Relaxed);
            self.waits_for_room = !has_room;
            if !has_room {
                // Either it sees that we wait, or we see what it has taken; or neither, and the
                // progress thread looks from time to time.
                let _ = heavy();
                has_room = self.replies.has_room(read, ROOM)?;
            }
        }
        Ok(has_room)
    }

    /// Takes a request, and those that follow for the same queue pair. Whether there is
    /// another one, which has been read then.
    fn take_run(
        &mut self,
        request: &mut RingRequest,
        kept: &mut RecentQps<'_>,
        scratch: &mut MessageScratch,
        deferred: &mut DeferredWork,
    ) -> Result<bool, Broken> {
        let to = request.to;
        let device = kept.device;
        if request.what == EntryOp::Multicast {
            self.take_multicast(request, device, scratch, deferred);
            return self.next(request);
        }
        let mut session = kept.find(to).map(ResponderSession::open);
        let mut writer = CqWriter::default();
        let (mut left, mut is_there) = (READ_STEP, true);
        // Replies were looked for before the first one.
        while is_there && request.to == to && left > 0 && (left == READ_STEP || !self.has_reply()) {
            if let Some(session) = &mut session
                && is_short(request)
            {
                let before = left;
                let hold = scratch.room.hold();
                is_there = self.take_fast(request, session, hold, &mut writer, &mut left)?;
                if left != before {
                    continue;
                }
            }
            let is_long = request.len as usize >= LONG;
            if is_long {
                // What came before is published before it is copied.
                self.say_held();
            }
            let (verdict, value) = match &mut session {
                _ if slot_of(request.from) != self.pair.slot => (PeerReply::Silence, 0),
                None => (PeerReply::Silence, 0),
                Some(session) => {
                    match self.execute(session, request, scratch, &mut writer, deferred) {
                        Some(executed) => executed,
                        None => {
                            self.say_held();
                            return Ok(false);
                        }
                    }
                }
            };
            if verdict != PeerReply::Done && is_missed(request, session.as_ref()) {
                // Relaxed: a statistic.
                device.missed.fetch_add(1, Ordering::Relaxed);
            }
            if request.flags & WANTS_REPLY != 0 {
                let RingRequest { from, number, incarnation, what, .. } = *request;
                self.reply(ReplyEntry { to: from, number, incarnation, verdict, value }, what);
            }
            left -= 1;
            is_there = self.next(request)?;
            if is_long {
                self.took_long = true;
                break;
            }
        }
        // Before the completions are seen: the sender of a message learns that it has arrived
        // before an answer to it can come.
        self.say_held();
        Ok(is_there)
    }

    /// Replies; one that says "done" may stand for those before it.
    #[inline]
    fn reply(&mut self, reply: ReplyEntry, what: EntryOp) {
        let is_atomic = matches!(what, EntryOp::CompareSwap | EntryOp::FetchAdd);
        let merges = |held: &ReplyEntry| {
            held.to == reply.to
                && held.incarnation == reply.incarnation
                && held.verdict == PeerReply::Done
                && reply.verdict == PeerReply::Done
        };
        if !self.held.as_ref().is_some_and(merges) {
            self.say_held();
        }
        self.held = Some(reply);
        if is_atomic {
            self.say_held();
        }
    }

    /// Writes the reply that is held, if there is one.
    #[inline]
    fn say_held(&mut self) {
        if let Some(reply) = &self.held {
            self.replies.put(&self.pair.outgoing, reply);
            self.held = None;
            self.said = true;
        }
    }
}

/// Reports whether a message that was not received is lost: its sender does not repeat it.
#[cold]
fn is_missed(request: &RingRequest, session: Option<&ResponderSession<'_>>) -> bool {
    let unreliable = session.is_some_and(|session| !session.peer.transport.is_reliable());
    request.is_datagram() || (unreliable && carries_data(request))
}
