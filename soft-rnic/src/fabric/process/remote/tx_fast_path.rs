//! Runs of short plain messages: the fast path of [`RemoteLink`](super::RemoteLink).
//!
//! Most of what is posted are SENDs of a few bytes, in lists, when all that was posted
//! before has been sent. A run of those shares the locks, the looks at the state, at the
//! ring and at the regions; of the other checks none is left out. The first request that is
//! anything else, or that would fail, ends the run before anything of it was done.
//!
//! Instructions of a message of 16 bytes at both ends together, counted as those of the
//! [loopback's](crate::fabric::loopback::fast_path), with `SOFT_RNIC_APART=1`: 833 in lists of
//! 8 and 2,111 alone; 1,188 and 2,313 without this module; 882 in lists with one message in
//! each entry of the ring.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use verbs_sys::*;

use crate::memory::mr_table::HeldRegion;
use crate::memory::span::{BufferOwnership, Hold, MemSpan, copy_piece};
use crate::objects::state::{Qp, Sq};
use crate::peers::process::pair::ProcessPair;
use crate::peers::process::remote::RemotePeer;
use crate::peers::process::ring::{
    EntryOp, HALF, PayloadLocation, RequestWriter, RingRequest, SOLICITED, WANTS_REPLY,
};
use crate::queues::pending::PendingWqes;
use crate::queues::qp_state::{QpTransport, QueuePairState};
use crate::queues::requester::RequesterState;
use crate::queues::wqe::{Wqe, plain};

use super::super::out::OutRing;

/// Sends the short plain messages at the front of a list, and returns the first request that
/// was not sent. The send queue's lock is held.
///
/// # Safety
/// `wr` heads a list of valid requests.
#[inline(always)]
pub(crate) unsafe fn send_fast(
    qp: &Arc<Qp>,
    sq: &mut Sq,
    wr: *mut ibv_send_wr,
) -> *mut ibv_send_wr {
    // SAFETY: `wr` is NULL, or a valid request: this function's contract (see # Safety).
    match unsafe { wr.as_ref() } {
        // SAFETY: `wr` heads a list of valid requests: this function's contract (see # Safety).
        Some(first) if first.opcode == ibv_wr_opcode::IBV_WR_SEND => unsafe { send(qp, sq, wr) },
        _ => wr,
    }
}

/// # Safety
/// As [`send_fast`].
unsafe fn send(qp: &Arc<Qp>, sq: &mut Sq, wr: *mut ibv_send_wr) -> *mut ibv_send_wr {
    let Sq { requester, pending, remote, scratch, .. } = sq;
    let Some(remote) = remote.as_deref_mut() else { return wr };
    let may_send = qp.transport == QpTransport::Rc && qp.state() == QueuePairState::Rts;
    // What was posted before goes first.
    let is_next = remote.sent == pending.len() && requester.waits.is_none();
    if !may_send || !is_next || remote.generation == 0 {
        return wr;
    }
    // Lent, as in `hold`.
    let Some(pair) = remote.pair.take() else { return wr };
    // SAFETY: `wr` heads a list of valid requests: this function's contract (see # Safety).
    let rest = unsafe {
        TxFastPath { qp, requester, pending, remote }.go(&pair, scratch.local.hold(), wr)
    };
    remote.pair = Some(pair);
    rest
}

/// The state that the fast path changes.
struct TxFastPath<'r> {
    qp: &'r Qp,
    requester: &'r mut RequesterState,
    pending: &'r mut PendingWqes,
    remote: &'r mut RemotePeer,
}

impl TxFastPath<'_> {
    /// # Safety
    /// As [`send_fast`].
    unsafe fn go(
        &mut self,
        pair: &ProcessPair,
        hold: Hold<'_>,
        mut wr: *mut ibv_send_wr,
    ) -> *mut ibv_send_wr {
        if pair.is_dead() {
            return wr;
        }
        // Relaxed: a count that guards no memory.
        let used = self.requester.posted.wrapping_sub(self.qp.freed.load(Ordering::Relaxed));
        let mut out = OutRing::new(pair);
        let (requests, slots) = out.slots();
        let mut left = slots.min(self.qp.cap.max_send_wr.saturating_sub(used));
        let mut region = HeldRegion::new(hold);
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
        pair: &ProcessPair,
        requests: &mut RequestWriter,
        region: &mut HeldRegion<'_>,
        request: &ibv_send_wr,
        left: &mut u32,
    ) -> Option<*mut ibv_send_wr> {
        let (number, mut body) = (self.remote.next, [0_u64; 4]);
        // SAFETY: `request` is valid, and there is room for at least one (`left`): this function's
        // contract (see # Safety).
        let first = unsafe { self.message(region, request, &mut body) }?;
        let (mut rest, mut second) = (request.next, None);
        *left -= 1;
        if first.len <= HALF as u32 && *left > 0 {
            // SAFETY: NULL, or a request of the caller's list; there is room for another one.
            if let Some(next) = unsafe { rest.as_ref() }
                // SAFETY: `next` is a request of the caller's list, and `*left` is not 0.
                && let Some(sent) = unsafe { self.message(region, next, &mut body[2..]) }
            {
                (rest, second) = (next.next, Some(sent));
                *left -= 1;
            }
        }
        let mut sent = RingRequest {
            what: EntryOp::Send,
            flags: WANTS_REPLY | if first.solicited { SOLICITED } else { 0 },
            location: PayloadLocation::Body,
            incarnation: self.remote.incarnation,
            to: self.requester.dest_qpn,
            from: self.qp.num,
            generation: self.remote.generation,
            number,
            len: first.len,
            body,
            ..RingRequest::default()
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
        region: &mut HeldRegion<'_>,
        request: &ibv_send_wr,
        body: &mut [u64],
    ) -> Option<FastMessage> {
        let qp = self.qp;
        let most = size_of_val(body);
        // SAFETY: `request` is valid: this function's contract (see # Safety).
        let sge = unsafe { plain(request) }.filter(|sge| sge.length as usize <= most)?;
        let len = sge.length;
        let position = self.requester.posted.wrapping_add(1);
        let wqe = Wqe::plain(request, qp.sig_all, position);
        // SAFETY: `request` is valid (this function's contract), and `sge` is its only entry, which
        // `plain` has returned.
        let from = unsafe { region.plain_span(qp, request, sge) }?;
        let sent = FastMessage { len, solicited: wqe.solicited };
        // SAFETY: the piece was checked, or is the caller's inline data, and the device's until it
        // completes; the body is ours, and as long at least.
        unsafe {
            copy_piece(MemSpan::from_words(body), from, len as usize, BufferOwnership::Owned)
        };
        // SAFETY: inline data are no longer than they may be.
        unsafe { self.pending.push_one(wqe, sge) };
        self.remote.next = self.remote.next.wrapping_add(1);
        self.remote.sent += 1;
        (self.requester.posted, self.requester.started) = (position, true);
        Some(sent)
    }
}

/// A message that goes with its request.
struct FastMessage {
    len: u32,
    solicited: bool,
}
