//! The verbs of multicast groups.

use core::ffi::c_int;
use std::sync::Arc;

use verbs_sys::*;

use crate::errno;
use crate::objects::address::Gid;
use crate::objects::in_arc::InArc;
use crate::objects::state::Qp;

/// What both verbs are given.
///
/// # Safety
/// The pointers are NULL, or a live queue pair of ours and a GID of the caller's.
unsafe fn arguments<'a>(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
) -> Result<(InArc<'a, Qp>, Gid), c_int> {
    // SAFETY: the caller's promise; bytes, whichever member was written.
    unsafe { Ok((Qp::from_abi(qp)?, gid.as_ref().ok_or(errno::EINVAL)?.raw)) }
}

/// Other processes learn of the group, and are met: they may send to it from now on.
fn attach(qp: &Arc<Qp>, gid: Gid, lid: u16) -> Result<(), c_int> {
    if !qp.attach_to_group(gid, lid)? {
        return Ok(());
    }
    let met = qp.pd.context.device.take_part();
    // A refusal changes nothing.
    met.or_else(|error| qp.detach_from_group(gid, lid).and(Err(error)))
}

pub(crate) unsafe extern "C" fn attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    lid: u16,
) -> c_int {
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::code(unsafe { arguments(qp, gid) }.and_then(|(qp, gid)| attach(&qp, gid, lid)))
}

pub(crate) unsafe extern "C" fn detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    lid: u16,
) -> c_int {
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::code(unsafe { arguments(qp, gid) }.and_then(|(qp, gid)| qp.detach_from_group(gid, lid)))
}
