//! The requester: the one step function that executes a work request, and what
//! follows from how it ended.
//!
//! ```text
//!   post ──> execute ──> Done ─────────────> completion, if signalled
//!               ▲  │
//!               │  ├───> Failed(status) ───> completion, error state, flush
//!               │  │
//!        deadline  └───> Blocked(wait) ────> stays at the head, all behind it wait
//!               └─────────────┘
//! ```

use std::sync::Arc;

use verbs_sys::*;

use crate::after::{After, Todo};
use crate::cq::{Completion, CqWriter};
use crate::limits;
use crate::memory::{Span, Spans, populate, resolve, resolve_one};
use crate::mr::{LOCAL_WRITE, ON_DEMAND};
use crate::qp::{Qp, State, Transport};
use crate::responder::{Message, Reply, Session};
use crate::sq::{Op, Request, Requester, Sq, Wait, Wqe};
use crate::timer::{response_timeout_ns, rnr_timer_ns};

/// How an execution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// Done as far as the requester can know: an unreliable transport's message
    /// that nobody took.
    Dropped,
    Failed(ibv_wc_status),
    /// It cannot go on now: the reason, and for how long (for ever, if `None`).
    Blocked(Wait, Option<u64>),
}

/// What the requests of one list share. (The [`Session`] with the peer is apart,
/// so that it stays in registers: read back from the stack it waited for the
/// stores of the message before, which halved the rate between two threads.)
pub(crate) struct Line<'a> {
    pub(crate) writer: CqWriter<'a>,
    pub(crate) after: After,
}

impl Line<'_> {
    pub(crate) fn new() -> Self {
        Line { writer: CqWriter::default(), after: After::default() }
    }

    /// Lets go of the locks; what is left to do is the caller's.
    #[inline]
    pub(crate) fn finish(mut self) -> After {
        core::mem::take(&mut self.after)
    }
}

impl Qp {
    /// Looks the peer up, if that has not been done or it is gone.
    #[inline]
    pub(crate) fn resolve_peer(&self, sq: &mut Sq) {
        let stale = sq.peer.as_ref().is_none_or(|peer| peer.state() == State::Destroyed);
        if stale {
            let qps = &self.pd.context.device.qps;
            let found = sq.requester.reaches_us.then(|| qps.get(sq.requester.dest_qpn)).flatten();
            // Packets of another transport than a queue pair's are dropped.
            sq.peer = found.filter(|peer| peer.transport == self.transport);
        }
    }

    /// Executes one work request.
    #[inline(always)]
    pub(crate) fn execute<'a>(
        &self,
        requester: &mut Requester,
        session: &mut Option<Session<'a>>,
        line: &mut Line<'a>,
        scratch: &mut Scratch,
        request: &Request<'_>,
    ) -> Outcome {
        let len = request.len();
        if let Err(status) = self.local(requester, request, len, &mut scratch.local) {
            return Outcome::Failed(status);
        }
        let reply = match session {
            None => Reply::Silence,
            Some(session) => {
                let message = Message {
                    wqe: request.wqe,
                    from_qpn: self.num,
                    psn: requester.psn,
                    packets: packets(len, requester.mtu_shift),
                    len,
                    local: scratch.local.as_slice(),
                    on_demand: scratch.local.on_demand,
                };
                session.deliver(&message, &mut scratch.remote, &mut line.writer, &mut line.after)
            }
        };
        requester.started = true;
        self.judge(requester, reply, len)
    }

    /// What a reply means.
    #[inline]
    pub(crate) fn judge(&self, requester: &mut Requester, reply: Reply, len: u64) -> Outcome {
        match reply {
            Reply::Done => {
                requester.advance_psn(packets(len, requester.mtu_shift));
                Outcome::Done
            }
            _ if !self.transport.is_reliable() => {
                requester.advance_psn(packets(len, requester.mtu_shift));
                Outcome::Dropped
            }
            Reply::Refused(status) => Outcome::Failed(status),
            Reply::Silence => {
                Outcome::Blocked(Wait::Response, response_timeout_ns(requester.timeout))
            }
            Reply::Rnr(timer) => rnr_nak(requester, timer),
        }
    }

    /// The requester's own memory for a request, or the status with which it fails
    /// before anything is sent.
    #[inline(always)]
    pub(crate) fn local(
        &self,
        requester: &Requester,
        request: &Request<'_>,
        len: u64,
        spans: &mut Spans,
    ) -> Result<(), ibv_wc_status> {
        let wqe = request.wqe;
        if len > limits::MAX_MESSAGE || (wqe.op.is_atomic() && len != 8) {
            return Err(ibv_wc_status::IBV_WC_LOC_LEN_ERR);
        }
        if wqe.op.is_response() && requester.max_rd_atomic == 0 {
            return Err(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR);
        }
        if wqe.inline {
            inline_spans(request.sges, spans);
            return Ok(());
        }
        let access = if wqe.op.is_response() { LOCAL_WRITE } else { 0 };
        let mrs = &self.pd.context.device.mrs;
        let found = match request.sges {
            [sge] => resolve_one(mrs, self.pd.id, *sge, len, access, spans),
            list => resolve(mrs, self.pd.id, list.iter().copied(), len, access, spans),
        };
        match found {
            Some(()) => Ok(()),
            None => self.on_demand(request, len, spans),
        }
    }

    /// Memory that may have gone is for what a READ brings, and for nothing else.
    #[cold]
    fn on_demand(
        &self,
        request: &Request<'_>,
        len: u64,
        spans: &mut Spans,
    ) -> Result<(), ibv_wc_status> {
        let (mrs, access) = (&self.pd.context.device.mrs, LOCAL_WRITE | ON_DEMAND);
        let list = request.sges.iter().copied();
        let found = resolve(mrs, self.pd.id, list, len, access, spans);
        spans.on_demand = true;
        populate(spans.as_slice());
        found.filter(|()| request.wqe.op == Op::Read).ok_or(ibv_wc_status::IBV_WC_LOC_PROT_ERR)
    }

    /// Goes on after an execution: completes the request, or lets it wait.
    /// Whether the next request may be tried.
    #[inline]
    pub(crate) fn settle<'a>(
        self: &'a Arc<Qp>,
        sq: &mut SqParts<'_>,
        line: &mut Line<'a>,
        wqe: &Wqe,
        len: u64,
        outcome: Outcome,
    ) -> bool {
        match outcome {
            Outcome::Done | Outcome::Dropped => {
                sq.counters.requests += 1;
                sq.counters.dropped += u64::from(outcome == Outcome::Dropped);
                sq.counters.bytes += len;
                sq.requester.next_request();
                if wqe.signaled {
                    self.complete(line, wqe, len, ibv_wc_status::IBV_WC_SUCCESS);
                }
                true
            }
            Outcome::Failed(status) => {
                sq.counters.requests += 1;
                if status == ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR {
                    sq.counters.rnr_naks += 1;
                }
                sq.requester.next_request();
                self.fail(line, wqe, status);
                true
            }
            Outcome::Blocked(wait, delay) => {
                if wait == Wait::Rnr {
                    sq.counters.rnr_naks += 1;
                }
                let token = self.pd.context.device.arm(self.num, delay);
                sq.requester.waits = Some((wait, token));
                false
            }
        }
    }

    /// Completes a request of the send queue.
    #[inline]
    pub(crate) fn complete<'a>(
        self: &'a Arc<Qp>,
        line: &mut Line<'a>,
        wqe: &Wqe,
        len: u64,
        status: ibv_wc_status,
    ) {
        let completion = Completion {
            wr_id: wqe.wr_id,
            status,
            opcode: wqe.op.wc_opcode(),
            byte_len: len as u32,
            imm: 0,
            flags: 0,
            qp_num: self.num,
            src_qp: 0,
            solicited: false,
        };
        let owner = Some((&**self, wqe.position));
        line.writer.push(&self.send_cq, &completion, owner, &mut line.after);
    }

    /// Completes a request in error; the queue pair goes to the error state, or its
    /// send queue does.
    #[cold]
    pub(crate) fn fail<'a>(
        self: &'a Arc<Qp>,
        line: &mut Line<'a>,
        wqe: &Wqe,
        status: ibv_wc_status,
    ) {
        self.complete(line, wqe, 0, status);
        self.enter_send_error();
        line.after.push(Todo::Flush(Arc::clone(self)));
    }

    /// Executes what is pending, oldest first, until something blocks or, with
    /// `only_one`, one request has been tried. The send queue's lock is held.
    pub(crate) fn run_pending(self: &Arc<Qp>, sq: &mut Sq, after: &mut After, only_one: bool) {
        if let Some(distance) = self.pd.context.device.distance() {
            return self.run_distant(sq, distance.now(), after);
        }
        self.run_arrived(sq, after, only_one);
    }

    /// [`run_pending`](Self::run_pending), whatever the time.
    pub(crate) fn run_arrived(self: &Arc<Qp>, sq: &mut Sq, after: &mut After, only_one: bool) {
        if !self.transport.is_reliable() && self.pd.context.device.network.is_faulty() {
            return self.run_faulty(sq, after, only_one);
        }
        self.run_queue(sq, after, only_one);
    }

    /// [`run_pending`](Self::run_pending) on a network without faults.
    pub(crate) fn run_queue(self: &Arc<Qp>, sq: &mut Sq, after: &mut After, only_one: bool) {
        match self.transport {
            Transport::Rc | Transport::Uc => self.run_connected(sq, after, only_one),
            Transport::Ud => self.run_datagrams(sq, after, only_one),
        }
    }

    fn run_connected(self: &Arc<Qp>, sq: &mut Sq, after: &mut After, only_one: bool) {
        if sq.remote.is_some() {
            return self.run_foreign(sq, after, only_one);
        }
        self.resolve_peer(sq);
        let Sq { requester, pending, peer, counters, scratch, .. } = sq;
        let mut session = peer.as_ref().map(Session::open);
        let mut line = Line::new();
        let mut parts = SqParts { requester, counters, scratch };
        while let Some(request) = pending.front() {
            let state = self.state();
            if state.flushes_sends() {
                self.complete(&mut line, request.wqe, 0, ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
                pending.pop();
                continue;
            }
            let may_run = state == State::Rts || (state == State::Sqd && parts.requester.started);
            if !may_run || parts.requester.waits.is_some() {
                break;
            }
            let outcome = if self.transport.is_reliable() {
                crate::sim::execute(self, &mut parts, &mut session, &mut line, &request)
            } else {
                self.send_unreliably(&mut parts, &request, None, |parts, arrives| {
                    let session = if arrives { &mut session } else { &mut None };
                    self.execute(parts.requester, session, &mut line, parts.scratch, &request)
                })
            };
            if !self.settle(&mut parts, &mut line, request.wqe, request.len(), outcome) {
                break;
            }
            pending.pop();
            if only_one {
                break;
            }
        }
        after.append(line.finish());
        drop(session);
        self.check_drained(sq);
    }
}

/// The parts of a send queue that an execution changes, apart from its requests.
pub(crate) struct SqParts<'a> {
    pub(crate) requester: &'a mut Requester,
    pub(crate) counters: &'a mut crate::counters::Counters,
    pub(crate) scratch: &'a mut Scratch,
}

/// Where the pieces of a request's buffers are put together. It stays in one
/// place: half a kilobyte is too much to move for a message of 16 bytes.
pub(crate) struct Scratch {
    /// The requester's.
    pub(crate) local: Spans,
    /// Those of the receive request that takes it.
    pub(crate) remote: Spans,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch { local: Spans::new(), remote: Spans::new() }
    }
}

/// Packets of a message, at least one.
#[inline]
pub(crate) fn packets(len: u64, mtu_shift: u32) -> u32 {
    (len.saturating_sub(1) >> mtu_shift) as u32 + 1
}

/// A receiver that was not ready: try again later, if retries are left (7 is for
/// ever).
#[cold]
pub(crate) fn rnr_nak(requester: &mut Requester, timer: u8) -> Outcome {
    const FOR_EVER: u8 = 7;
    if requester.rnr_retry != FOR_EVER {
        if requester.rnr_left == 0 {
            return Outcome::Failed(ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR);
        }
        requester.rnr_left -= 1;
    }
    Outcome::Blocked(Wait::Rnr, Some(rnr_timer_ns(timer)))
}

/// Inline data lie where the entries say, in this process.
#[inline]
fn inline_spans(sges: &[ibv_sge], spans: &mut Spans) {
    spans.clear();
    if let [ibv_sge { addr, length: length @ 1.., .. }] = *sges {
        let ptr = core::ptr::with_exposed_provenance_mut(addr as usize);
        return spans.push(Span { ptr, len: length as usize });
    }
    for sge in sges.iter().filter(|sge| sge.length > 0) {
        let ptr = core::ptr::with_exposed_provenance_mut(sge.addr as usize);
        spans.push(Span { ptr, len: sge.length as usize });
    }
}
