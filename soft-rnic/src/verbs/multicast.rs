//! The verbs of multicast groups.

use core::ffi::c_int;
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::errno;
use crate::objects::in_arc::InArc;
use crate::objects::state::Qp;
use crate::queues::address::GidBytes;

/// Checks and returns the arguments of both verbs.
///
/// # Safety
/// The pointers are NULL, or a live queue pair of ours and a GID of the caller's.
unsafe fn arguments<'a>(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
) -> Result<(InArc<'a, Qp>, GidBytes), Errno> {
    // SAFETY: `qp` and `gid` are NULL, or live and the caller's (see # Safety); `raw` is bytes,
    // whichever member was written.
    unsafe { Ok((Qp::named(qp)?, gid.as_ref().ok_or(errno::EINVAL)?.raw)) }
}

/// Others that take part are met before they learn of the group: they may send to it when it is
/// attached, and where they cannot be met, nothing changes.
fn attach(qp: &Arc<Qp>, gid: GidBytes, lid: u16) -> Result<(), Errno> {
    qp.can_attach_to(&gid)?;
    qp.pd.context.device.take_part()?;
    qp.attach_to_group(gid, lid).map(drop)
}

pub(crate) unsafe extern "C" fn attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    lid: u16,
) -> c_int {
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::code(unsafe { arguments(qp, gid) }.and_then(|(qp, gid)| {
        crate::alloc::headroom()?;
        match qp.pd.context.device.wire() {
            Some(wire) => qp.attach_on_wire(wire, gid, lid),
            None => attach(&qp, gid, lid),
        }
    }))
}

pub(crate) unsafe extern "C" fn detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    lid: u16,
) -> c_int {
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::code(unsafe { arguments(qp, gid) }.and_then(
        |(qp, gid)| match qp.pd.context.device.wire() {
            Some(wire) => qp.detach_on_wire(wire, gid, lid),
            None => qp.detach_from_group(gid, lid),
        },
    ))
}
