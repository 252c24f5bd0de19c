//! Posting receives.

use core::ffi::c_int;
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::errno;
use crate::objects::checked::check_receive;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::Qp;
use crate::queues::qp_state::QueuePairState;
use crate::queues::recv_ring::recv_len;
use crate::timing::charge::Charged;

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: `ibv_post_recv` asks for a live `qp`, a valid list `wr` and a writable `bad_wr`.
    errno::code(unsafe { receive::<false>(qp, wr, bad_wr) })
}

/// [`post_recv`] of a process that is traced or checked.
pub(crate) unsafe extern "C" fn post_recv_watched(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: `ibv_post_recv` asks for a live `qp`, a valid list `wr` and a writable `bad_wr`.
    errno::code(unsafe { receive::<true>(qp, wr, bad_wr) })
}

/// # Safety
/// That of the verb.
#[inline(always)]
unsafe fn receive<const WATCHED: bool>(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> Result<(), Errno> {
    // SAFETY: NULL, or a queue pair of ours.
    let (Ok(qp), false) = (unsafe { Qp::from_abi(qp) }, bad_wr.is_null()) else {
        return Err(errno::EINVAL);
    };
    // SAFETY: `bad_wr` is not NULL.
    unsafe { errno::memory_of_post(wr, bad_wr) }?;
    // SAFETY: the caller's list.
    let _charged = unsafe { Charged::for_receives(qp.pd.context.device.charging_card(), wr) };
    let (result, state) = {
        let mut poster = qp.rq.poster.lock();
        let state = qp.state();
        if qp.srq.is_some() || matches!(state, QueuePairState::Reset | QueuePairState::Destroyed) {
            // SAFETY: the caller's place for a pointer.
            unsafe { bad_wr.write(wr) };
            if WATCHED {
                // SAFETY: NULL, or the caller's list.
                qp.check_refused_receive(unsafe { wr.as_ref() }, errno::EINVAL);
            }
            return Err(errno::EINVAL);
        }
        // SAFETY: the caller's list.
        let result = unsafe {
            match WATCHED {
                false => qp.rq.post(&mut poster, wr, bad_wr),
                true => qp.rq.post_noted(&mut poster, wr, bad_wr, |index, wr| {
                    if let Some(trace) = qp.trace() {
                        trace.posted_recv(index, wr.wr_id, recv_len(wr));
                    }
                    if let Some(check) = qp.check() {
                        check_receive(&qp.pd, &check.receives, wr);
                    }
                }),
            }
        };
        (result, state)
    };
    if let (true, Err(error)) = (WATCHED, result) {
        // SAFETY: the request that was refused, of the caller's list.
        qp.check_refused_receive(unsafe { (*bad_wr).as_ref() }, error);
    }
    if state == QueuePairState::Err {
        flush_late(&qp);
    }
    result
}

/// Requests that were posted to an erroneous queue pair come back at once.
#[cold]
fn flush_late(qp: &Arc<Qp>) {
    let mut deferred = DeferredWork::default();
    qp.flush_receives(&mut deferred);
    deferred.run();
}
