//! Queue pairs with the newer send interface.

use rustix::io::Errno;
use verbs_sys::*;

use crate::errno;
use crate::objects::qp::Extras;
use crate::objects::state::{Context, Pd, Qp, Xrcd};
use crate::objects::{qp, target};
use crate::queues::qp_state::QpTransport;
use crate::verbs::new_send;

const XRCD: u32 = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_XRCD.0;
const PD: u32 = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0;
const FLAGS: u32 = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_CREATE_FLAGS.0;
const BLOCK_OWN: u32 = ibv_qp_create_flags::IBV_QP_CREATE_BLOCK_SELF_MCAST_LB.0;
const SEND_OPS: u32 = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;

const ATOMIC_WRITE: u64 = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_WRITE.0 as u64;

/// Creates a queue pair; `EOPNOTSUPP` for attributes and operations that the device, or the
/// transport, does not have.
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::pointer(unsafe {
        attr.as_mut().ok_or(errno::EINVAL).and_then(|attr| create(context, attr))
    })
}

/// # Safety
/// The pointers are NULL or live objects of ours.
unsafe fn create(
    context: *mut ibv_context,
    attr: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, Errno> {
    if attr.qp_type == ibv_qp_type::IBV_QPT_XRC_RECV {
        // SAFETY: `context` and the pointers of `attr` are NULL or live objects of ours (see
        // # Safety).
        return unsafe { create_target(context, attr) };
    }
    if attr.comp_mask & !(PD | SEND_OPS | FLAGS) != 0 {
        return Err(errno::EOPNOTSUPP);
    }
    let pd = if attr.comp_mask & PD != 0 { attr.pd } else { core::ptr::null_mut() };
    // SAFETY: `context` and `pd` are NULL or live objects of ours (see # Safety).
    let (context, pd) = unsafe { (Context::from_abi(context)?, Pd::from_abi(pd)?) };
    if !pd.context.shares(&context) {
        return Err(errno::EINVAL);
    }
    let ops = (attr.comp_mask & SEND_OPS != 0).then_some(attr.send_ops_flags);
    let transport = QpTransport::from_abi(attr.qp_type).ok_or(errno::EOPNOTSUPP)?;
    if ops.is_some_and(|ops| ops & !new_send::operations(transport) != 0) {
        return Err(errno::EOPNOTSUPP);
    }
    let flags = if attr.comp_mask & FLAGS != 0 { attr.create_flags } else { 0 };
    let blocks_own_multicast = blocks_own_multicast(transport, flags)?;
    let mut plain = ibv_qp_init_attr {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
    };
    if ops.is_some_and(|ops| ops & ATOMIC_WRITE != 0) {
        // Its word goes inline.
        plain.cap.max_inline_data = plain.cap.max_inline_data.max(new_send::ATOMIC_WRITE_BYTES);
    }
    // SAFETY: the pointers of `plain` are those of `attr`, NULL or live (see # Safety).
    let qp =
        unsafe { qp::create(&context, &pd, &mut plain, Extras { ops, blocks_own_multicast }) }?;
    if ops.is_some() {
        // SAFETY: the device reads and writes the struct's `state` only, at transitions, which are
        // the program's calls; and the program has not been told of it yet.
        new_send::fill(unsafe { &mut *qp.cast() });
    }
    attr.cap = plain.cap;
    Ok(qp)
}

/// Reports whether a queue pair with these flags does not get its own multicast messages; the
/// errors are the kernel's.
fn blocks_own_multicast(transport: QpTransport, flags: u32) -> Result<bool, Errno> {
    match flags {
        0 => Ok(false),
        _ if transport != QpTransport::Ud => Err(errno::EINVAL),
        BLOCK_OWN => Ok(true),
        _ => Err(errno::EOPNOTSUPP),
    }
}

/// Creates an XRC receive queue pair, which is in an XRC domain instead of a protection domain
/// (one is ignored, as are queues and their depths), and posts nothing.
///
/// # Safety
/// As [`create`].
unsafe fn create_target(
    context: *mut ibv_context,
    attr: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, Errno> {
    // SAFETY: `context` is NULL or open (see # Safety of `create`).
    let context = unsafe { Context::from_abi(context) }?;
    context.device.offers(ibv_device_cap_flags::IBV_DEVICE_XRC)?;
    if attr.comp_mask & !(PD | XRCD) != 0 {
        return Err(errno::EOPNOTSUPP);
    }
    if attr.comp_mask & XRCD == 0 {
        return Err(errno::EINVAL);
    }
    // SAFETY: `attr.xrcd` is NULL or a live XRC domain of ours (see # Safety of `create`).
    let xrcd = unsafe { Xrcd::from_abi(attr.xrcd) }?;
    if !xrcd.context().shares(&context) {
        return Err(errno::EINVAL);
    }
    let qp = target::create(&context, &xrcd, attr.qp_context)?;
    attr.cap = ibv_qp_cap::default();
    Ok(qp)
}

/// `ibv_qp_to_qp_ex`: the queue pair, if it was created for the newer send interface
/// (`IBV_QP_INIT_ATTR_SEND_OPS_FLAGS`), or else NULL. All other newer verbs are found in the
/// `verbs_context`; this one is a function of the library.
///
/// # Safety
/// `qp` is NULL or a live queue pair of this crate's.
#[must_use]
pub unsafe extern "C" fn qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: `qp` is NULL or a live queue pair of ours (see # Safety).
    match unsafe { Qp::from_abi(qp) } {
        Ok(object) if object.batch.is_some() => qp.cast(),
        _ => core::ptr::null_mut(),
    }
}
