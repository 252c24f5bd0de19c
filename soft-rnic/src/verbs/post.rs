//! Posting: the data path's entry.

mod receive;

use core::ffi::c_int;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::engine::admit::{admit, admit_any};
use crate::engine::execution::{Execution, SqParts};
use crate::engine::link::{SendAttempt, SqLink};
use crate::engine::responder::ResponderSession;
use crate::errno;
use crate::fabric::loopback::{InProcess, fast_path};
use crate::fabric::process::remote::{RemoteLink, tx_fast_path};
use crate::lock::Guard;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::in_arc::InArc;
use crate::objects::state::{Qp, Sq};
use crate::queues::address::DatagramAddress;
use crate::queues::pending::PendingWqes;
use crate::queues::qp_state::{QpTransport, QueuePairState};
use crate::queues::requester::RequesterState;
use crate::queues::wqe::{SqOp, Wqe, WqeRef};
use crate::timing::charge::charge;
use crate::timing::times::DistanceState;
use crate::trace::layout::flag;
use crate::trace::queue::TracedPost;

pub(crate) use receive::{post_recv, post_recv_watched};

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: `ibv_post_send` asks for a live `qp`, a valid list `wr` and a writable `bad_wr`.
    errno::code(unsafe { send::<false>(qp, wr, bad_wr) })
}

/// [`post_send`], for other verbs; `QUEUED` if each request is queued first.
///
/// # Safety
/// That of the verb.
#[inline(always)]
pub(crate) unsafe fn send<const QUEUED: bool>(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> Result<(), Errno> {
    // SAFETY: NULL, or a queue pair of ours.
    let (Ok(qp), false) = (unsafe { Qp::from_abi(qp) }, bad_wr.is_null()) else {
        return Err(errno::EINVAL);
    };
    // SAFETY: `bad_wr` is not NULL.
    unsafe { errno::memory_of_post(wr, bad_wr) }?;
    // SAFETY: the caller's list.
    unsafe {
        if QUEUED || is_queued(&qp) {
            return post_queued(qp, None, wr, bad_wr);
        }
        let sq = qp.object().sq.lock();
        match sq.remote.is_some() {
            true => post_remote(qp, sq, wr, bad_wr),
            false => post_loopback(qp, sq, wr, bad_wr),
        }
    }
}

/// [`post_send`] of a process that is traced or checked, or is to meet faults: each request is
/// queued first, and has its position then.
pub(crate) unsafe extern "C" fn post_send_queued(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: `ibv_post_send` asks for a live `qp`, a valid list `wr` and a writable `bad_wr`.
    errno::code(unsafe { send::<true>(qp, wr, bad_wr) })
}

/// Reports whether requests are queued before any is executed.
#[inline(always)]
fn is_queued(qp: &Qp) -> bool {
    let device = &qp.pd.context.device;
    let is_unlike = match qp.transport {
        QpTransport::Rc => false,
        QpTransport::Uc => device.network.is_faulty(),
        QpTransport::Ud | QpTransport::XrcSend | QpTransport::XrcRecv => true,
    };
    is_unlike || !device.is_synchronous()
}

/// Posts all requests of a list, or, with the reason, none.
///
/// # Safety
/// `wr` heads a list of valid requests.
pub(crate) unsafe fn post_whole(qp: InArc<'_, Qp>, wr: *mut ibv_send_wr) -> Result<(), Errno> {
    if wr.is_null() {
        return Ok(());
    }
    if host::is_post_short() {
        return Err(errno::ENOMEM);
    }
    let sq = qp.object().sq.lock();
    // SAFETY: `wr` heads a list of valid requests (see # Safety).
    let has_rare = unsafe { takes_all(&qp, &sq.requester, wr) }.map_err(|(error, bad)| {
        // SAFETY: `bad` is a request of the list that `wr` heads, and valid (see # Safety).
        unsafe { qp.check_refused_send(&*bad, error) };
        error
    })?;
    let is_queued = has_rare || qp.is_watched || qp.has_faults || is_queued(&qp);
    let mut bad = core::ptr::null_mut();
    // The queue is held from the check on, so that what it takes now it takes then.
    // SAFETY: `wr` heads a list of valid requests (see # Safety), and `bad` is a local variable.
    unsafe {
        match sq.remote.is_some() {
            _ if is_queued => post_queued(qp, Some(sq), wr, &mut bad),
            true => post_remote(qp, sq, wr, &mut bad),
            false => post_loopback(qp, sq, wr, &mut bad),
        }
    }
}

/// Checks that the send queue takes each request of a list, and has room for all. True if some of
/// them are queued ([`SqOp::from_rare_opcode`]); an error comes with the request that is not taken.
///
/// # Safety
/// As [`post_whole`].
unsafe fn takes_all(
    qp: &Qp,
    requester: &RequesterState,
    mut wr: *mut ibv_send_wr,
) -> Result<bool, (Errno, *mut ibv_send_wr)> {
    if qp.state().refuses_sends() {
        return Err((errno::EINVAL, wr));
    }
    // Relaxed: a count that guards no memory, and only grows.
    let used = requester.posted.wrapping_sub(qp.freed.load(Ordering::Relaxed));
    let mut room = qp.cap.max_send_wr.saturating_sub(used);
    let mut has_rare = false;
    // SAFETY: requests of the caller's list.
    while let Some(current) = unsafe { wr.as_ref() } {
        room = room.checked_sub(1).ok_or((errno::ENOMEM, wr))?;
        // SAFETY: `current` is a request of the list that `wr` heads, and valid (see # Safety).
        let admitted = unsafe { admit_any(qp, requester, current) };
        let (op, ..) = admitted.map_err(|error| (error, wr))?;
        has_rare |= SqOp::from_rare_opcode(current.opcode).is_some();
        if qp.transport == QpTransport::Ud && op == SqOp::Send {
            // SAFETY: a datagram's address handle is the caller's.
            unsafe { DatagramAddress::new(current) }.map_err(|error| (error, wr))?;
        }
        wr = current.next;
    }
    Ok(has_rare)
}

/// The request that was not posted, and why.
type PostResult = Result<(), (Errno, *mut ibv_send_wr)>;

/// Turns the result of a post into that of the verb, which reports the refused request in `bad_wr`.
///
/// # Safety
/// `bad_wr` can be written.
#[inline(always)]
unsafe fn posted(result: PostResult, bad_wr: *mut *mut ibv_send_wr) -> Result<(), Errno> {
    result.map_err(|(error, bad)| {
        // SAFETY: `bad_wr` can be written (see # Safety).
        unsafe { bad_wr.write(bad) };
        error
    })
}

/// [`posted`] of a list that was executed while it was posted. Rare requests are not executed so,
/// and end it as a refused one does: they are queued, and those behind them. (So the posts of all
/// others do not look for them.)
///
/// # Safety
/// As [`post_loopback`].
#[inline(always)]
unsafe fn posted_or_queued(
    qp: InArc<'_, Qp>,
    result: PostResult,
    bad_wr: *mut *mut ibv_send_wr,
) -> Result<(), Errno> {
    match result {
        Ok(()) => Ok(()),
        // SAFETY: `bad` heads the rest of the caller's list, and `bad_wr` can be written (see
        // # Safety).
        Err((error, bad)) => unsafe { queue_or_refuse(qp, (error, bad), bad_wr) },
    }
}

/// # Safety
/// As [`post_loopback`].
#[cold]
#[inline(never)]
unsafe fn queue_or_refuse(
    qp: InArc<'_, Qp>,
    (error, bad): (Errno, *mut ibv_send_wr),
    bad_wr: *mut *mut ibv_send_wr,
) -> Result<(), Errno> {
    // SAFETY: `bad` heads the rest of the caller's list, and `bad_wr` can be written (see
    // # Safety).
    unsafe {
        if error == errno::EINVAL && SqOp::from_rare_opcode((*bad).opcode).is_some() {
            return post_queued(qp, None, bad, bad_wr);
        }
        bad_wr.write(bad);
    }
    Err(error)
}

/// Posts the requests of a list to a peer in this process, and executes them at once.
///
/// A function of its own, as [`post_remote`]: either runs short of registers beside the other
/// (a WRITE in lists of 8: 22 instructions more).
///
/// # Safety
/// `wr` heads a list of valid requests; `bad_wr` can be written.
#[inline(never)]
unsafe fn post_loopback(
    qp: InArc<'_, Qp>,
    mut sq: Guard<'_, Sq>,
    mut wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> Result<(), Errno> {
    qp.resolve_peer(&mut sq);
    let Sq { requester, pending, peer, counters, scratch, .. } = &mut *sq;
    let session = peer.as_ref().map(ResponderSession::open);
    let (mut link, mut execution) = (InProcess::<false>(session), Execution::new());
    let mut parts = SqParts { requester, counters, scratch };
    if let Some(session) = link.0.as_mut()
        && is_next(&qp, parts.requester, pending, 0)
    {
        // SAFETY: the caller's list.
        wr = unsafe { fast_path::run(&qp, &mut parts, session, &mut execution, wr) };
    }
    // SAFETY: `wr` heads the list, or what `fast_path::run` left of it; it is valid (see # Safety).
    let result = unsafe { post_over(&qp, &mut link, &mut parts, pending, &mut execution, wr) };
    let deferred = execution.finish();
    drop(link);
    drop(sq);
    deferred.run();
    // SAFETY: an error has a request of the list, and `bad_wr` can be written (see # Safety).
    unsafe { posted_or_queued(qp, result, bad_wr) }
}

/// Posts the requests of a list to a peer in another process.
///
/// # Safety
/// As [`post_loopback`].
#[inline(never)]
unsafe fn post_remote(
    qp: InArc<'_, Qp>,
    mut sq: Guard<'_, Sq>,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> Result<(), Errno> {
    // SAFETY: the caller's list.
    let wr = unsafe { tx_fast_path::send_fast(&qp, &mut sq, wr) };
    let Sq { requester, pending, remote, counters, scratch, .. } = &mut *sq;
    let Some(remote) = remote.as_deref_mut().filter(|_| !wr.is_null()) else {
        return Ok(());
    };
    let mut execution = Execution::new();
    let mut parts = SqParts { requester, counters, scratch };
    let result = remote.hold(&qp, |link: &mut RemoteLink<'_, false>| {
        // SAFETY: `wr` heads what `send_fast` left of the list, which is valid (see # Safety).
        unsafe { post_over(&qp, link, &mut parts, pending, &mut execution, wr) }
    });
    let deferred = execution.finish();
    drop(sq);
    deferred.run();
    // SAFETY: an error has a request of the list, and `bad_wr` can be written (see # Safety).
    unsafe { posted_or_queued(qp, result, bad_wr) }
}

/// Reports whether a request that is posted now is the next to be sent.
#[inline(always)]
fn is_next(qp: &Qp, requester: &RequesterState, pending: &PendingWqes, sent: u32) -> bool {
    pending.len() == sent && requester.waits.is_none() && qp.state() == QueuePairState::Rts
}

/// Posts the requests of a list over a link; those that end at once never come into the queue.
///
/// # Safety
/// `wr` heads a list of valid requests.
#[inline(always)]
unsafe fn post_over<'a>(
    qp: &'a Arc<Qp>,
    link: &mut impl SqLink<'a>,
    parts: &mut SqParts<'_>,
    pending: &mut PendingWqes,
    execution: &mut Execution<'a>,
    mut wr: *mut ibv_send_wr,
) -> PostResult {
    if wr.is_null() {
        return Ok(());
    }
    if qp.state().refuses_sends() {
        return Err((errno::EINVAL, wr));
    }
    while !wr.is_null() {
        // SAFETY: a request of the caller's list.
        let current = unsafe { &*wr };
        // SAFETY: `current` is a request of the caller's list, and valid (see # Safety).
        let admitted = unsafe { admit(qp, parts.requester, current) };
        let (op, has_imm, sges) = admitted.map_err(|error| (error, wr))?;
        parts.requester.posted = parts.requester.posted.wrapping_add(1);
        let position = parts.requester.posted;
        // SAFETY: `current` is valid (see # Safety), and `admit` has taken it.
        let wqe = unsafe { Wqe::new(current, (op, has_imm), qp.sig_all, position) };
        let request = WqeRef { wqe: &wqe, sges, to: None };
        let step = match is_next(qp, parts.requester, pending, link.sent()) {
            true => link.advance(qp, parts, &request, execution),
            false => SendAttempt::Later,
        };
        let is_over = match step {
            SendAttempt::Ended(outcome) => {
                qp.settle(parts, execution, &wqe, request.len(), outcome)
            }
            SendAttempt::Sent => {
                link.count_sent();
                false
            }
            SendAttempt::Later if qp.state().flushes_sends() => {
                // An error may have come whose flush has not: what was posted before goes first.
                link.give_up(pending, execution);
                qp.flush_pending(pending, execution);
                qp.complete(execution, &wqe, 0, Some(qp.flush_reason()));
                true
            }
            SendAttempt::Later => false,
        };
        if !is_over {
            // SAFETY: inline data were checked by `admit`.
            unsafe { pending.push(&request) };
        }
        wr = current.next;
    }
    Ok(())
}

/// Posts the requests of a list to an unreliable queue pair, or one of another schedule, and
/// then executes those that can be. `held` is the send queue, if the caller has it. It costs a copy
/// of each request more than [`post_loopback`], and lets each have a destination, and a fate, of
/// its own.
///
/// # Safety
/// As [`post_loopback`]; requests of datagrams have handles of ours.
#[inline(never)]
unsafe fn post_queued<'a>(
    qp: InArc<'a, Qp>,
    held: Option<Guard<'a, Sq>>,
    mut wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> Result<(), Errno> {
    let (mut deferred, mut result) = (DeferredWork::default(), Ok(()));
    let device = &qp.pd.context.device;
    let card = device.charging_card().map(|card| (card, host::time::now()));
    let began = card.and(device.distance()).map_or(0, DistanceState::now);
    let mut sq = held.unwrap_or_else(|| qp.object().sq.lock());
    let mut posted = 0;
    while !wr.is_null() {
        posted += 1;
        let at = card.map(|(card, _)| began + card.post(posted));
        // SAFETY: the caller's list.
        if let Err(error) = unsafe { queue(&qp, &mut sq, &*wr, at) } {
            // SAFETY: `wr` heads the rest of the caller's list, and is not NULL.
            unsafe { qp.check_refused_send(&*wr, error) };
            result = Err((error, wr));
            break;
        }
        // SAFETY: `wr` heads the rest of the caller's list, and is not NULL.
        wr = unsafe { (*wr).next };
    }
    // Elsewhere only what is flushed goes on by itself.
    if device.is_synchronous() || device.wire().is_some() || qp.state().flushes_sends() {
        qp.run_pending(&mut sq, &mut deferred, false);
    }
    drop(sq);
    deferred.run();
    if let Some((card, start)) = card {
        charge(start, card.post(posted));
    }
    // SAFETY: `bad_wr` can be written (see # Safety).
    unsafe { self::posted(result, bad_wr) }
}

/// Queues a request, which at a distance leaves at `at`; without that, now.
///
/// # Safety
/// The request is valid.
unsafe fn queue(qp: &Qp, sq: &mut Sq, wr: &ibv_send_wr, at: Option<u64>) -> Result<(), Errno> {
    if qp.state().refuses_sends() {
        return Err(errno::EINVAL);
    }
    // SAFETY: `wr` is valid (see # Safety).
    let (op, has_imm, sges) = unsafe { admit_any(qp, &sq.requester, wr) }?;
    // Other operations have no address there; they fail when they are executed.
    let to = match (qp.transport, op) {
        // SAFETY: `wr` is valid (see # Safety): its address handle is NULL, or a live one of ours.
        (QpTransport::Ud, SqOp::Send) => Some(unsafe { DatagramAddress::new(wr) }?),
        (QpTransport::Ud, _) => Some(DatagramAddress::default()),
        (QpTransport::XrcSend, _) => {
            // SAFETY: the caller owns the request; all members of the union are integers.
            let srqn = unsafe { wr.qp_type.xrc.remote_srqn };
            Some(DatagramAddress::of_srq(srqn))
        }
        (QpTransport::XrcRecv, _) => return Err(errno::EINVAL),
        _ => None,
    };
    sq.requester.posted = sq.requester.posted.wrapping_add(1);
    // SAFETY: `wr` is valid (see # Safety), and `admit_any` has taken it.
    let mut wqe = unsafe { Wqe::new(wr, (op, has_imm), qp.sig_all, sq.requester.posted) };
    if SqOp::from_mw_opcode(wr.opcode).is_some() {
        // SAFETY: `wr` is valid (see # Safety), and `admit_any` has taken it.
        unsafe { wqe.take_mw(wr) };
    }
    let request = WqeRef { wqe: &wqe, sges, to: to.as_ref() };
    if let Some(trace) = qp.trace() {
        trace.posted(wqe.position, &posting(&request));
    }
    qp.check_post(&request);
    // SAFETY: inline data were checked by `admit`.
    unsafe { sq.pending.push(&request) };
    if let Some(distance) = qp.pd.context.device.distance() {
        let at = at.unwrap_or_else(|| distance.now());
        crate::schedule::distance::posted(distance, qp, sq, &request, at);
    }
    Ok(())
}

/// A request, as the trace records it.
fn posting(request: &WqeRef<'_>) -> TracedPost {
    let wqe = request.wqe;
    let flag = |is: bool, flag: u64| if is { flag } else { 0 };
    TracedPost {
        wr_id: wqe.wr_id,
        operation: wqe.op as u64,
        flags: flag(wqe.signaled, flag::SIGNALED)
            | flag(wqe.inline, flag::INLINE)
            | flag(wqe.fence, flag::FENCE)
            | flag(wqe.solicited, flag::SOLICITED)
            | flag(wqe.imm.is_some() && !wqe.invalidates && !wqe.op.is_local(), flag::HAS_IMM),
        len: request.len().try_into().unwrap_or(u32::MAX),
        to: request.to.map_or(0, |to| to.qpn),
    }
}
