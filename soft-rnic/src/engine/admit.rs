//! Admission of requests to a send queue.

use core::sync::atomic::Ordering;

use rustix::io::Errno;
use verbs_sys::*;

use crate::errno;
use crate::memory::mr_table::HeldRegion;
use crate::memory::span::MemSpan;
use crate::objects::mw::takes_mw;
use crate::objects::state::Qp;
use crate::queues::qp_state::QpTransport;
use crate::queues::requester::RequesterState;
use crate::queues::wqe::{SqOp, asks_for_checksums, len_of};

/// The checked parts of a request: its operation, whether it has an immediate, and its
/// scatter/gather list.
type Admitted<'a> = Result<(SqOp, bool, &'a [ibv_sge]), Errno>;

/// Checks that the send queue can take a request; one that has to be queued first
/// ([`SqOp::from_rare_opcode`]) is `EINVAL`. (The request itself is made where it stays: it would
/// be copied as a result.)
///
/// # Safety
/// `wr` is valid.
#[inline(always)]
pub(crate) unsafe fn admit<'a>(
    qp: &Qp,
    requester: &RequesterState,
    wr: &'a ibv_send_wr,
) -> Admitted<'a> {
    let op = SqOp::from_opcode(wr.opcode).ok_or(errno::EINVAL)?;
    // SAFETY: `wr` is valid (see # Safety).
    unsafe { admit_as(op, qp, requester, wr) }
}

/// [`admit`] of any request.
///
/// # Safety
/// As there.
pub(crate) unsafe fn admit_any<'a>(
    qp: &Qp,
    requester: &RequesterState,
    wr: &'a ibv_send_wr,
) -> Admitted<'a> {
    let Some(op) = SqOp::from_rare_opcode(wr.opcode) else {
        // SAFETY: `wr` is valid (see # Safety).
        return unsafe { admit(qp, requester, wr) };
    };
    let is_taken = match op.0 {
        SqOp::AtomicWrite => matches!(qp.transport, QpTransport::Rc | QpTransport::XrcSend),
        // SAFETY: `wr` is valid (see # Safety).
        _ => unsafe { takes_mw(qp.transport, wr) },
    };
    match is_taken {
        // SAFETY: `wr` is valid (see # Safety).
        true => unsafe { admit_as(op, qp, requester, wr) },
        false => Err(errno::EINVAL),
    }
}

/// # Safety
/// As [`admit`].
#[inline(always)]
unsafe fn admit_as<'a>(
    (op, has_imm): (SqOp, bool),
    qp: &Qp,
    requester: &RequesterState,
    wr: &'a ibv_send_wr,
) -> Admitted<'a> {
    let inline = wr.send_flags & ibv_send_flags::IBV_SEND_INLINE.0 != 0;
    let n = wr.num_sge as u32;
    let is_list = n <= qp.cap.max_send_sge && (n == 0 || !wr.sg_list.is_null());
    if !is_list || (inline && op.is_response()) || asks_for_checksums(wr) {
        return Err(errno::EINVAL);
    }
    let sges = if n == 0 {
        &[]
    } else {
        // SAFETY: the caller's list has `n` entries.
        unsafe { core::slice::from_raw_parts(wr.sg_list, n as usize) }
    };
    if inline && len_of(sges) > u64::from(qp.cap.max_inline_data) {
        return Err(errno::EINVAL);
    }
    // Relaxed: a count that guards no memory.
    let used = requester.posted.wrapping_sub(qp.freed.load(Ordering::Relaxed));
    if used >= qp.cap.max_send_wr {
        return Err(errno::ENOMEM);
    }
    Ok((op, has_imm, sges))
}

impl<'m> HeldRegion<'m> {
    /// The memory of a plain message, if it may be sent.
    ///
    /// # Safety
    /// The request is valid, and its list this entry.
    #[inline(always)]
    pub(crate) unsafe fn plain_span(
        &mut self,
        qp: &Qp,
        request: &ibv_send_wr,
        sge: &ibv_sge,
    ) -> Option<MemSpan<'m>> {
        if request.send_flags & ibv_send_flags::IBV_SEND_INLINE.0 == 0 {
            return self.at(&qp.pd.context.device.mrs, qp.pd.id, sge, sge.length, 0);
        }
        let from = core::ptr::with_exposed_provenance_mut(sge.addr as usize);
        // SAFETY: the caller's, until the post returns.
        let from = unsafe { MemSpan::private(from, sge.length as usize) };
        (sge.length <= qp.cap.max_inline_data).then_some(from)
    }
}
