//! Operations on memory that need not wait: the short way of [`run_foreign`](Qp::run_foreign).
//!
//! When all that was posted before is done, WRITEs without immediates and READs at the front
//! of a list are carried out where they stand, and never copied into the queue; of the checks
//! none is left out. The first request that is anything else, or that would not be done at
//! once, ends the run before it counts: the long way decides what becomes of it. What the run
//! has already copied for it, the long way copies again.

use std::sync::Arc;

use verbs_sys::*;

use crate::after::After;
use crate::post::admit;
use crate::qp::{Qp, State, Transport};
use crate::requester::{Line, SqParts};
use crate::responder::Reply;
use crate::sq::{Request, Sq};

use super::super::one_sided::Access;
use super::super::out::Out;
use super::super::pair::Pair;
use super::Remote;

/// Carries out the operations on memory at the front of a list, and returns the first request
/// that was not done. The send queue's lock is held.
///
/// # Safety
/// `wr` heads a list of valid requests.
#[inline]
pub(crate) unsafe fn access_run(
    qp: &Arc<Qp>,
    sq: &mut Sq,
    wr: *mut ibv_send_wr,
    after: &mut After,
) -> *mut ibv_send_wr {
    let Sq { requester, pending, remote, counters, scratch, .. } = sq;
    let Some(remote) = remote.as_deref_mut() else { return wr };
    let may_send = qp.transport == Transport::Rc && qp.state() == State::Rts;
    let is_next = pending.is_empty() && requester.waits.is_none();
    if wr.is_null() || !may_send || !is_next || remote.generation == 0 {
        return wr;
    }
    // Lent, as in `run_foreign`.
    let Some(pair) = remote.pair.take() else { return wr };
    let mut parts = SqParts { requester, counters, scratch };
    // SAFETY: the caller's promise.
    let rest = unsafe { go(qp, &mut parts, remote, &pair, wr, after) };
    remote.pair = Some(pair);
    rest
}

/// # Safety
/// As [`access_run`].
unsafe fn go(
    qp: &Arc<Qp>,
    parts: &mut SqParts<'_>,
    remote: &mut Remote,
    pair: &Pair,
    mut wr: *mut ibv_send_wr,
    after: &mut After,
) -> *mut ibv_send_wr {
    let (mut line, mut out) = (Line::new(), Out::new(pair));
    while !wr.is_null() && !pair.is_dead() {
        // SAFETY: a request of the caller's list.
        let current = unsafe { &*wr };
        // SAFETY: as above.
        if unsafe { access(qp, parts, remote, &mut out, &mut line, current) }.is_none() {
            break;
        }
        wr = current.next;
    }
    after.append(line.finish());
    wr
}

/// Carries one operation out, if it is one that can be done at once.
///
/// # Safety
/// The request is valid.
#[inline(always)]
unsafe fn access<'a>(
    qp: &'a Arc<Qp>,
    parts: &mut SqParts<'_>,
    remote: &mut Remote,
    out: &mut Out<'_>,
    line: &mut Line<'a>,
    request: &ibv_send_wr,
) -> Option<()> {
    let is_plain = request.opcode == ibv_wr_opcode::IBV_WR_RDMA_WRITE
        || request.opcode == ibv_wr_opcode::IBV_WR_RDMA_READ;
    if !is_plain {
        return None;
    }
    // SAFETY: the caller's promise.
    let (mut wqe, sges) = unsafe { admit(qp, parts.requester, request) }.ok()?;
    let position = parts.requester.posted.wrapping_add(1);
    wqe.position = position;
    let request = Request { wqe: &wqe, sges, to: None };
    let len = request.len();
    qp.local(parts.requester, &request, len, &mut parts.scratch.local).ok()?;
    let Access::Done = qp.one_sided(parts, remote, out, line, &request) else { return None };
    remote.bound = remote.generation;
    parts.requester.posted = position;
    let outcome = qp.judge(parts.requester, Reply::Done, len);
    qp.settle(parts, line, &wqe, len, outcome);
    Some(())
}
