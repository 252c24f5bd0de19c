//! Runs of short plain messages: the short way of [`run_foreign`](Qp::run_foreign).
//!
//! Most of what is posted are SENDs of a few bytes, in lists, when all that was posted
//! before has been sent. A run of those shares the locks, the looks at the state, at the
//! ring and at the regions; of the other checks none is left out. The first request that is
//! anything else, or that would fail, ends the run before anything of it was done.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use verbs_sys::*;

use crate::burst::{Held, plain};
use crate::copy;
use crate::qp::{Qp, State, Transport};
use crate::requester::{Line, SqParts, packets};
use crate::sq::{Op, Pending, Requester, Sq, Wqe};

use super::super::out::Out;
use super::super::pair::Pair;
use super::super::ring::{HALF, Place, Request, Requests, SOLICITED, WANTS_REPLY, What};
use super::Remote;

/// Sends the short plain messages at the front of a list, and returns the first request that
/// was not sent. The send queue's lock is held.
///
/// # Safety
/// `wr` heads a list of valid requests.
pub(crate) unsafe fn send_run(qp: &Arc<Qp>, sq: &mut Sq, wr: *mut ibv_send_wr) -> *mut ibv_send_wr {
    let Sq { requester, pending, remote, .. } = sq;
    let Some(remote) = remote.as_deref_mut() else { return wr };
    let may_send = qp.transport == Transport::Rc && qp.state() == State::Rts;
    // What was posted before goes first.
    let is_next = remote.sent == pending.len() && requester.waits.is_none();
    if !may_send || !is_next || remote.generation == 0 {
        return wr;
    }
    // Lent, as in `run_foreign`.
    let Some(pair) = remote.pair.take() else { return wr };
    // SAFETY: the caller's promise.
    let rest = unsafe { Run { qp, requester, pending, remote }.go(&pair, wr) };
    remote.pair = Some(pair);
    rest
}

impl Remote {
    /// Retires the SENDs at the head of the queue, at most `most`, which are done; how many
    /// there were.
    #[inline]
    pub(super) fn retire_sends<'a>(
        &mut self,
        qp: &'a Arc<Qp>,
        parts: &mut SqParts<'_>,
        pending: &mut Pending,
        line: &mut Line<'a>,
        most: u32,
    ) -> u32 {
        let (mut done, mut psn) = (0, 0);
        while done < most
            && let Some(request) = pending.front()
            && request.wqe.op == Op::Send
        {
            let len = request.len();
            psn += packets(len, parts.requester.mtu_shift);
            parts.counters.bytes += len;
            if request.wqe.signaled {
                qp.complete(line, request.wqe, len, ibv_wc_status::IBV_WC_SUCCESS);
            }
            pending.pop();
            done += 1;
        }
        if done > 0 {
            parts.counters.requests += u64::from(done);
            parts.requester.advance_psn(psn);
            parts.requester.next_request();
            self.sent -= done;
        }
        done
    }
}

/// What a run changes.
struct Run<'r> {
    qp: &'r Qp,
    requester: &'r mut Requester,
    pending: &'r mut Pending,
    remote: &'r mut Remote,
}

impl Run<'_> {
    /// # Safety
    /// As [`send_run`].
    unsafe fn go(&mut self, pair: &Pair, mut wr: *mut ibv_send_wr) -> *mut ibv_send_wr {
        if pair.is_dead() {
            return wr;
        }
        // Relaxed: a count that guards no memory.
        let used = self.requester.posted.wrapping_sub(self.qp.freed.load(Ordering::Relaxed));
        let mut out = Out::new(pair);
        let (requests, slots) = out.slots();
        let mut left = slots.min(self.qp.cap.max_send_wr.saturating_sub(used));
        let mut region = Held::default();
        while left > 0 && !wr.is_null() {
            // SAFETY: requests of the caller's list, for which there is room.
            let Some(rest) = (unsafe { self.entry(pair, requests, &mut region, &*wr, &mut left) })
            else {
                break;
            };
            wr = rest;
        }
        wr
    }

    /// Sends one message, if it is plain and short, and the next one in the same entry, if
    /// that holds both. Returns the request behind them; `left` is how many there is room for.
    ///
    /// # Safety
    /// The request heads a list of valid ones, and there is room for `left`, at least one, in
    /// both queues.
    #[inline(always)]
    unsafe fn entry(
        &mut self,
        pair: &Pair,
        requests: &mut Requests,
        region: &mut Held,
        request: &ibv_send_wr,
        left: &mut u32,
    ) -> Option<*mut ibv_send_wr> {
        let (number, mut body) = (self.remote.next, [0_u64; 4]);
        // SAFETY: the caller's promise.
        let first = unsafe { self.message(region, request, &mut body) }?;
        let (mut rest, mut second) = (request.next, None);
        *left -= 1;
        if first.len <= HALF as u32 && *left > 0 {
            // SAFETY: NULL, or a request of the caller's list; there is room for another one.
            if let Some(next) = unsafe { rest.as_ref() }
                // SAFETY: as above.
                && let Some(sent) = unsafe { self.message(region, next, &mut body[2..]) }
            {
                (rest, second) = (next.next, Some(sent));
                *left -= 1;
            }
        }
        let mut sent = Request {
            what: What::Send,
            flags: WANTS_REPLY | if first.solicited { SOLICITED } else { 0 },
            place: Place::Body,
            incarnation: self.remote.incarnation,
            to: self.requester.dest_qpn,
            from: self.qp.num,
            generation: self.remote.generation,
            number,
            len: first.len,
            body,
            ..Request::default()
        };
        if let Some(second) = second {
            sent.join(second.len, second.solicited);
        }
        requests.put(&pair.outgoing, &sent, None);
        Some(rest)
    }

    /// Takes one message, if it is plain and short enough for the body, into which it is
    /// copied: it has been sent when the caller has put that into the ring.
    ///
    /// # Safety
    /// The request is valid, and there is room for it in the send queue.
    #[inline(always)]
    unsafe fn message(
        &mut self,
        region: &mut Held,
        request: &ibv_send_wr,
        body: &mut [u64],
    ) -> Option<Sent> {
        let qp = self.qp;
        let most = size_of_val(body);
        // SAFETY: the caller's promise.
        let sge = unsafe { plain(request) }.filter(|sge| sge.length as usize <= most)?;
        let len = sge.length;
        let position = self.requester.posted.wrapping_add(1);
        let wqe = Wqe::plain(request, qp.sig_all, position);
        let from = if wqe.inline {
            let from = core::ptr::with_exposed_provenance_mut(sge.addr as usize);
            (len <= qp.cap.max_inline_data).then_some(from)?
        } else {
            region.at(&qp.pd.context.device.mrs, qp.pd.id, sge, len, 0)?
        };
        let sent = Sent { len, solicited: wqe.solicited };
        // SAFETY: the piece was checked, or is the caller's inline data; the body is ours, and
        // as long at least.
        unsafe { copy::owned(body.as_mut_ptr().cast(), from, len as usize) };
        // SAFETY: inline data are no longer than they may be.
        unsafe { self.pending.push_one(wqe, sge) };
        self.remote.next = self.remote.next.wrapping_add(1);
        self.remote.sent += 1;
        (self.requester.posted, self.requester.started) = (position, true);
        Some(sent)
    }
}

/// A message that goes with its request.
struct Sent {
    len: u32,
    solicited: bool,
}
