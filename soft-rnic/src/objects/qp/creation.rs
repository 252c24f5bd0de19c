//! Creation of a queue pair, and the checks of its attributes.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16};
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::check::checker::Object;
use crate::event::Acks;
use crate::lock::{Lock, Padded};
use crate::memory::span::RequestScratch;
use crate::objects::in_arc::InArc;
use crate::objects::state::{Context, Cq, Pd, PeerProcesses, Qp, Slack, Sq, Srq, XrcTarget};
use crate::queues::batch::WrBatch;
use crate::queues::pending::PendingWqes;
use crate::queues::qp_state::{QpTransport, QueuePairState};
use crate::queues::queue_memory::Resource;
use crate::queues::recv_ring::RecvRing;
use crate::queues::requester::RequesterState;
use crate::{errno, limits};

/// Send requests that a queue pair on the network has room for at least.
const WIRED_SEND_WR: u32 = 16;

pub(crate) unsafe extern "C" fn create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::pointer(unsafe {
        Pd::from_abi(pd).and_then(|pd| {
            create(&pd.context, &pd, attr.as_mut().ok_or(errno::EINVAL)?, Extras::default())
        })
    })
}

/// Attributes that only `ibv_create_qp_ex` has.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Extras {
    /// The newer send interface, for these operations.
    pub(crate) ops: Option<u64>,
    pub(crate) blocks_own_multicast: bool,
}

/// Creates a queue pair through a context, which shares the domain.
///
/// # Safety
/// The pointers of `attr` are NULL or live objects of ours.
pub(crate) unsafe fn create(
    context: &Arc<Context>,
    pd: &Arc<Pd>,
    attr: &mut ibv_qp_init_attr,
    extras: Extras,
) -> Result<*mut ibv_qp, Errno> {
    errno::memory()?;
    let transport = QpTransport::from_abi(attr.qp_type).ok_or(errno::EOPNOTSUPP)?;
    if matches!(transport, QpTransport::XrcSend | QpTransport::XrcRecv) {
        pd.context.device.offers(ibv_device_cap_flags::IBV_DEVICE_XRC)?;
    }
    if transport == QpTransport::XrcRecv {
        // It is in an XRC domain, and in no other.
        return Err(errno::EINVAL);
    }
    let only_sends = transport == QpTransport::XrcSend;
    // SAFETY: the pointers of `attr` are NULL or live objects of ours (see # Safety).
    let (send_cq, recv_cq, srq) = unsafe {
        let send_cq = Cq::named(attr.send_cq)?.keep();
        match only_sends {
            true => (Arc::clone(&send_cq), send_cq, None),
            false => {
                let has_srq = !attr.srq.is_null();
                let srq = has_srq.then(|| Srq::named(attr.srq)).transpose()?;
                (send_cq, Cq::named(attr.recv_cq)?.keep(), srq.as_ref().map(InArc::keep))
            }
        }
    };
    let same = |other: &Context| context.shares(other);
    let all_same = same(&send_cq.context) && same(&recv_cq.context);
    if !all_same || srq.as_ref().is_some_and(|srq| srq.xrc.is_some() || !same(&srq.pd.context)) {
        return Err(errno::EINVAL);
    }
    let mut cap = grant(&attr.cap, only_sends || srq.is_some())?;
    if pd.context.device.wire().is_some() {
        // A reply may come before the acknowledgement of what it answers, and a program that has
        // one request under way at a time posts the next one then.
        cap.max_send_wr = cap.max_send_wr.max(WIRED_SEND_WR);
    }
    let in_domain = pd.users.join()?;
    let pd = Arc::clone(pd);
    let sig_all = attr.sq_sig_all != 0;
    let pending = PendingWqes::new(&cap, transport)?;
    // Nothing can be posted to the receive queue of an end of XRC.
    let capacity = if only_sends { 0 } else { cap.max_recv_wr.max(1) };
    let rq = RecvRing::new(pd.id, (capacity, cap.max_recv_sge), pd.lender(Resource::Qp))?;
    let (context, target) = (Arc::clone(context), None);
    let parts = QpParts {
        context,
        transport,
        cap,
        sig_all,
        pending,
        rq,
        pd,
        send_cq,
        recv_cq,
        srq,
        extras,
        target,
    };
    let qp = enter(parts, attr.qp_context)?;
    in_domain.keep();
    attr.cap = qp.cap;
    qp.pd.context.made(Object::QueuePair, qp.num.into());
    Ok(Arc::into_raw(qp).cast_mut().cast())
}

/// Makes a queue pair that messages reach; its domain counts it already.
pub(crate) fn enter(parts: QpParts, user: *mut core::ffi::c_void) -> Result<Arc<Qp>, Errno> {
    let device = Arc::clone(&parts.pd.context.device);
    let base = device.peers.as_ref().map_or(0, PeerProcesses::base);
    let qp = device.qps.insert(base, |num| Arc::new(Qp::new(parts, num, user)))?;
    qp.publish_qp();
    qp.attach();
    Ok(qp)
}

/// Parts that a queue pair is made from.
pub(crate) struct QpParts {
    /// The context that it is made through.
    pub(crate) context: Arc<Context>,
    pub(crate) transport: QpTransport,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) sig_all: bool,
    pub(crate) pending: PendingWqes,
    pub(crate) rq: RecvRing,
    pub(crate) pd: Arc<Pd>,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) srq: Option<Arc<Srq>>,
    pub(crate) extras: Extras,
    pub(crate) target: Option<Box<XrcTarget>>,
}

/// Capabilities for a request: queues are powers of two, lists have at least one
/// entry, inline data come in cache lines; a shared receive queue leaves none of
/// one's own.
fn grant(cap: &ibv_qp_cap, has_srq: bool) -> Result<ibv_qp_cap, Errno> {
    let over = cap.max_send_wr > limits::MAX_QP_WR
        || cap.max_send_sge > limits::MAX_SGE
        || cap.max_inline_data > limits::MAX_INLINE
        || (!has_srq && cap.max_recv_wr > limits::MAX_QP_WR)
        || (!has_srq && cap.max_recv_sge > limits::MAX_SGE);
    if over {
        return Err(errno::EINVAL);
    }
    let depth = |n: u32| n.max(1).next_power_of_two();
    Ok(ibv_qp_cap {
        max_send_wr: depth(cap.max_send_wr),
        max_recv_wr: if has_srq { 0 } else { depth(cap.max_recv_wr) },
        max_send_sge: cap.max_send_sge.max(1),
        max_recv_sge: if has_srq { 0 } else { cap.max_recv_sge.max(1) },
        max_inline_data: cap.max_inline_data.next_multiple_of(64),
    })
}

impl Qp {
    pub(crate) fn new(parts: QpParts, num: u32, user: *mut core::ffi::c_void) -> Qp {
        let (trace, check, faults) = (parts.trace(num), parts.check(num), parts.faults());
        let QpParts { context, transport, cap, sig_all, pending, rq, pd, .. } = parts;
        let QpParts { send_cq, recv_cq, srq, extras, target, .. } = parts;
        // SAFETY: zero is a valid value of every field of both.
        let (mut ex, attr): (ibv_qp_ex, ibv_qp_attr) = unsafe { core::mem::zeroed() };
        let abi = &mut ex.qp_base;
        abi.context = context.as_abi();
        abi.qp_context = user;
        // What stands for an object that the program does not know is not shown.
        if transport != QpTransport::XrcRecv {
            abi.pd = Arc::as_ptr(&pd).cast_mut().cast();
            abi.send_cq = send_cq.as_abi();
        }
        let is_xrc = matches!(transport, QpTransport::XrcSend | QpTransport::XrcRecv);
        if !is_xrc {
            abi.recv_cq = recv_cq.as_abi();
        }
        abi.srq = srq.as_ref().map_or(core::ptr::null_mut(), Srq::as_abi);
        abi.handle = num;
        abi.qp_num = num;
        abi.state = ibv_qp_state::IBV_QPS_RESET;
        abi.qp_type = transport.abi();
        let sq = Sq {
            requester: RequesterState::default(),
            pending,
            peer: None,
            remote: None,
            wire: None,
            counters: crate::counters::Counters::default(),
            scratch: RequestScratch::new(),
            draining: false,
            transit_times: None,
            settling: None,
            attr,
        };
        Qp {
            abi: UnsafeCell::new(ex),
            slack: Slack::default(),
            num,
            transport,
            sig_all,
            is_watched: trace.is_some() || check.is_some(),
            has_faults: faults.is_some(),
            cap,
            pd,
            send_cq,
            recv_cq,
            srq,
            rq,
            state: AtomicU8::new(QueuePairState::Reset as u8),
            cause: AtomicU16::new(0),
            last_wqe_said: AtomicBool::new(false),
            owes_response: AtomicBool::new(false),
            async_acks: Acks::default(),
            freed: Padded::default(),
            blocking: crate::peers::process::serving::BlockingFlags::default(),
            sq: Padded(Lock::new(sq)),
            responder: Padded::default(),
            batch: extras.ops.map(|ops| Box::new(Lock::new(WrBatch::new(ops)))),
            target,
            blocks_own_multicast: extras.blocks_own_multicast,
            trace,
            check,
            faults,
            context,
        }
    }

    /// Makes what it uses know about it.
    fn attach(self: &Arc<Qp>) {
        self.send_cq.attach(self);
        self.recv_cq.attach(self);
        if let Some(srq) = &self.srq {
            srq.users.add();
        }
    }
}
