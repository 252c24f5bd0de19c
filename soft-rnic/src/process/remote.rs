//! Requests to a queue pair of another process: the requester's side.
//!
//! What was sent through the ring stays in the send queue until its reply is there:
//!
//! ```text
//!   pending:   | sent, no reply yet      | not sent |
//!              head                      head + sent
//! ```
//!
//! Replies come in the order of the requests. One that says "not ready" or "nobody
//! there" moves the second mark back to the head: all is sent again from there, when
//! the time has come, and the other side has ignored what came behind it.
//!
//! An operation on memory is carried out here when nothing before it waits for a reply.

use core::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::Arc;

use verbs_sys::*;

use crate::after::{After, Todo};
use crate::lock::Guard;
use crate::memory::{Copying, Span, copy_spans};
use crate::mr::{REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::qp::{Qp, State};
use crate::requester::{Line, Outcome, SqParts};
use crate::responder::Reply;
use crate::sq::{self, Op, Sq, Wait};

use super::directory::{QpEntry, Told};
use super::memory::{Way, attach};
use super::pair::Pair;
use super::region::Window;
use super::ring::{
    BODY, DATA, HAS_IMM, JUDGE, Place, ReplyEntry, Request, Requests, SOLICITED, Verdict,
    WANTS_REPLY, What,
};
use super::slot_of;

/// Longer messages are copied by the receiver, from where they are.
const COPIED: u64 = 8 << 10;

/// What a send queue knows of a peer in another process.
#[derive(Debug)]
pub(crate) struct Remote {
    slot: u32,
    pair: Option<Arc<Pair>>,
    /// The peer's, as we have seen it; 0 is "not looked yet".
    generation: u32,
    /// How often this queue pair has been connected.
    incarnation: u8,
    /// The PSN of the first request.
    psn: u32,
    /// The number of the next message.
    next: u32,
    /// Requests from the head of the queue on that were sent.
    sent: u32,
    /// How many of those put data into receive buffers.
    sends: u32,
    region: Option<(u32, Region)>,
}

/// A peer's region, and where it is mapped if it is.
#[derive(Debug, Clone)]
struct Region {
    told: Told,
    window: Option<Arc<Window>>,
}

/// What became of a try to send a request.
enum Step {
    Sent,
    /// Nothing now: what goes before it has to be over, or there is no room.
    Later,
    Ended(Outcome),
}

impl Remote {
    pub(crate) fn new(qpn: u32, incarnation: u8) -> Remote {
        Remote {
            slot: slot_of(qpn),
            pair: None,
            generation: 0,
            incarnation,
            psn: 0,
            next: 0,
            sent: 0,
            sends: 0,
            region: None,
        }
    }

    /// The queue pair begins to send, with this PSN.
    pub(crate) fn begin(&mut self, psn: u32) {
        self.psn = psn;
    }

    /// All that was sent and has no reply will be sent again, or is given up.
    pub(crate) fn go_back(&mut self) {
        self.next = self.next.wrapping_sub(self.sent);
        (self.sent, self.sends) = (0, 0);
        // Look again: it may be another one by now.
        self.generation = 0;
    }

    /// Waits until the peer's process is not inside this one's memory for this
    /// connection.
    pub(crate) fn wait_outside(&self, dest_qpn: u32) {
        if let Some(pair) = &self.pair {
            // Who does not leave within seconds is stopped; it cannot be waited for.
            let _ = super::wait_for(pair, core::iter::once(pair.theirs.qp(dest_qpn).inside()));
        }
    }
}

impl Qp {
    /// Sends and executes what is pending, as far as it goes. The send queue's lock is
    /// held.
    pub(crate) fn run_foreign(self: &Arc<Qp>, sq: &mut Sq, after: &mut After, only_one: bool) {
        let Sq { requester, pending, remote, counters, scratch, .. } = &mut *sq;
        let Some(remote) = remote.as_deref_mut() else { return };
        let mut line = Line::new();
        let mut parts = SqParts { requester, counters, scratch };
        let pair = remote.pair(self);
        let mut out = pair.as_deref().map(Out::new);
        let network = &self.pd.context.device.network;
        let is_lossy = !self.transport.is_reliable() && network.is_faulty();
        while let Some(request) = pending.nth(remote.sent) {
            let state = self.state();
            if state.flushes_sends() {
                remote.go_back();
                self.flush_pending(pending, &mut line);
                break;
            }
            let resumes = state == State::Sqd && parts.requester.started && remote.sent == 0;
            if !(state == State::Rts || resumes) || parts.requester.waits.is_some() {
                break;
            }
            let step = if is_lossy {
                let outcome = self.send_unreliably(&mut parts, &request, None, |parts, arrives| {
                    let out = out.as_mut();
                    self.advance_lossy(parts, remote, out, &request, &mut line, arrives)
                });
                Step::Ended(outcome)
            } else {
                self.advance(&mut parts, remote, out.as_mut(), &request, &mut line)
            };
            match step {
                Step::Later => break,
                Step::Sent => {
                    parts.requester.started = true;
                    remote.next = remote.next.wrapping_add(1);
                    remote.sent += 1;
                    remote.sends += u32::from(request.wqe.op == Op::Send);
                }
                Step::Ended(outcome) => {
                    let (wqe, len) = (request.wqe, request.len());
                    if !self.settle(&mut parts, &mut line, &wqe, len, outcome) {
                        break;
                    }
                    pending.pop();
                    if only_one {
                        break;
                    }
                }
            }
        }
        drop(out);
        after.append(line.finish());
        self.check_drained(sq);
    }

    /// Sends a request, or executes it.
    fn advance(
        self: &Arc<Qp>,
        parts: &mut SqParts<'_>,
        remote: &mut Remote,
        out: Option<&mut Out<'_>>,
        request: &sq::Request<'_>,
        line: &mut Line<'_>,
    ) -> Step {
        let len = request.len();
        if let Err(status) = self.local(parts.requester, request, len, &mut parts.scratch.local) {
            return remote.alone(|_| Step::Ended(Outcome::Failed(status)));
        }
        let Some(out) = out else {
            return remote.alone(|remote| Step::Ended(self.unmet(parts, remote, len, line)));
        };
        if out.pair.is_dead() {
            return remote.alone(|_| Step::Ended(self.lost(parts, len)));
        }
        if remote.generation == 0 && !self.greet(remote, out.pair, parts.requester.dest_qpn) {
            parts.requester.started = true;
            return Step::Ended(self.judge(parts.requester, Reply::Silence, len));
        }
        let wqe = &request.wqe;
        let to = parts.requester.dest_qpn;
        match (wqe.op, wqe.imm) {
            (Op::Send, _) => self.send(parts, remote, out, request),
            (Op::Write, Some(_)) => {
                if remote.sends > 0 {
                    return Step::Later;
                }
                match self.one_sided(parts, remote, out, request) {
                    Access::Done => self.notify(remote, out, request, to, 0),
                    Access::Judge => self.notify(remote, out, request, to, JUDGE),
                    Access::Ended(outcome) => remote.alone(|_| Step::Ended(outcome)),
                }
            }
            _ => remote.alone(|remote| match self.one_sided(parts, remote, out, request) {
                Access::Done => Step::Ended(self.judge(parts.requester, Reply::Done, len)),
                Access::Judge => self.notify(remote, out, request, to, JUDGE),
                Access::Ended(outcome) => Step::Ended(outcome),
            }),
        }
    }

    /// Sends a request into a network that may have lost it already; nothing waits for
    /// replies, and what is too long to be copied, or finds no room, gets lost, too.
    fn advance_lossy(
        self: &Arc<Qp>,
        parts: &mut SqParts<'_>,
        remote: &mut Remote,
        out: Option<&mut Out<'_>>,
        request: &sq::Request<'_>,
        line: &mut Line<'_>,
        arrives: bool,
    ) -> Outcome {
        let len = request.len();
        if let Err(status) = self.local(parts.requester, request, len, &mut parts.scratch.local) {
            return Outcome::Failed(status);
        }
        let Some(out) = out else { return self.unmet(parts, remote, len, line) };
        let to = parts.requester.dest_qpn;
        let sent =
            Request { len: len as u32, ..self.request(remote, request, to, flags_of(request)) };
        let reply = match request.wqe.op {
            _ if !arrives || out.pair.is_dead() => Reply::Silence,
            Op::Send if len <= u64::from(DATA / 4) => {
                let put = out.put_data(sent, parts.scratch.local.as_slice());
                if put { Reply::Done } else { Reply::Silence }
            }
            Op::Send => Reply::Silence,
            _ => match self.one_sided(parts, remote, out, request) {
                Access::Done if request.wqe.imm.is_some() => {
                    let body = [request.wqe.remote_addr, 0, 0, request.wqe.rkey.into()];
                    if out.put(Request { body, ..sent }) { Reply::Done } else { Reply::Silence }
                }
                Access::Done => Reply::Done,
                Access::Judge => Reply::Silence,
                Access::Ended(outcome) => return outcome,
            },
        };
        self.judge(parts.requester, reply, len)
    }

    /// A late message arrives at another process. False if it does not: a write has no
    /// memory to go to any more.
    pub(crate) fn arrive_abroad(&self, sq: &mut Sq, wqe: &sq::Wqe, payload: &[Span]) -> bool {
        let to = sq.requester.dest_qpn;
        let Some(remote) = sq.remote.as_deref_mut() else { return false };
        let Some(pair) = remote.pair(self).filter(|pair| !pair.is_dead()) else { return false };
        let len: usize = payload.iter().map(|span| span.len).sum();
        let request = sq::Request { wqe: *wqe, sges: &[], to: None };
        let flags = flags_of(&request);
        let sent = Request { len: len as u32, ..self.request(remote, &request, to, flags) };
        let fits = len <= DATA as usize / 4;
        wqe.op == Op::Send && fits && Out::new(&pair).put_data(sent, payload)
    }

    /// There is no pair: the process has to be met first, or nobody is there.
    fn unmet(
        self: &Arc<Qp>,
        parts: &mut SqParts<'_>,
        remote: &Remote,
        len: u64,
        line: &mut Line<'_>,
    ) -> Outcome {
        parts.requester.started = true;
        if core::mem::take(&mut parts.requester.nobody_there) {
            return self.judge(parts.requester, Reply::Silence, len);
        }
        line.after.push(Todo::Meet(Arc::clone(self), remote.slot));
        Outcome::Blocked(Wait::Meeting, None)
    }

    /// The peer's process has died.
    fn lost(&self, parts: &mut SqParts<'_>, len: u64) -> Outcome {
        if self.transport.is_reliable() {
            return Outcome::Failed(ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
        }
        self.judge(parts.requester, Reply::Silence, len)
    }

    /// Looks the peer up; whether it expects what we are going to send.
    fn greet(&self, remote: &mut Remote, pair: &Pair, to: u32) -> bool {
        let Some(entry) = pair.theirs.receiver(to, self.transport as u32, self.num) else {
            return false;
        };
        let generation = entry.generation.load(Ordering::Relaxed);
        let expected = entry.psn.load(Ordering::Relaxed) == remote.psn;
        if self.transport.is_reliable() && !expected {
            return false;
        }
        remote.generation = generation;
        generation != 0
    }

    fn send(
        &self,
        parts: &mut SqParts<'_>,
        remote: &Remote,
        out: &mut Out<'_>,
        request: &sq::Request<'_>,
    ) -> Step {
        let len = request.len();
        // Who takes silence for success waits only for what is not copied.
        let waits = self.transport.is_reliable() || len > COPIED || remote.sent > 0;
        let mut flags = flags_of(request);
        if waits {
            flags |= WANTS_REPLY;
        }
        let to = parts.requester.dest_qpn;
        let sent = Request { len: len as u32, ..self.request(remote, request, to, flags) };
        if !out.put_message(sent, parts.scratch.local.as_slice(), request.sges) {
            return Step::Later;
        }
        if waits {
            return Step::Sent;
        }
        Step::Ended(self.judge(parts.requester, Reply::Done, len))
    }

    /// Tells the peer of an operation on memory: that it was done, or that it cannot be.
    fn notify(
        &self,
        remote: &Remote,
        out: &mut Out<'_>,
        request: &sq::Request<'_>,
        to: u32,
        flags: u8,
    ) -> Step {
        let wqe = &request.wqe;
        let flags = flags_of(request) | WANTS_REPLY | flags;
        let body = [wqe.remote_addr, wqe.compare_add, wqe.swap, wqe.rkey.into()];
        let len = request.len() as u32;
        let sent = Request { body, len, ..self.request(remote, request, to, flags) };
        if out.put(sent) { Step::Sent } else { Step::Later }
    }

    fn request(&self, remote: &Remote, request: &sq::Request<'_>, to: u32, flags: u8) -> Request {
        let what = match request.wqe.op {
            Op::Send => What::Send,
            Op::Write => What::Write,
            Op::Read => What::Read,
            Op::CompareSwap => What::CompareSwap,
            Op::FetchAdd => What::FetchAdd,
        };
        Request {
            what,
            flags,
            place: Place::Body,
            incarnation: remote.incarnation,
            to,
            from: self.num,
            generation: remote.generation,
            number: remote.next,
            imm: request.wqe.imm.unwrap_or(0),
            len: 0,
            body: [0; 4],
        }
    }

    /// Carries an operation on the peer's memory out, if it is permitted.
    fn one_sided(
        &self,
        parts: &mut SqParts<'_>,
        remote: &mut Remote,
        out: &mut Out<'_>,
        request: &sq::Request<'_>,
    ) -> Access {
        // Others of this process may send while we copy.
        out.release();
        parts.requester.started = true;
        let pair = out.pair;
        let Some(own) = self.entry() else { return Access::Judge };
        let _inside = own.enter(pair.spares_barriers);
        let to = parts.requester.dest_qpn;
        let Some(entry) = pair.theirs.receiver(to, self.transport as u32, self.num) else {
            let silence = self.judge(parts.requester, Reply::Silence, request.len());
            return Access::Ended(silence);
        };
        if !permits(entry, request.wqe.op) {
            return Access::Judge;
        }
        let len = request.len();
        if len == 0 {
            return Access::Done;
        }
        let Some((region, offset)) = remote.region(pair, entry, request, len) else {
            return Access::Judge;
        };
        let local = parts.scratch.local.as_slice();
        if let Some(at) = region.window.as_ref().and_then(|window| window.at(offset, len)) {
            // SAFETY: both were checked, and their owner waits until we have left;
            // programs access them atomically only.
            return unsafe { access(at, local, request) };
        }
        if request.wqe.op.is_atomic() {
            return Access::Judge;
        }
        let way = if request.wqe.op == Op::Read { Way::From } else { Way::Into };
        if !pair.attaches || pair.has_ended() {
            return Access::Ended(self.unattached(parts, pair, len));
        }
        let there = region.told.addr.wrapping_add(offset);
        // SAFETY: as above.
        match unsafe { attach(pair.pid, way, local, there, len as usize) } {
            Ok(()) => Access::Done,
            Err(_) => Access::Ended(self.unattached(parts, pair, len)),
        }
    }

    /// Memory that is neither mapped nor attached to.
    #[cold]
    fn unattached(&self, parts: &mut SqParts<'_>, pair: &Pair, len: u64) -> Outcome {
        if pair.has_ended() || !self.transport.is_reliable() {
            return self.lost(parts, len);
        }
        Outcome::Failed(ibv_wc_status::IBV_WC_REM_OP_ERR)
    }

    /// A reply has come.
    pub(crate) fn replied(self: &Arc<Qp>, from: u32, reply: &ReplyEntry, after: &mut After) {
        let mut guard = self.sq.lock();
        let Sq { requester, pending, remote, counters, scratch, .. } = &mut *guard;
        let Some(remote) = remote.as_deref_mut() else { return };
        let first = remote.next.wrapping_sub(remote.sent);
        let nth = reply.number.wrapping_sub(first);
        // What came too late, or is made up, is for nobody.
        let stale = remote.slot != from || reply.incarnation != remote.incarnation;
        if stale || nth >= remote.sent || self.state().flushes_sends() {
            return;
        }
        let mut line = Line::new();
        let mut parts = SqParts { requester, counters, scratch };
        let (before, verdict) = match reply.verdict {
            Verdict::Done => (nth + 1, None),
            // What was done before it has been said. So this is about something that was
            // sent before we went back, and behind what made us.
            _ if nth > 0 => return,
            verdict => (0, Some(verdict)),
        };
        for _ in 0..before {
            let Some(request) = pending.front() else { return };
            let (wqe, len) = (request.wqe, request.len());
            remote.sent -= 1;
            remote.sends -= u32::from(wqe.op == Op::Send);
            if wqe.op.is_atomic() {
                self.land(&mut parts, &request, reply.value);
            }
            let outcome = self.judge(parts.requester, Reply::Done, len);
            self.settle(&mut parts, &mut line, &wqe, len, outcome);
            pending.pop();
        }
        if let Some(verdict) = verdict
            && let Some(request) = pending.front()
        {
            let (wqe, len) = (request.wqe, request.len());
            self.answered(&mut parts, remote, verdict, &wqe, len, &mut line);
            // An unreliable transport takes any answer for success.
            let ends = !self.transport.is_reliable() || matches!(verdict, Verdict::Refused(_));
            if ends || self.state().flushes_sends() {
                pending.pop();
            }
        }
        parts.requester.started |= remote.sent > 0;
        after.append(line.finish());
        self.run_foreign(&mut guard, after, false);
    }

    /// The head got another answer than that it is done.
    fn answered<'a>(
        self: &'a Arc<Qp>,
        parts: &mut SqParts<'_>,
        remote: &mut Remote,
        verdict: Verdict,
        wqe: &sq::Wqe,
        len: u64,
        line: &mut Line<'a>,
    ) {
        let reply = match verdict {
            Verdict::Rnr(code) => Reply::Rnr(code),
            Verdict::Refused(status) => Reply::Refused(ibv_wc_status(status.into())),
            _ => Reply::Silence,
        };
        if self.transport.is_reliable() {
            remote.go_back();
        } else {
            remote.sent -= 1;
            remote.sends -= u32::from(wqe.op == Op::Send);
        }
        if verdict == Verdict::Again && self.transport.is_reliable() {
            return;
        }
        let outcome = self.judge(parts.requester, reply, len);
        self.settle(parts, line, wqe, len, outcome);
    }

    /// Puts what an atomic has found where the request wants it.
    fn land(&self, parts: &mut SqParts<'_>, request: &sq::Request<'_>, mut value: u64) {
        let spans = &mut parts.scratch.local;
        if self.local(parts.requester, request, 8, spans).is_ok() {
            let value = Span { ptr: (&raw mut value).cast(), len: 8 };
            // SAFETY: the list has just been checked; the program accesses it
            // atomically only.
            unsafe { copy_spans(spans.as_slice(), &[value], Copying::Shared) };
        }
    }

    /// A process has died: what was on its way there has failed.
    pub(crate) fn lose(self: &Arc<Qp>, pair: &Arc<Pair>, after: &mut After) {
        let mut sq = self.sq.lock();
        let Some(remote) = sq.remote.as_deref_mut() else { return };
        if !remote.pair.as_ref().is_some_and(|known| Arc::ptr_eq(known, pair)) {
            return;
        }
        remote.go_back();
        sq.requester.waits = None;
        self.run_pending(&mut sq, after, false);
    }
}

fn flags_of(request: &sq::Request<'_>) -> u8 {
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    flag(request.wqe.imm.is_some(), HAS_IMM) | flag(request.wqe.solicited, SOLICITED)
}

/// How an operation on memory ended.
enum Access {
    Done,
    /// The target has to say what is wrong.
    Judge,
    Ended(Outcome),
}

/// Whether a queue pair permits an operation, as far as it tells.
fn permits(entry: &QpEntry, op: Op) -> bool {
    let access = entry.access.load(Ordering::Relaxed);
    let reads = entry.dest_rd_atomic.load(Ordering::Relaxed) > 0;
    match op {
        Op::Read => access & REMOTE_READ != 0 && reads,
        Op::CompareSwap | Op::FetchAdd => access & REMOTE_ATOMIC != 0 && reads,
        _ => access & REMOTE_WRITE != 0,
    }
}

/// # Safety
/// `at` and `local` are valid memory for the request; programs access it atomically
/// only.
unsafe fn access(at: *mut u8, local: &[Span], request: &sq::Request<'_>) -> Access {
    let wqe = &request.wqe;
    let there = [Span { ptr: at, len: request.len() as usize }];
    if wqe.op.is_atomic() {
        if !at.addr().is_multiple_of(8) || !wqe.remote_addr.is_multiple_of(8) {
            return Access::Judge;
        }
        // SAFETY: aligned, and the caller's promise.
        let word = unsafe { AtomicU64::from_ptr(at.cast()) };
        // AcqRel: an atomic is a synchronisation between whoever uses the word.
        let mut old = match wqe.op {
            Op::FetchAdd => word.fetch_add(wqe.compare_add, Ordering::AcqRel),
            _ => word
                .compare_exchange(wqe.compare_add, wqe.swap, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|seen| seen),
        };
        let old = Span { ptr: (&raw mut old).cast(), len: 8 };
        // SAFETY: the caller's promise.
        unsafe { copy_spans(local, &[old], Copying::Shared) };
        return Access::Done;
    }
    // SAFETY: the caller's promise.
    unsafe {
        match wqe.op {
            Op::Read => copy_spans(local, &there, Copying::Shared),
            _ => copy_spans(&there, local, Copying::Shared),
        }
    }
    Access::Done
}

impl Remote {
    /// What is only done when nothing before it waits for a reply.
    fn alone(&mut self, act: impl FnOnce(&mut Remote) -> Step) -> Step {
        if self.sent > 0 { Step::Later } else { act(self) }
    }

    /// The process at the other end, if it has been met.
    fn pair(&mut self, qp: &Qp) -> Option<Arc<Pair>> {
        let neighbours = qp.pd.context.device.neighbours.as_ref()?;
        let known = self.pair.as_ref().is_some_and(|pair| !pair.is_dead() || self.sent > 0);
        if !known {
            let found = neighbours.pair(self.slot);
            // A connection to a process that has died stays one to that.
            if self.pair.is_none() {
                self.pair = found;
            }
        }
        self.pair.clone()
    }

    /// The region that a request names and the offset in it, if it may be accessed so.
    fn region(
        &mut self,
        pair: &Pair,
        entry: &QpEntry,
        request: &sq::Request<'_>,
        len: u64,
    ) -> Option<(&Region, u64)> {
        let wqe = &request.wqe;
        let version = pair.theirs.version(wqe.rkey)?;
        let known =
            |(key, region): &(u32, Region)| *key == wqe.rkey && region.told.version == version;
        if !self.region.as_ref().is_some_and(known) {
            let told = pair.theirs.find(wqe.rkey)?;
            let window = pair.window(wqe.rkey, &told);
            self.region = Some((wqe.rkey, Region { told, window }));
        }
        let (_, region) = self.region.as_ref()?;
        let access = match wqe.op {
            Op::Read => REMOTE_READ,
            Op::CompareSwap | Op::FetchAdd => REMOTE_ATOMIC,
            _ => REMOTE_WRITE,
        };
        let allowed = region.told.access & access == access;
        let same_domain = region.told.pd == entry.pd.load(Ordering::Relaxed);
        if !allowed || !same_domain {
            return None;
        }
        region.told.offset(wqe.remote_addr, len).map(|offset| (region, offset))
    }
}

/// The writing side of a ring, locked once for a list; what was put is visible when it
/// is let go.
pub(super) struct Out<'a> {
    pub(super) pair: &'a Pair,
    held: Option<Guard<'a, Requests>>,
    any: bool,
}

impl<'a> Out<'a> {
    pub(super) fn new(pair: &'a Pair) -> Out<'a> {
        Out { pair, held: None, any: false }
    }

    /// Room for a request of queue pair `qpn`, and where its data go. Without any, it is
    /// called again when there is.
    fn room(&mut self, qpn: u32, len: u32) -> Option<u32> {
        self.look_for_room(len).or_else(|| {
            self.pair.block(qpn);
            // SeqCst: either we see what was read since, or the reader sees that we wait.
            fence(Ordering::SeqCst);
            self.look_for_room(len)
        })
    }

    fn look_for_room(&mut self, len: u32) -> Option<u32> {
        let pair = self.pair;
        let requests = self.held.get_or_insert_with(|| pair.requests.lock());
        let room = requests.room(&pair.incoming.requests_read, len);
        room.unwrap_or_else(|_broken| {
            pair.declare_dead();
            None
        })
    }

    /// Puts a request without data; whether there was room.
    fn put(&mut self, request: Request) -> bool {
        if self.room(request.from, 0).is_none() {
            return false;
        }
        if let Some(requests) = &mut self.held {
            requests.put(&self.pair.outgoing, request, None);
        }
        true
    }

    /// Puts a request and its data, which are `local` (and `sges` say where that is);
    /// whether there was room.
    pub(super) fn put_message(
        &mut self,
        mut request: Request,
        local: &[Span],
        sges: &[ibv_sge],
    ) -> bool {
        let len = request.len;
        if len as usize <= BODY {
            let body = Span { ptr: request.body.as_mut_ptr().cast(), len: BODY };
            // SAFETY: the pieces were checked; the body is ours.
            unsafe { copy_spans(&[body], local, Copying::Owned) };
            return self.put(request);
        }
        if u64::from(len) > COPIED {
            let list: Vec<ibv_sge> = sges.iter().copied().filter(|sge| sge.length > 0).collect();
            request.body[1] = list.len() as u64;
            return self.put_list(request, &list);
        }
        self.put_data(request, local)
    }

    /// Puts a request and its data, which go into the ring of data; whether there was
    /// room.
    pub(super) fn put_data(&mut self, mut request: Request, local: &[Span]) -> bool {
        let len = request.len;
        let Some(at) = self.room(request.from, len) else { return false };
        request.place = Place::Data;
        request.body[0] = (at % DATA).into();
        let to = Span { ptr: self.data(at), len: len as usize };
        // SAFETY: the pieces were checked; nobody reads there before it is published.
        unsafe { copy_spans(&[to], local, Copying::Owned) };
        if let Some(requests) = &mut self.held {
            requests.put(&self.pair.outgoing, request, Some((at, len)));
        }
        true
    }

    fn put_list(&mut self, mut request: Request, list: &[ibv_sge]) -> bool {
        let size = size_of_val(list) as u32;
        let Some(at) = self.room(request.from, size) else { return false };
        request.place = Place::Regions;
        request.body[0] = (at % DATA).into();
        // SAFETY: there is room for the list, and nobody reads there yet.
        unsafe {
            core::ptr::copy_nonoverlapping(list.as_ptr(), self.data(at).cast(), list.len());
        }
        if let Some(requests) = &mut self.held {
            requests.put(&self.pair.outgoing, request, Some((at, size)));
        }
        true
    }

    fn data(&self, at: u32) -> *mut u8 {
        // SAFETY: within the ring of data.
        unsafe { self.pair.outgoing.data().add((at % DATA) as usize) }
    }

    /// Publishes what was put and lets go of the ring.
    pub(super) fn release(&mut self) {
        if let Some(mut requests) = self.held.take() {
            self.any |= requests.publish(&self.pair.outgoing);
        }
        if core::mem::take(&mut self.any) {
            self.pair.wake();
        }
    }
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

impl Sq {
    /// The queue pair lets its peer go.
    pub(crate) fn part(&mut self) {
        if let Some(remote) = self.remote.take() {
            remote.wait_outside(self.requester.dest_qpn);
        }
    }
}
