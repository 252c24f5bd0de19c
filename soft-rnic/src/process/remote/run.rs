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
use super::super::ring::{BODY, Place, Request, Requests, SOLICITED, WANTS_REPLY, What};
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
            // SAFETY: a request of the caller's list.
            let request = unsafe { &*wr };
            // SAFETY: as above.
            if unsafe { self.message(pair, requests, &mut region, request) }.is_none() {
                break;
            }
            left -= 1;
            wr = request.next;
        }
        wr
    }

    /// Sends one message, if it is plain and short.
    ///
    /// # Safety
    /// The request is valid, and there is room for it in both queues.
    #[inline(always)]
    unsafe fn message(
        &mut self,
        pair: &Pair,
        requests: &mut Requests,
        region: &mut Held,
        request: &ibv_send_wr,
    ) -> Option<()> {
        let qp = self.qp;
        // SAFETY: the caller's promise.
        let sge = unsafe { plain(request) }.filter(|sge| sge.length as usize <= BODY)?;
        let len = sge.length;
        let position = self.requester.posted.wrapping_add(1);
        let wqe = Wqe::plain(request, qp.sig_all, position);
        let from = if wqe.inline {
            let from = core::ptr::with_exposed_provenance_mut(sge.addr as usize);
            (len <= qp.cap.max_inline_data).then_some(from)?
        } else {
            region.at(&qp.pd.context.device.mrs, qp.pd.id, sge, len, 0)?
        };
        let mut body = [0_u64; 4];
        // SAFETY: the piece was checked, or is the caller's inline data; the body is ours.
        unsafe { copy::owned(body.as_mut_ptr().cast(), from, len as usize) };
        let remote = &mut *self.remote;
        let sent = Request {
            what: What::Send,
            flags: WANTS_REPLY | if wqe.solicited { SOLICITED } else { 0 },
            place: Place::Body,
            incarnation: remote.incarnation,
            to: self.requester.dest_qpn,
            from: qp.num,
            generation: remote.generation,
            number: remote.next,
            imm: 0,
            len,
            body,
        };
        requests.put(&pair.outgoing, &sent, None);
        // SAFETY: inline data are no longer than they may be.
        unsafe { self.pending.push_one(wqe, sge) };
        remote.next = remote.next.wrapping_add(1);
        remote.sent += 1;
        (self.requester.posted, self.requester.started) = (position, true);
        Some(())
    }
}
