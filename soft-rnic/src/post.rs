//! Posting: the data path's entry.

use core::ffi::c_int;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use verbs_sys::*;

use crate::address::Address;
use crate::after::After;
use crate::errno;
use crate::qp::{Qp, State, Transport};
use crate::requester::{Line, SqParts};
use crate::responder::Session;
use crate::sq::{Op, Pending, Request, Requester, Sq, Wqe};

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: NULL, or a queue pair of ours.
    let (Ok(qp), false) = (unsafe { Qp::from_abi(qp) }, bad_wr.is_null()) else {
        return errno::EINVAL;
    };
    let mut after = After::default();
    // SAFETY: the caller's list.
    let result = unsafe {
        let device = &qp.pd.context.device;
        match qp.transport {
            _ if device.distance().is_some() => post_queued(&qp, wr, &mut after),
            Transport::Rc => post_list(&qp, wr, &mut after),
            Transport::Uc if !device.network.is_faulty() => post_list(&qp, wr, &mut after),
            _ => post_queued(&qp, wr, &mut after),
        }
    };
    after.run();
    match result {
        Ok(()) => 0,
        Err((error, bad)) => {
            // SAFETY: the caller's place for a pointer.
            unsafe { bad_wr.write(bad) };
            error
        }
    }
}

/// Posts the requests of a list, and executes those that can be at once.
///
/// # Safety
/// `wr` heads a list of valid requests.
#[inline]
unsafe fn post_list(
    qp: &Arc<Qp>,
    mut wr: *mut ibv_send_wr,
    after: &mut After,
) -> Result<(), (c_int, *mut ibv_send_wr)> {
    let mut sq = qp.sq.lock();
    if qp.state().refuses_sends() {
        return if wr.is_null() { Ok(()) } else { Err((errno::EINVAL, wr)) };
    }
    if sq.remote.is_some() {
        // SAFETY: NULL, or a request of the caller's list.
        if unsafe { wr.as_ref() }.is_some_and(|wr| wr.opcode == ibv_wr_opcode::IBV_WR_SEND) {
            // SAFETY: the caller's list.
            wr = unsafe { crate::process::send_run(qp, &mut sq, wr) };
        }
        // SAFETY: as above.
        wr = unsafe { crate::process::access_run(qp, &mut sq, wr, after) };
        // SAFETY: as above.
        return if wr.is_null() { Ok(()) } else { unsafe { post_all(qp, &mut sq, wr, after) } };
    }
    qp.resolve_peer(&mut sq);
    let Sq { requester, pending, peer, counters, scratch, .. } = &mut *sq;
    // Nothing that can be executed goes without the peer: its lock comes first.
    let mut session = peer.as_ref().map(Session::open);
    let mut line = Line::new();
    let mut parts = SqParts { requester, counters, scratch };
    let queue_only = !qp.pd.context.device.is_prompt();
    let mut result = Ok(());
    let ready = pending.is_empty() && parts.requester.waits.is_none() && !queue_only;
    if let Some(session) = session.as_mut().filter(|_| ready && qp.state() == State::Rts) {
        // SAFETY: the caller's list.
        wr = unsafe { crate::burst::run(qp, &mut parts, session, &mut line, wr) };
    }
    while !wr.is_null() {
        // SAFETY: a request of the caller's list.
        let current = unsafe { &*wr };
        // SAFETY: as above.
        let (mut wqe, sges) = match unsafe { admit(qp, parts.requester, current) } {
            Ok(admitted) => admitted,
            Err(error) => {
                result = Err((error, wr));
                break;
            }
        };
        parts.requester.posted = parts.requester.posted.wrapping_add(1);
        wqe.position = parts.requester.posted;
        let request = Request { wqe: &wqe, sges, to: None };
        let ready = pending.is_empty() && parts.requester.waits.is_none() && !queue_only;
        if qp.state() == State::Rts && ready {
            let outcome =
                qp.execute(parts.requester, &mut session, &mut line, parts.scratch, &request);
            if !qp.settle(&mut parts, &mut line, request.wqe, request.len(), outcome) {
                // SAFETY: inline data were checked by `admit`.
                unsafe { pending.push(&request) };
            }
        } else {
            // SAFETY: as above.
            unsafe { wait_or_flush(qp, pending, &mut line, &request) };
        }
        wr = current.next;
    }
    after.append(line.finish());
    drop(session);
    result
}

/// Posts the requests of a list to an unreliable queue pair, or one of a distant device, and
/// then executes those that can be. It costs a copy of each request more than [`post_list`], and lets
/// each have a destination, and a fate, of its own.
///
/// # Safety
/// `wr` heads a list of valid requests; those of datagrams have handles of ours.
unsafe fn post_queued(
    qp: &Arc<Qp>,
    wr: *mut ibv_send_wr,
    after: &mut After,
) -> Result<(), (c_int, *mut ibv_send_wr)> {
    // SAFETY: the caller's promise.
    unsafe { post_all(qp, &mut qp.sq.lock(), wr, after) }
}

/// [`post_queued`] under the send queue's lock.
///
/// # Safety
/// As there.
unsafe fn post_all(
    qp: &Arc<Qp>,
    sq: &mut Sq,
    mut wr: *mut ibv_send_wr,
    after: &mut After,
) -> Result<(), (c_int, *mut ibv_send_wr)> {
    let mut result = Ok(());
    while !wr.is_null() {
        // SAFETY: the caller's list.
        if let Err(error) = unsafe { queue(qp, sq, &*wr) } {
            result = Err((error, wr));
            break;
        }
        // SAFETY: as above.
        wr = unsafe { (*wr).next };
    }
    // Elsewhere only what is flushed goes on by itself.
    if qp.pd.context.device.is_prompt() || qp.state().flushes_sends() {
        qp.run_pending(sq, after, false);
    }
    result
}

/// # Safety
/// The request is valid.
unsafe fn queue(qp: &Qp, sq: &mut Sq, wr: &ibv_send_wr) -> Result<(), c_int> {
    if qp.state().refuses_sends() {
        return Err(errno::EINVAL);
    }
    // SAFETY: the caller's promise.
    let (mut wqe, sges) = unsafe { admit(qp, &sq.requester, wr) }?;
    // Other operations have no address there; they fail when they are executed.
    let to = match (qp.transport, wqe.op) {
        // SAFETY: as above.
        (Transport::Ud, Op::Send) => Some(unsafe { Address::new(wr) }?),
        (Transport::Ud, _) => Some(Address::default()),
        _ => None,
    };
    sq.requester.posted = sq.requester.posted.wrapping_add(1);
    wqe.position = sq.requester.posted;
    let request = Request { wqe: &wqe, sges, to: to.as_ref() };
    // SAFETY: inline data were checked by `admit`.
    unsafe { sq.pending.push(&request) };
    if let Some(distance) = qp.pd.context.device.distance() {
        crate::distance::posted(distance, qp, sq, &wqe);
    }
    Ok(())
}

/// A request that cannot be executed now.
///
/// # Safety
/// Inline data can be read, and are not too long.
#[cold]
unsafe fn wait_or_flush<'a>(
    qp: &'a Arc<Qp>,
    pending: &mut Pending,
    line: &mut Line<'a>,
    request: &Request<'_>,
) {
    if qp.state().flushes_sends() {
        // An error may have come whose flush has not: what was posted before goes
        // first.
        qp.flush_pending(pending, line);
        qp.complete(line, request.wqe, 0, ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
    } else {
        // SAFETY: the caller's promise.
        unsafe { pending.push(request) };
    }
}

/// Checks that the send queue can take a request; what it says, and its list.
///
/// # Safety
/// `wr` is valid.
#[inline(always)]
pub(crate) unsafe fn admit<'a>(
    qp: &Qp,
    requester: &Requester,
    wr: &'a ibv_send_wr,
) -> Result<(Wqe, &'a [ibv_sge]), c_int> {
    // SAFETY: the caller's promise.
    let wqe = unsafe { Wqe::new(wr, qp.sig_all) }?;
    let n = wr.num_sge as u32;
    if n > qp.cap.max_send_sge || (n > 0 && wr.sg_list.is_null()) {
        return Err(errno::EINVAL);
    }
    let sges = if n == 0 {
        &[]
    } else {
        // SAFETY: the caller's list has `n` entries.
        unsafe { core::slice::from_raw_parts(wr.sg_list, n as usize) }
    };
    let request = Request { wqe: &wqe, sges, to: None };
    if wqe.inline && request.len() > u64::from(qp.cap.max_inline_data) {
        return Err(errno::EINVAL);
    }
    // Relaxed: a count that guards no memory.
    let used = requester.posted.wrapping_sub(qp.freed.load(Ordering::Relaxed));
    if used >= qp.cap.max_send_wr {
        return Err(errno::ENOMEM);
    }
    Ok((wqe, sges))
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: NULL, or a queue pair of ours.
    let (Ok(qp), false) = (unsafe { Qp::from_abi(qp) }, bad_wr.is_null()) else {
        return errno::EINVAL;
    };
    let (result, state) = {
        let mut poster = qp.rq.poster.lock();
        let state = qp.state();
        if qp.srq.is_some() || matches!(state, State::Reset | State::Destroyed) {
            // SAFETY: the caller's place for a pointer.
            unsafe { bad_wr.write(wr) };
            return errno::EINVAL;
        }
        // SAFETY: the caller's list.
        (unsafe { qp.rq.post(&mut poster, wr, bad_wr) }, state)
    };
    if state == State::Err {
        flush_late(&qp);
    }
    errno::code(result)
}

/// Requests that were posted to an erroneous queue pair come back at once.
#[cold]
fn flush_late(qp: &Arc<Qp>) {
    let mut after = After::default();
    qp.flush_receives(&mut after);
    after.run();
}
