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
//! A write with immediate is not: nothing is written before there is a receive request.

mod run;
mod straight;

use core::ffi::c_int;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use verbs_sys::*;

use crate::after::{After, Todo};
use crate::memory::{Copying, Span, copy_spans};
use crate::qp::{Qp, State, Transport};
use crate::requester::{Line, Outcome, SqParts};
use crate::responder::Reply;
use crate::sq::{self, Op, Pending, Sq, Wait};

use super::one_sided::{Access, Regions};
use super::out::{COPIED, Out};
use super::pair::Pair;
use super::ring::{
    DATA, HAS_IMM, JUDGE, Place, ReplyEntry, Request, SOLICITED, Verdict, WANTS_REPLY, What,
};
use super::slot_of;

pub(crate) use run::send_run;
pub(crate) use straight::access_run;

/// What a send queue knows of a peer in another process.
#[derive(Debug)]
pub(crate) struct Remote {
    slot: u32,
    pair: Option<Arc<Pair>>,
    /// The peer's, as we have seen it; 0 is "not looked yet".
    pub(super) generation: u32,
    /// The one that has carried out something for this connection, which then goes on
    /// with no other: it would not be at the PSN that comes next.
    bound: u32,
    /// How often this queue pair has been connected.
    incarnation: u8,
    /// The PSN of the first request.
    psn: u32,
    /// The number of the next message.
    next: u32,
    /// Requests from the head of the queue on that were sent.
    sent: u32,
    /// The peer's regions that were named.
    pub(super) regions: Regions,
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
            bound: 0,
            incarnation,
            psn: 0,
            next: 0,
            sent: 0,
            regions: Regions::default(),
        }
    }

    /// The queue pair begins to send, with this PSN.
    pub(crate) fn begin(&mut self, psn: u32) {
        self.psn = psn;
    }

    /// All that was sent and has no reply will be sent again, or is given up.
    pub(crate) fn go_back(&mut self) {
        self.next = self.next.wrapping_sub(self.sent);
        self.sent = 0;
        // Look again: it may be another one by now.
        self.generation = 0;
    }

    /// Waits until the peer's process reads no message any more where it lies: it has been
    /// told that the queue pair sends no more, and the program gets the memory back. Who
    /// does not go on within seconds is stopped, and cannot be waited for: false.
    pub(crate) fn reclaim(&self, pending: &Pending) -> bool {
        self.reclaim_from(self.pair.as_deref(), pending)
    }

    fn reclaim_from(&self, pair: Option<&Pair>, pending: &Pending) -> bool {
        let Some(pair) = pair else { return true };
        let is_read_there = |nth| {
            let request = pending.nth(nth);
            request.is_some_and(|request| request.wqe.takes_receive() && request.len() > COPIED)
        };
        let reads = || core::iter::once(&*pair.incoming.reads);
        !(0..self.sent).any(is_read_there) || super::wait_for(pair, reads()).is_ok()
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
        remote.look_up(self);
        // Lent, not shared: its count of owners lies where all threads of the process look.
        let pair = remote.pair.take();
        let mut out = pair.as_deref().map(Out::new);
        let network = &self.pd.context.device.network;
        let is_lossy = !self.transport.is_reliable() && network.is_faulty();
        while let Some(request) = pending.nth(remote.sent) {
            let state = self.state();
            if state.flushes_sends() {
                if let Some(out) = &mut out {
                    out.release();
                }
                // What has been completed can be seen meanwhile.
                after.append(core::mem::replace(&mut line, Line::new()).finish());
                let _ = remote.reclaim_from(pair.as_deref(), pending);
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
                }
                Step::Ended(outcome) => {
                    let len = request.len();
                    if !self.settle(&mut parts, &mut line, request.wqe, len, outcome) {
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
        remote.pair = pair;
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
        let wqe = request.wqe;
        let to = parts.requester.dest_qpn;
        if wqe.takes_receive() {
            return self.send(parts, remote, out, request);
        }
        remote.alone(|remote| match self.one_sided(parts, remote, out, line, request) {
            Access::Done => {
                remote.bound = remote.generation;
                Step::Ended(self.judge(parts.requester, Reply::Done, len))
            }
            Access::Judge => self.refer(remote, out, request, to),
            Access::Later => {
                line.after.push(Todo::Attach(Arc::clone(self)));
                Step::Later
            }
            Access::Ended(outcome) => Step::Ended(outcome),
        })
    }

    /// Sends a request into a network that may have lost it already; nothing waits for
    /// replies, and what is too long to be copied gets lost, too.
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
        let mut sent =
            Request { len: len as u32, ..self.request(remote, request, to, flags_of(request)) };
        let reply = match request.wqe.op {
            _ if !arrives || out.pair.is_dead() => Reply::Silence,
            _ if request.wqe.takes_receive() && len <= u64::from(DATA / 4) => {
                if out.put_data(&mut sent, parts.scratch.local.as_slice()) {
                    Reply::Done
                } else {
                    match self.await_room(parts.requester, out.pair) {
                        Outcome::Dropped => Reply::Silence,
                        waits => return waits,
                    }
                }
            }
            _ if request.wqe.takes_receive() => Reply::Silence,
            _ => match self.one_sided(parts, remote, out, line, request) {
                Access::Done => Reply::Done,
                // Lost, as it may be: the network is one that loses.
                Access::Judge | Access::Later => Reply::Silence,
                Access::Ended(outcome) => return outcome,
            },
        };
        self.judge(parts.requester, reply, len)
    }

    /// A late message arrives at another process. False if it does not; a plain write has
    /// no memory to go to any more.
    pub(crate) fn arrive_abroad(&self, sq: &mut Sq, wqe: &sq::Wqe, payload: &[Span]) -> bool {
        let to = sq.requester.dest_qpn;
        let Some(remote) = sq.remote.as_deref_mut() else { return false };
        remote.look_up(self);
        let pair = remote.pair.clone();
        let Some(pair) = pair.filter(|pair| !pair.is_dead()) else { return false };
        let len: usize = payload.iter().map(|span| span.len).sum();
        let request = sq::Request { wqe, sges: &[], to: None };
        let flags = flags_of(&request);
        let mut sent = Request { len: len as u32, ..self.request(remote, &request, to, flags) };
        let fits = len <= DATA as usize / 4;
        wqe.takes_receive() && fits && Out::new(&pair).put_data(&mut sent, payload)
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
    pub(super) fn lost(&self, parts: &mut SqParts<'_>, len: u64) -> Outcome {
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
        let is_another = remote.bound != 0 && generation != remote.bound;
        if self.transport.is_reliable() && (!expected || is_another) {
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
        let mut sent = Request { len: len as u32, ..self.request(remote, request, to, flags) };
        // Inline data lie in the queue, which the peer cannot read: they are copied, however
        // many they are.
        let regions = (!request.wqe.inline).then_some(request.sges);
        if !out.put_message(&mut sent, parts.scratch.local.as_slice(), regions) {
            return Step::Later;
        }
        if waits {
            return Step::Sent;
        }
        Step::Ended(self.judge(parts.requester, Reply::Done, len))
    }

    /// Leaves it to the peer to say what is wrong with an operation on memory, or to carry
    /// out an atomic that cannot be carried out here.
    fn refer(
        &self,
        remote: &Remote,
        out: &mut Out<'_>,
        request: &sq::Request<'_>,
        to: u32,
    ) -> Step {
        let wqe = request.wqe;
        let flags = flags_of(request) | WANTS_REPLY | JUDGE;
        let body = [wqe.remote_addr, wqe.compare_add, wqe.swap, wqe.rkey.into()];
        let len = request.len() as u32;
        let sent = Request { body, len, ..self.request(remote, request, to, flags) };
        if out.put(&sent) { Step::Sent } else { Step::Later }
    }

    #[inline(always)]
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
            // Of a write with immediate; what else has no data sets its own.
            body: [0, 0, request.wqe.remote_addr, request.wqe.rkey.into()],
            ..Request::default()
        }
    }

    /// A reply has come. False if the queue pair cannot take it now.
    pub(crate) fn replied(
        self: &Arc<Qp>,
        from: u32,
        reply: &ReplyEntry,
        after: &mut After,
    ) -> bool {
        let Some(mut guard) = self.sq_unless_away() else { return false };
        self.take_reply(&mut guard, from, reply, after);
        true
    }

    fn take_reply(
        self: &Arc<Qp>,
        guard: &mut Sq,
        from: u32,
        reply: &ReplyEntry,
        after: &mut After,
    ) {
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
            Verdict::Done => {
                remote.bound = remote.generation;
                (nth + 1, None)
            }
            // What was done before it has been said. So this is about something that was
            // sent before we went back, and behind what made us.
            _ if nth > 0 => return,
            verdict => (0, Some(verdict)),
        };
        let short = remote.retire_sends(self, &mut parts, pending, &mut line, before);
        for _ in short..before {
            let Some(request) = pending.front() else { return };
            let (wqe, len) = (request.wqe, request.len());
            remote.sent -= 1;
            if wqe.op.is_atomic() {
                self.land(&mut parts, &request, reply.value);
            }
            let outcome = self.judge(parts.requester, Reply::Done, len);
            self.settle(&mut parts, &mut line, wqe, len, outcome);
            pending.pop();
        }
        if let Some(verdict) = verdict
            && let Some(request) = pending.front()
        {
            let (wqe, len) = (request.wqe, request.len());
            self.answered(&mut parts, remote, verdict, wqe, len, &mut line);
            // An unreliable transport takes any answer for success.
            let ends = !self.transport.is_reliable() || matches!(verdict, Verdict::Refused(_));
            if ends || self.state().flushes_sends() {
                pending.pop();
            }
        }
        parts.requester.started |= remote.sent > 0;
        let goes_on = remote.sent < pending.len();
        after.append(line.finish());
        // Mostly all was sent.
        if goes_on || guard.draining {
            self.run_foreign(guard, after, false);
        }
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
            Verdict::Refused(status) => Reply::Refused(status),
            _ => Reply::Silence,
        };
        if self.transport.is_reliable() {
            remote.go_back();
        } else {
            remote.sent -= 1;
        }
        if verdict == Verdict::Again && self.transport.is_reliable() {
            return;
        }
        let outcome = match self.judge(parts.requester, reply, len) {
            // The other process has counted it.
            Outcome::Dropped => Outcome::Done,
            outcome => outcome,
        };
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
        // Who is away waits for no reply, and finds out when he is back.
        let Some(mut sq) = self.sq_unless_away() else { return };
        let Sq { remote, pending, .. } = &mut *sq;
        let Some(remote) = remote.as_deref_mut() else { return };
        if !remote.pair.as_ref().is_some_and(|known| Arc::ptr_eq(known, pair)) {
            return;
        }
        let _ = remote.reclaim(pending);
        remote.go_back();
        // Its memory is kept as long as it is mapped.
        remote.regions.clear();
        sq.requester.waits = None;
        self.run_pending(&mut sq, after, false);
    }
}

fn flags_of(request: &sq::Request<'_>) -> u8 {
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    flag(request.wqe.imm.is_some(), HAS_IMM) | flag(request.wqe.solicited, SOLICITED)
}

impl Remote {
    /// What is only done when nothing before it waits for a reply.
    fn alone(&mut self, act: impl FnOnce(&mut Remote) -> Step) -> Step {
        if self.sent > 0 { Step::Later } else { act(self) }
    }

    /// Finds the process at the other end, if it has been met.
    fn look_up(&mut self, qp: &Qp) {
        let Some(neighbours) = &qp.pd.context.device.neighbours else { return };
        let known = self.pair.as_ref().is_some_and(|pair| !pair.is_dead() || self.sent > 0);
        if !known {
            let found = neighbours.pair(self.slot);
            // A connection to a process that has died stays one to that.
            if self.pair.is_none() {
                self.pair = found;
            }
        }
    }
}

impl Sq {
    /// The queue pair lets its peer go, and waits until nobody in the peer's process is inside
    /// this one's memory for it; `EBUSY` if somebody stays.
    pub(crate) fn part(&mut self, qp: &Qp) -> Result<(), c_int> {
        let neighbours = qp.pd.context.device.neighbours.as_ref();
        let (Some(remote), Some(neighbours)) = (self.remote.take(), neighbours) else {
            return Ok(());
        };
        let _ = remote.reclaim(&self.pending);
        if qp.transport == Transport::Uc {
            // It takes up with anybody.
            return neighbours.wait_outside();
        }
        // It may have been met since, or declared dead.
        let to = self.requester.dest_qpn;
        let pairs = remote.pair.into_iter().chain(neighbours.all_in(remote.slot));
        pairs.into_iter().try_for_each(|pair| {
            super::wait_for(&pair, core::iter::once(pair.theirs.qp(to).inside()))
        })
    }
}
