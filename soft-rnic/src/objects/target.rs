//! XRC receive queue pairs, and the handles that programs know them by.
//!
//! One is in an XRC domain, and each context that has opened the domain can open it, too: each gets
//! a handle with a `qp_context` of its own, all handles get its events, and it goes with the last
//! of them.

use core::ffi::c_void;
use std::sync::Arc;

use host::sync::Mutex;
use rustix::io::Errno;
use verbs_sys::*;

use crate::alloc;
use crate::check::checker::Object;
use crate::errno;
use crate::objects::qp::{Extras, QpParts, enter};
use crate::objects::state::{Context, Element, PeerProcesses, Qp, QueuedEvent, XrcTarget, Xrcd};
use crate::peers::process::directory::slot_of;
use crate::queues::pending::PendingWqes;
use crate::queues::qp_state::QpTransport;
use crate::queues::recv_ring::RecvRing;

use ibv_qp_open_attr_mask as Mask;
const NEEDED: u32 =
    Mask::IBV_QP_OPEN_ATTR_NUM.0 | Mask::IBV_QP_OPEN_ATTR_XRCD.0 | Mask::IBV_QP_OPEN_ATTR_TYPE.0;
const CONTEXT: u32 = Mask::IBV_QP_OPEN_ATTR_CONTEXT.0;

/// It posts nothing of its own.
const NO_QUEUES: ibv_qp_cap = ibv_qp_cap {
    max_send_wr: 0,
    max_recv_wr: 0,
    max_send_sge: 0,
    max_recv_sge: 0,
    max_inline_data: 0,
};

/// Parts that a queue pair, or a handle, is made from.
fn parts(
    context: &Arc<Context>,
    xrcd: &Arc<Xrcd>,
    opened: Option<Arc<Qp>>,
) -> Result<QpParts, Errno> {
    let transport = QpTransport::XrcRecv;
    // A ring has one slot at least.
    let room = ibv_qp_cap { max_send_wr: 1, max_send_sge: 1, ..NO_QUEUES };
    Ok(QpParts {
        context: Arc::clone(context),
        transport,
        cap: NO_QUEUES,
        sig_all: false,
        pending: PendingWqes::new(&room, transport)?,
        rq: RecvRing::new(xrcd.pd.id, (0, 0), None)?,
        pd: Arc::clone(&xrcd.pd),
        send_cq: Arc::clone(&xrcd.cq),
        recv_cq: Arc::clone(&xrcd.cq),
        srq: None,
        extras: Extras::default(),
        target: Some(Box::new(XrcTarget {
            xrcd: Arc::clone(xrcd),
            opened,
            handles: Mutex::default(),
        })),
    })
}

/// Creates a queue pair in a domain, and its first handle, through a context that shares the
/// domain.
pub(crate) fn create(
    context: &Arc<Context>,
    xrcd: &Arc<Xrcd>,
    user: *mut c_void,
) -> Result<*mut ibv_qp, Errno> {
    alloc::headroom()?;
    let in_domain = xrcd.pd.users.join()?;
    let qp = enter(parts(context, xrcd, None)?, user)?;
    in_domain.keep();
    let handle = new_handle(context, xrcd, &qp, user).inspect_err(|_| {
        qp.leave();
        qp.detach();
    })?;
    if let Some(target) = &qp.target {
        target.handles.lock().push(Arc::clone(&handle));
    }
    Ok(Arc::into_raw(handle).cast_mut().cast())
}

fn new_handle(
    context: &Arc<Context>,
    xrcd: &Arc<Xrcd>,
    qp: &Arc<Qp>,
    user: *mut c_void,
) -> Result<Arc<Qp>, Errno> {
    alloc::headroom()?;
    let parts = parts(context, xrcd, Some(Arc::clone(qp)))?;
    let handle = Arc::new(Qp::new(parts, qp.num, user));
    xrcd.users.add();
    handle.pd.context.made(Object::QueuePair, handle.num.into());
    Ok(handle)
}

pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::pointer(unsafe { Context::from_abi(context) }.and_then(|context| {
        context.device.offers(ibv_device_cap_flags::IBV_DEVICE_XRC)?;
        // SAFETY: `attr` is NULL, or the caller's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(errno::EINVAL)?;
        if attr.comp_mask & !(NEEDED | CONTEXT) != 0 {
            return Err(errno::EOPNOTSUPP);
        }
        let is_target = attr.qp_type == ibv_qp_type::IBV_QPT_XRC_RECV;
        if attr.comp_mask & NEEDED != NEEDED || !is_target {
            return Err(errno::EINVAL);
        }
        // SAFETY: `attr.xrcd` is NULL or a live XRC domain of ours, as `ibv_open_qp` asks.
        let xrcd = unsafe { Xrcd::from_abi(attr.xrcd) }?;
        if !xrcd.context().shares(&context) {
            return Err(errno::EINVAL);
        }
        let has_user = attr.comp_mask & CONTEXT != 0;
        let user = if has_user { attr.qp_context } else { core::ptr::null_mut() };
        open(&context, &xrcd, attr.qp_num, user)
    }))
}

fn open(
    context: &Arc<Context>,
    xrcd: &Arc<Xrcd>,
    num: u32,
    user: *mut c_void,
) -> Result<*mut ibv_qp, Errno> {
    let device = &xrcd.context().device;
    let base = device.peers.as_ref().map_or(0, PeerProcesses::base);
    let Some(qp) = device.qps.get(num) else {
        // What another process has made is in that process.
        let is_elsewhere = num <= 0x00ff_ffff && slot_of(num) != slot_of(base);
        return Err(if is_elsewhere { errno::EOPNOTSUPP } else { errno::EINVAL });
    };
    let is_same = |target: &&XrcTarget| Arc::ptr_eq(&target.xrcd.domain, &xrcd.domain);
    let target = qp.target.as_deref().filter(is_same).ok_or(errno::EINVAL)?;
    let mut handles = target.handles.lock();
    // It goes with its last handle.
    if handles.is_empty() {
        return Err(errno::EINVAL);
    }
    let handle = new_handle(context, xrcd, &qp, user)?;
    handles.push(Arc::clone(&handle));
    drop(handles);
    handle.show_state();
    Ok(Arc::into_raw(handle).cast_mut().cast())
}

impl XrcTarget {
    /// An asynchronous event of the queue pair, which each handle gets.
    pub(crate) fn raise(&self, event_type: ibv_event_type) {
        for handle in &*self.handles.lock() {
            let element = Element::Qp(Arc::clone(handle));
            handle.context.events.push(QueuedEvent { element, event_type });
        }
    }
}

impl Qp {
    /// The queue pair that a handle stands for; any other queue pair is its own.
    pub(crate) fn real(self: &Arc<Qp>) -> &Arc<Qp> {
        self.target.as_ref().and_then(|target| target.opened.as_ref()).unwrap_or(self)
    }

    /// Shows the queue pair's state in a handle's struct.
    pub(crate) fn show_state(self: &Arc<Qp>) {
        let real = self.real();
        if Arc::ptr_eq(real, self) {
            return;
        }
        let _shown = self.sq.lock();
        // SAFETY: only here, under the lock; callers only read it.
        unsafe { (*self.abi.get()).qp_base.state = real.state().abi() };
    }

    /// Lets a handle go, and with the last one the queue pair.
    pub(crate) fn close(self: &Arc<Qp>) {
        let real = self.real();
        let Some(target) = &real.target else { return };
        let mut handles = target.handles.lock();
        handles.retain(|handle| !Arc::ptr_eq(handle, self));
        let is_last = handles.is_empty();
        drop(handles);
        if is_last {
            real.leave();
            real.detach();
        }
    }
}
