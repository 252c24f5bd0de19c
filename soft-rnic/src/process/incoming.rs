//! What other processes have sent: requests are executed, replies taken, by whoever
//! looks.
//!
//! One thread at a time does that, for all processes; another one that finds it at work
//! goes on with its own. Requests are executed as if they came from a queue pair of this
//! process: their data are where the sender has put them, or in its regions.

mod short;

use core::sync::atomic::{Ordering, fence};
use std::sync::Arc;

use verbs_sys::*;

use crate::address::Address;
use crate::after::After;
use crate::cq::CqWriter;
use crate::device::Device;
use crate::limits;
use crate::lock::Guard;
use crate::memory::Span;
use crate::qp::{Qp, State, Transport};
use crate::responder::{LONG, Message, Reply, Session};
use crate::sq::{Op, Wqe};

use super::Neighbours;
use super::away::{Serving, serves};
use super::barrier::{has_failed, heavy, is_asymmetric, light};
use super::directory::Inside;
use super::errand::{Errand, Fetch};
use super::gather::{Gathered, Scratch};
use super::pair::Pair;
use super::region::Window;
use super::ring::{
    Broken, HAS_IMM, JUDGE, Place, REPLIES, REQUESTS, Replies, ReplyEntry, Request, SOLICITED,
    Verdict, WANTS_REPLY, What, is_reply_at, is_request_at, read_request, reply_at,
};
use super::slot_of;

use short::is_short;

/// Requests of a process that are executed before others have their turn.
const AT_ONCE: u32 = 256;
/// Rounds that take all of rings that are full, of which each takes [`AT_ONCE`] of the requests
/// or of the replies, or all.
const LEFT: u32 = REQUESTS.div_ceil(AT_ONCE) + REPLIES.div_ceil(AT_ONCE) + 1;
/// Requests after which their senders are told that there is room again.
const READ_STEP: u32 = 64;
/// Replies that there has to be room for: one that is held, and an entry's.
const ROOM: u32 = 3;
/// Queue pairs that are kept at hand.
const KEPT: usize = 2_048;

/// What is at work on all that others send; under a lock.
#[derive(Default)]
pub(crate) struct Drain {
    pub(super) sides: Vec<Side>,
    qps: Vec<Option<Arc<Qp>>>,
    pub(super) scratch: Option<Box<Scratch>>,
    /// A process does not keep the rules: it has to be buried.
    broken: bool,
    /// There are errands that nobody runs.
    pub(super) wants: bool,
}

impl core::fmt::Debug for Drain {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Drain").field("sides", &self.sides.len()).finish_non_exhaustive()
    }
}

/// What this process reads of one other.
pub(super) struct Side {
    pub(super) pair: Arc<Pair>,
    pub(super) requests: u32,
    replies_read: u32,
    replies: Replies,
    /// Requests wait until the other process has taken replies, and it knows.
    waits_for_room: bool,
    /// A reply that the next one may stand for, too.
    held: Option<ReplyEntry>,
    /// The next reply is for a queue pair that cannot take it now: what comes behind it waits.
    pauses: bool,
    /// Replies were written, and the other process was not woken yet.
    said: bool,
    /// Region of the sender that was used last.
    pub(super) window: Option<(u32, Arc<Window>)>,
    /// What the next request waits for.
    pub(super) fetch: Fetch,
    /// Where the last message lies that had to be fetched.
    pub(super) buffer: Vec<u8>,
}

impl Drain {
    pub(crate) fn add(&mut self, pair: Arc<Pair>) {
        self.sides.push(Side {
            pair,
            requests: 0,
            replies_read: 0,
            replies: Replies::default(),
            waits_for_room: false,
            held: None,
            pauses: false,
            said: false,
            window: None,
            fetch: Fetch::Nothing,
            buffer: Vec::new(),
        });
    }

    pub(crate) fn remove(&mut self, pair: &Arc<Pair>) {
        self.sides.retain(|side| !Arc::ptr_eq(&side.pair, pair));
    }

    /// Lets a queue pair go.
    pub(crate) fn forget(&mut self, qpn: u32) {
        if let Some(place) = self.qps.get_mut(qpn as usize % KEPT) {
            place.take_if(|qp| qp.num == qpn);
        }
    }

    /// Takes what is there. Whether there was anything.
    pub(crate) fn run(&mut self, device: &Device, after: &mut After) -> bool {
        self.run_of(device, after, |_| true)
    }

    /// Takes what a process has left that writes nothing any more, but for what cannot be
    /// answered. One that has let go of us and goes on writing is not heard for ever.
    pub(crate) fn run_out(&mut self, device: &Device, pair: &Arc<Pair>, after: &mut After) {
        let is_it = |side: &Side| Arc::ptr_eq(&side.pair, pair);
        // There is nothing to be fetched any more.
        self.give_up(pair);
        let _ = (0..LEFT).all(|_| self.run_of(device, after, is_it));
    }

    fn run_of(
        &mut self,
        device: &Device,
        after: &mut After,
        is_wanted: impl Fn(&Side) -> bool,
    ) -> bool {
        let Drain { sides, qps, scratch, broken, wants } = self;
        if qps.is_empty() {
            qps.resize(KEPT, None);
        }
        let scratch = scratch.get_or_insert_with(|| Box::new(Scratch::new()));
        let _serving = Serving::begin();
        let mut any = false;
        for side in sides.iter_mut().filter(|side| is_wanted(side)) {
            if side.has_nothing() || side.pair.is_dead() {
                continue;
            }
            let mut kept = Kept { device, qps };
            match side.run(&mut kept, scratch, after) {
                Ok(did) => {
                    any |= did;
                    *wants |= side.fetch.is_wanted();
                    side.tidy();
                }
                // The helper finds out, and buries it.
                Err(Broken) => {
                    side.pair.declare_dead();
                    *broken = true;
                }
            }
        }
        any
    }

    /// Processes that have died, or do not keep the rules.
    pub(crate) fn dead(&self) -> Vec<Arc<Pair>> {
        self.sides.iter().filter(|s| s.pair.is_dead()).map(|s| Arc::clone(&s.pair)).collect()
    }
}

/// Queue pairs that were looked up lately.
struct Kept<'k> {
    device: &'k Device,
    qps: &'k mut Vec<Option<Arc<Qp>>>,
}

impl Kept<'_> {
    fn find(&mut self, number: u32) -> Option<&Arc<Qp>> {
        let place = &mut self.qps[number as usize % KEPT];
        let known = |qp: &Arc<Qp>| qp.num == number && qp.state() != State::Destroyed;
        if !place.as_ref().is_some_and(known) {
            *place = self.device.qps.get(number);
        }
        place.as_ref()
    }
}

impl Side {
    /// Whether there is nothing to do, as it is mostly.
    #[inline(always)]
    fn has_nothing(&self) -> bool {
        !is_request_at(&self.pair.incoming, self.requests)
            && !self.has_reply()
            && !self.pair.has_blocked()
    }

    fn run(
        &mut self,
        kept: &mut Kept<'_>,
        scratch: &mut Scratch,
        after: &mut After,
    ) -> Result<bool, Broken> {
        let replies = self.take_replies(kept, after)?;
        let requests = self.take_requests(kept, scratch, after)?;
        if self.pair.has_blocked() {
            while let Some(number) = self.pair.take_blocked() {
                if kept.find(number).is_some_and(|qp| !qp.go_on(after)) {
                    self.pair.block(number);
                    break;
                }
            }
        }
        Ok(replies || requests)
    }

    fn take_replies(&mut self, kept: &mut Kept<'_>, after: &mut After) -> Result<bool, Broken> {
        let first = self.replies_read;
        self.pauses = false;
        while self.replies_read.wrapping_sub(first) < AT_ONCE {
            let Some(reply) = reply_at(&self.pair.incoming, self.replies_read)? else { break };
            let slot = self.pair.slot;
            if kept.find(reply.to).is_some_and(|qp| !qp.replied(slot, &reply, after)) {
                self.pauses = true;
                break;
            }
            self.replies_read = self.replies_read.wrapping_add(1);
        }
        let any = self.replies_read != first;
        if any {
            // Release: we are done with them.
            self.pair.outgoing.replies_read.store(self.replies_read, Ordering::Release);
            // The other side of the barrier in `has_room`.
            light(self.pair.spares_barriers);
            if self.pair.incoming.wants_reply_room.load(Ordering::Relaxed) != 0 {
                self.pair.wake();
            }
        }
        Ok(any)
    }

    /// Whether a reply is there.
    fn has_reply(&self) -> bool {
        is_reply_at(&self.pair.incoming, self.replies_read)
    }

    fn take_requests(
        &mut self,
        kept: &mut Kept<'_>,
        scratch: &mut Scratch,
        after: &mut After,
    ) -> Result<bool, Broken> {
        if self.fetch.is_awaited() || self.pauses {
            return Ok(false);
        }
        let first = self.requests;
        let mut published = first;
        let mut request = Request::default();
        let mut is_there = self.read(&mut request)?;
        while is_there {
            // What was said before it was sent, its receiver learns before.
            self.take_replies(kept, after)?;
            if self.pauses {
                break;
            }
            is_there = self.take_run(&mut request, kept, scratch, after)?;
            if self.requests.wrapping_sub(published) >= READ_STEP {
                published = self.requests;
                // Release: we are done with them, and with their data.
                self.pair.outgoing.requests_read.store(published, Ordering::Release);
            }
            if self.requests.wrapping_sub(first) >= AT_ONCE && !request.is_second() {
                break;
            }
        }
        if self.requests == first {
            return Ok(false);
        }
        // Release: as above.
        self.pair.outgoing.requests_read.store(self.requests, Ordering::Release);
        let replied = core::mem::take(&mut self.said);
        if !replied {
            // SeqCst: either the sender sees that there is room, or we see that it waits.
            fence(Ordering::SeqCst);
        }
        if replied || self.pair.incoming.wants_room.load(Ordering::Relaxed) != 0 {
            self.pair.wake();
        }
        Ok(true)
    }

    /// Reads the next request, if there is one and it can be answered.
    #[inline]
    fn read(&mut self, request: &mut Request) -> Result<bool, Broken> {
        Ok(read_request(&self.pair.incoming, self.requests, request)? && self.has_room()?)
    }

    /// The request behind one that was executed, if there is one.
    #[inline(always)]
    fn next(&mut self, request: &mut Request) -> Result<bool, Broken> {
        // There is room to answer both messages of an entry.
        if request.go_on() {
            return Ok(true);
        }
        self.requests = self.requests.wrapping_add(1);
        self.read(request)
    }

    /// Whether there is room for the held reply and those of the next entry. If not, the other
    /// process wakes this one when there is: it may have nothing more to ask for.
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
                // helper looks from time to time.
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
        request: &mut Request,
        kept: &mut Kept<'_>,
        scratch: &mut Scratch,
        after: &mut After,
    ) -> Result<bool, Broken> {
        let to = request.to;
        let device = kept.device;
        let mut session = kept.find(to).map(Session::open);
        let mut writer = CqWriter::default();
        let (mut left, mut is_there) = (READ_STEP, true);
        // Replies were looked for before the first one.
        while is_there && request.to == to && left > 0 && (left == READ_STEP || !self.has_reply()) {
            if let Some(session) = &mut session
                && is_short(request)
            {
                let before = left;
                is_there = self.take_short(request, session, &mut writer, &mut left)?;
                if left != before {
                    continue;
                }
            }
            if request.len as usize >= LONG {
                // What came before is published before it is copied.
                self.say_held();
            }
            let (verdict, value) = match &mut session {
                _ if slot_of(request.from) != self.pair.slot => (Verdict::Silence, 0),
                None => (Verdict::Silence, 0),
                Some(session) => {
                    match self.execute(session, request, scratch, &mut writer, after) {
                        Some(executed) => executed,
                        None => {
                            self.say_held();
                            return Ok(false);
                        }
                    }
                }
            };
            if verdict != Verdict::Done && is_missed(request, session.as_ref()) {
                // Relaxed: a statistic.
                device.missed.fetch_add(1, Ordering::Relaxed);
            }
            if request.flags & WANTS_REPLY != 0 {
                let Request { from, number, incarnation, what, .. } = *request;
                self.reply(ReplyEntry { to: from, number, incarnation, verdict, value }, what);
            }
            left -= 1;
            is_there = self.next(request)?;
        }
        // Before the completions are seen: who answers a message is not heard before its
        // sender knows that it has arrived.
        self.say_held();
        Ok(is_there)
    }

    /// Executes a request; what to reply, unless its data have to be fetched first.
    fn execute<'a>(
        &mut self,
        session: &mut Session<'a>,
        request: &Request,
        scratch: &mut Scratch,
        writer: &mut CqWriter<'a>,
        after: &mut After,
    ) -> Option<(Verdict, u64)> {
        let transport = session.peer.transport;
        if (transport == Transport::Ud) != (request.what == What::Datagram) {
            return Some((Verdict::Silence, 0));
        }
        let reliable = transport.is_reliable();
        let expected = request.generation == session.responder.generation
            && request.number == session.responder.number;
        if reliable && !expected {
            return Some((Verdict::Silence, 0));
        }
        let there = is_elsewhere(request).then(|| Arc::clone(&self.pair));
        let reading = there.as_deref().map(|pair| read_there(pair, request));
        if matches!(reading, Some(None)) {
            return Some((Verdict::Silence, 0));
        }
        // Nobody fetches what has to be sent again, or is dropped.
        if reading.is_some() && session.has_no_receive(request.from) {
            let rnr = Verdict::Rnr(session.responder.min_rnr_timer);
            return Some((if reliable { rnr } else { Verdict::Silence }, 0));
        }
        if reading.is_some() && session.drops(request.len.into()) {
            return Some((Verdict::Silence, 0));
        }
        if transport == Transport::Ud && u64::from(request.len) > limits::MTU {
            return Some((Verdict::Silence, 0));
        }
        match self.gather(request, scratch) {
            Gathered::There => {}
            Gathered::Later => return None,
            Gathered::Never => {
                return Some((Verdict::Refused(ibv_wc_status::IBV_WC_LOC_PROT_ERR), 0));
            }
        }
        let mut value = 0_u64;
        let wqe = wqe(request);
        let is_atomic = wqe.op.is_atomic();
        if is_atomic {
            scratch.local.clear();
            scratch.local.push(Span { ptr: (&raw mut value).cast(), len: 8 });
        }
        let message = Message {
            wqe: &wqe,
            from_qpn: request.from,
            psn: session.responder.psn,
            packets: 1,
            len: request.len.into(),
            local: scratch.local.as_slice(),
            on_demand: false,
        };
        let room = &mut scratch.room;
        let reply = if transport == Transport::Ud {
            let (to, qkey) = address(request);
            session.deliver_datagram(&message, &to, qkey, room, writer, after)
        } else {
            session.deliver(&message, room, writer, after)
        };
        let verdict = match reply {
            Reply::Done if request.flags & JUDGE != 0 && !is_atomic => Verdict::Again,
            Reply::Done => Verdict::Done,
            Reply::Rnr(code) => Verdict::Rnr(code),
            Reply::Refused(status) => Verdict::Refused(status),
            Reply::Silence => Verdict::Silence,
        };
        if verdict == Verdict::Done {
            session.responder.number = session.responder.number.wrapping_add(1);
        }
        Some((verdict, value))
    }

    /// Replies; one that says "done" may stand for those before it.
    #[inline]
    fn reply(&mut self, reply: ReplyEntry, what: What) {
        let is_atomic = matches!(what, What::CompareSwap | What::FetchAdd);
        let merges = |held: &ReplyEntry| {
            held.to == reply.to
                && held.incarnation == reply.incarnation
                && held.verdict == Verdict::Done
                && reply.verdict == Verdict::Done
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

/// Whether a message that nobody took is lost with that: nobody repeats it.
#[cold]
fn is_missed(request: &Request, session: Option<&Session<'_>>) -> bool {
    let unreliable = session.is_some_and(|session| !session.peer.transport.is_reliable());
    request.what == What::Datagram || (unreliable && carries_data(request))
}

/// Whether the data of a request are still where the sender's program has them.
#[inline]
fn is_elsewhere(request: &Request) -> bool {
    request.place == Place::Regions && carries_data(request)
}

/// Says that a message is read where it lies, until this is dropped. `None` if its sender
/// waits for it no more: it was flushed, and the memory is the program's again.
pub(super) fn read_there<'p>(pair: &'p Pair, request: &Request) -> Option<Inside<'p>> {
    let inside = Inside::of(&pair.outgoing.reads, pair.spares_barriers);
    pair.theirs.qp(request.from).waits_for_reply(request.incarnation).then_some(inside)
}

/// Whether a request is followed by data: it takes a receive request.
pub(super) fn carries_data(request: &Request) -> bool {
    match request.what {
        What::Send | What::Datagram => true,
        What::Write => request.flags & HAS_IMM != 0,
        _ => false,
    }
}

/// What a request asks for, as a send queue's request.
fn wqe(request: &Request) -> Wqe {
    let op = match request.what {
        What::Send | What::Datagram => Op::Send,
        What::Write => Op::Write,
        What::Read => Op::Read,
        What::CompareSwap => Op::CompareSwap,
        What::FetchAdd => Op::FetchAdd,
    };
    // Of what carries data, the first two say where they are.
    let [first, compare_add, third, rkey] = request.body;
    let (remote_addr, swap) = if carries_data(request) { (third, 0) } else { (first, third) };
    Wqe {
        wr_id: 0,
        remote_addr,
        compare_add,
        swap,
        rkey: rkey as u32,
        imm: (request.flags & HAS_IMM != 0).then_some(request.imm),
        position: 0,
        op,
        signaled: false,
        solicited: request.flags & SOLICITED != 0,
        inline: false,
        fence: false,
        ahead: false,
    }
}

/// Where a datagram goes, and the key that it carries.
fn address(request: &Request) -> (Address, u32) {
    let [qkey, class_and_limit] = [request.body[1] as u32, (request.body[1] >> 32) as u32];
    let [traffic_class, hop_limit, _, _] = class_and_limit.to_le_bytes();
    (Address::here(request.to, traffic_class, hop_limit), qkey)
}

impl Device {
    /// Takes what others have sent, unless somebody is at it.
    pub(crate) fn drain_from_poll(self: &Arc<Device>) {
        let Some(neighbours) = &self.neighbours else { return };
        neighbours.saw_poll();
        self.drain();
    }

    /// Takes what others have sent; whether there was anything.
    pub(crate) fn drain(self: &Arc<Device>) -> bool {
        let Some(neighbours) = &self.neighbours else { return false };
        let mut any = false;
        loop {
            let Some(drain) = neighbours.drain.try_lock() else {
                if neighbours.helper_works() {
                    std::thread::yield_now();
                }
                return any;
            };
            any |= self.drain_with(neighbours, drain);
            // The other side of the barrier in `drain_or_have_drained`.
            light(is_asymmetric());
            if !neighbours.look_again.load(Ordering::Relaxed) {
                return any;
            }
        }
    }

    /// Takes what others have sent, or lets whoever is at it look once more; whether
    /// there was anything, as far as we know.
    pub(super) fn drain_or_have_drained(self: &Arc<Device>) -> bool {
        let Some(neighbours) = &self.neighbours else { return false };
        if let Some(drain) = neighbours.drain.try_lock() {
            let any = self.drain_with(neighbours, drain);
            return self.drain() || any;
        }
        neighbours.look_again.store(true, Ordering::Relaxed);
        // Either we get the lock, or its holder sees that he has to look again; or neither, and
        // the helper looks from time to time.
        let knew = has_failed();
        if !heavy() && !knew {
            neighbours.poke();
        }
        self.drain()
    }

    fn drain_with(
        self: &Arc<Device>,
        neighbours: &Neighbours,
        mut drain: Guard<'_, Drain>,
    ) -> bool {
        let mut after = After::default();
        if neighbours.look_again.load(Ordering::Relaxed) {
            // AcqRel: what was put before it was asked for is seen.
            neighbours.look_again.swap(false, Ordering::AcqRel);
        }
        let knew = has_failed();
        let any = drain.run(self, &mut after);
        let broken = core::mem::take(&mut drain.broken);
        let errand = drain.errand();
        drop(drain);
        // There is something that the helper has to know.
        if broken || knew != has_failed() {
            neighbours.poke();
        }
        // Who waits for another process's memory in between keeps the errand waiting.
        let serving = errand.is_some().then(Serving::begin);
        after.run();
        drop(serving);
        let Some(errand) = errand else { return any };
        self.have_run(neighbours, errand);
        true
    }

    /// Has an errand run: by this thread, unless others rely on it.
    #[cold]
    fn have_run(self: &Arc<Device>, neighbours: &Neighbours, errand: Box<Errand>) {
        if !serves() {
            self.run_errand(*errand);
            return;
        }
        let (device, pair) = (Arc::clone(self), Arc::clone(errand.pair()));
        let builder = std::thread::Builder::new().name("soft-rnic-fetch".into());
        let run = move || {
            device.run_errand(*errand);
            while device.drain() {}
        };
        if builder.spawn(run).is_err() {
            neighbours.drain.lock().give_up(&pair);
        }
    }

    fn run_errand(&self, mut errand: Errand) {
        let is_there = errand.run();
        if let Some(neighbours) = &self.neighbours {
            neighbours.drain.lock().is_over(errand, is_there);
        }
    }
}
