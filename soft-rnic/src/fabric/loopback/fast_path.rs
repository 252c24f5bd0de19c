//! Runs of plain messages: the fast path through the step function.
//!
//! Most of what is posted are SENDs of one piece of memory to a peer whose oldest
//! receive request has one buffer, in lists. A run of those shares the locks, the
//! looks at the indices of rings, at the state and at the regions; of the other
//! checks none is left out. The first request that is anything else, or that
//! would fail, ends the run before anything of it was done: the slow path decides
//! what becomes of it.
//!
//! Instructions of a message of 16 bytes, from its post to the repost of its receive request,
//! within one thread (`soft-rnic/examples/instructions.sh`, its own loop among them): 388 in lists
//! of 8 and 782 alone, and 802 and 991 without this module. In time, by the raw loop
//! (`verbs_safe::baseline`, lists of 8): 21 ns instead of 46, and 50 instead of 73 between two
//! threads.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use verbs_sys::*;

use crate::counters::Counters;
use crate::engine::execution::{Execution, SqParts, packets};
use crate::engine::responder::ResponderSession;
use crate::engine::responder::run::MessageRun;
use crate::memory::mr_table::HeldRegion;
use crate::memory::span::{BufferOwnership, copy_piece};
use crate::objects::state::Qp;
use crate::queues::requester::RequesterState;
use crate::queues::wqe::{Wqe, plain};

/// Executes the plain messages at the front of a list, and returns the first
/// request that was not executed. The queue pair may send, and nothing waits
/// before the list.
///
/// # Safety
/// `wr` heads a list of valid requests.
#[inline]
pub(crate) unsafe fn run<'a>(
    qp: &'a Arc<Qp>,
    parts: &mut SqParts<'_>,
    session: &mut ResponderSession<'a>,
    execution: &mut Execution<'a>,
    mut wr: *mut ibv_send_wr,
) -> *mut ibv_send_wr {
    // SAFETY: `wr` is NULL, or a valid request: this function's contract (see # Safety).
    if unsafe { wr.as_ref() }.is_none_or(|wr| wr.opcode != ibv_wr_opcode::IBV_WR_SEND) {
        return wr;
    }
    let SqParts { requester, counters, scratch } = parts;
    let hold = scratch.remote.hold();
    let mut regions = [HeldRegion::new(hold), HeldRegion::new(hold)];
    while !wr.is_null() && session.expects(qp.num, requester.psn) {
        // SAFETY: `wr` is not NULL, and heads the rest of a list of valid requests: this function's
        // contract (see # Safety).
        let (rest, signaled) =
            unsafe { stretch(qp, requester, counters, session, execution, &mut regions, wr) };
        if rest == wr {
            break;
        }
        wr = rest;
        if let Some((last, len)) = signaled {
            let wqe = Wqe::plain(last, true, requester.posted);
            qp.complete(execution, &wqe, len.into(), None);
        }
    }
    wr
}

/// Executes messages up to one that is signalled; returns the request that is next, and the
/// signalled one with its length. `regions` are the two that were used last, of the source and of
/// the target.
///
/// Not inlined: as a part of the post, it runs short of registers, and a message in a list of 8
/// takes 512 instructions instead of 503.
///
/// # Safety
/// As [`run`].
#[inline(never)]
unsafe fn stretch<'a, 'w>(
    qp: &'a Arc<Qp>,
    requester: &mut RequesterState,
    counters: &mut Counters,
    session: &mut ResponderSession<'a>,
    execution: &mut Execution<'a>,
    [source, target]: &mut [HeldRegion<'_>; 2],
    mut wr: *mut ibv_send_wr,
) -> (*mut ibv_send_wr, Option<(&'w ibv_send_wr, u32)>) {
    // Relaxed: a count that guards no memory.
    let used = requester.posted.wrapping_sub(qp.freed.load(Ordering::Relaxed));
    let slots = qp.cap.max_send_wr.saturating_sub(used);
    let ResponderSession { peer, responder } = session;
    let (consumer, writer, mut taker) = (&mut responder.consumer, &mut execution.writer, None);
    let mut run = MessageRun::open(peer, consumer, qp.num, slots, writer, &mut taker, target);
    let (mut done, mut bytes, mut n_packets, mut signaled) = (0, 0, 0, None);
    while run.left() > 0 && !wr.is_null() {
        // SAFETY: a request of the caller's list.
        let request = unsafe { &*wr };
        // SAFETY: `request` is of the caller's list; a receive request is there, because
        // `run.left()` is not 0.
        let Some(len) = (unsafe { message(qp, source, &mut run, request) }) else { break };
        bytes += u64::from(len);
        n_packets += packets(len.into(), requester.mtu_shift);
        done += 1;
        wr = request.next;
        if qp.sig_all || request.send_flags & ibv_send_flags::IBV_SEND_SIGNALED.0 != 0 {
            signaled = Some((request, len));
            break;
        }
    }
    counters.requests += u64::from(done);
    counters.bytes += bytes;
    requester.posted = requester.posted.wrapping_add(done);
    requester.psn = requester.psn.wrapping_add(n_packets) & 0x00ff_ffff;
    responder.psn = requester.psn;
    (wr, signaled)
}

/// Executes one message, if it is plain; returns its length.
///
/// # Safety
/// The request is valid; a receive request is left.
#[inline(always)]
unsafe fn message(
    qp: &Qp,
    source: &mut HeldRegion<'_>,
    run: &mut MessageRun<'_, '_>,
    request: &ibv_send_wr,
) -> Option<u32> {
    // SAFETY: `request` is valid: this function's contract (see # Safety).
    let sge = unsafe { plain(request) }?;
    let len = sge.length;
    // SAFETY: a receive request is left, and `request` is valid (this function's contract); `sge`
    // is its only entry, which `plain` has returned.
    let ((wr_id, to), from) = unsafe { (run.begin(len)?, source.plain_span(qp, request, sge)?) };
    // SAFETY: both were checked; the buffers of sends and receives are the
    // device's while they are posted.
    unsafe { copy_piece(to, from, len as usize, BufferOwnership::Owned) };
    let solicited = request.send_flags & ibv_send_flags::IBV_SEND_SOLICITED.0 != 0;
    run.finish(wr_id, len, solicited);
    Some(len)
}
