//! Shared receive queues.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::alloc;
use crate::check::checker::Object;
use crate::event::Acks;
use crate::lock::Padded;
use crate::objects::checked::check_receive;
use crate::objects::device::admit;
use crate::objects::in_arc::InArc;
use crate::objects::state::{Context, Cq, Element, Pd, QueuedEvent, Srq, XrcSrq, Xrcd};
use crate::objects::users::Users;
use crate::queues::queue_memory::Resource;
use crate::queues::recv_ring::{RecvRing, SrqTaker, recv_len};
use crate::timing::card::SrqTimes;
use crate::timing::charge::Charged;
use crate::{errno, limits};

impl Srq {
    /// The object behind a caller's pointer.
    ///
    /// # Safety
    /// `srq` is NULL or a live shared receive queue of ours.
    #[inline]
    pub(crate) unsafe fn from_abi<'a>(srq: *mut ibv_srq) -> Result<InArc<'a, Srq>, Errno> {
        // SAFETY: `srq` is NULL or live (see # Safety), and every one lives in an `Arc`.
        unsafe { InArc::new(srq.cast::<Srq>()) }.ok_or(errno::EINVAL)
    }

    pub(crate) fn as_abi(self: &Arc<Srq>) -> *mut ibv_srq {
        Arc::as_ptr(self).cast_mut().cast()
    }

    /// No message takes anything from an XRC receive queue any more.
    fn withdraw(&self) {
        let device = &self.pd.context.device;
        if let Some(peers) = &device.peers {
            peers.withdraw_srq(self.num);
        }
        device.xrc.remove(self.num);
        // Messages that have found it are over then.
        device.quiesce();
    }

    /// Number of requests that can be taken before the limit event has to fire.
    #[inline]
    pub(crate) fn before_limit(&self, taker: &mut SrqTaker) -> u32 {
        match taker.limit {
            0 => u32::MAX,
            limit => self.ring.len(&mut taker.consumer).saturating_sub(limit),
        }
    }

    /// Fires the limit event, once, if fewer requests than the limit are left.
    #[inline]
    pub(crate) fn check_limit(self: &Arc<Srq>, taker: &mut SrqTaker) {
        if taker.limit != 0 && self.ring.len(&mut taker.consumer) < taker.limit {
            taker.limit = 0;
            let element = Element::Srq(Arc::clone(self));
            let event_type = ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED;
            self.context.events.push(QueuedEvent { element, event_type });
        }
    }
}

pub(crate) unsafe extern "C" fn create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::pointer(unsafe { Pd::from_abi(pd) }.and_then(|pd| {
        // SAFETY: `attr` is NULL, or the caller's attributes.
        let attr = unsafe { attr.as_mut() }.ok_or(errno::EINVAL)?;
        create(&pd.context, &pd, attr.srq_context, &mut attr.attr)
    }))
}

/// Creates a queue through a context, which shares the domain, and says what it has.
fn create(
    context: &Arc<Context>,
    pd: &Arc<Pd>,
    user: *mut core::ffi::c_void,
    attr: &mut ibv_srq_attr,
) -> Result<*mut ibv_srq, Errno> {
    errno::memory()?;
    let granted = grant(attr)?;
    let in_domain = pd.users.join()?;
    let ring = ring_of(pd, &granted)?;
    admit(&pd.context.device.population.srqs, limits::MAX_SRQ)?;
    in_domain.keep();
    let srq = Arc::new(new(context, Arc::clone(pd), ring, user, next_num(), None));
    pd.context.made(Object::SharedReceiveQueue, srq.num.into());
    *attr = granted;
    Ok(Arc::into_raw(srq).cast_mut().cast())
}

/// The attributes that a queue has for those that were asked for.
fn grant(attr: &ibv_srq_attr) -> Result<ibv_srq_attr, Errno> {
    if attr.max_wr > limits::MAX_SRQ_WR || attr.max_sge > limits::MAX_SGE {
        return Err(errno::EINVAL);
    }
    Ok(ibv_srq_attr {
        max_wr: attr.max_wr.max(1).next_power_of_two(),
        max_sge: attr.max_sge.max(1),
        srq_limit: 0,
    })
}

/// Creates an XRC receive queue. Others can name it from now on.
fn create_xrc(
    context: &Arc<Context>,
    pd: &Arc<Pd>,
    xrc: XrcSrq,
    user: *mut core::ffi::c_void,
    attr: &mut ibv_srq_attr,
) -> Result<*mut ibv_srq, Errno> {
    alloc::headroom()?;
    let granted = grant(attr)?;
    let in_domain = pd.users.join()?;
    let ring = ring_of(pd, &granted)?;
    let device = &pd.context.device;
    let (xrcd, cq) = (Arc::clone(&xrc.xrcd), Arc::clone(&xrc.cq));
    let make = |num| Arc::new(new(context, Arc::clone(pd), ring, user, num, Some(xrc)));
    let srq = device.xrc.insert(next_num, make)?;
    pd.context.made(Object::SharedReceiveQueue, srq.num.into());
    in_domain.keep();
    xrcd.users.add();
    cq.users.add();
    if let Some(peers) = &device.peers {
        peers.publish_srq(srq.num, xrcd.domain.id, pd.id);
    }
    *attr = granted;
    Ok(Arc::into_raw(srq).cast_mut().cast())
}

/// Creates a basic queue, or one of an XRC domain; the other types are `EOPNOTSUPP`.
pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    use ibv_srq_init_attr_mask as Mask;
    const PD: u32 = Mask::IBV_SRQ_INIT_ATTR_PD.0;
    const TYPE: u32 = Mask::IBV_SRQ_INIT_ATTR_TYPE.0;
    const XRC: u32 = Mask::IBV_SRQ_INIT_ATTR_XRCD.0 | Mask::IBV_SRQ_INIT_ATTR_CQ.0;
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::pointer(unsafe { Context::from_abi(context) }.and_then(|context| {
        // SAFETY: `attr` is NULL, or the caller's attributes.
        let attr = unsafe { attr.as_mut() }.ok_or(errno::EINVAL)?;
        let has_type = attr.comp_mask & TYPE != 0;
        let has = match attr.srq_type {
            ibv_srq_type::IBV_SRQT_BASIC => 0,
            _ if !has_type => 0,
            ibv_srq_type::IBV_SRQT_XRC => {
                context.device.offers(ibv_device_cap_flags::IBV_DEVICE_XRC)?;
                XRC
            }
            _ => return Err(errno::EOPNOTSUPP),
        };
        if attr.comp_mask & !(PD | TYPE | has) != 0 {
            return Err(errno::EOPNOTSUPP);
        }
        if attr.comp_mask & has != has {
            return Err(errno::EINVAL);
        }
        let pd = if attr.comp_mask & PD != 0 { attr.pd } else { core::ptr::null_mut() };
        // SAFETY: `pd` is NULL, or what `ibv_create_srq_ex` asks for: a live domain of ours.
        let pd = unsafe { Pd::from_abi(pd) }?;
        if !pd.context.shares(&context) {
            return Err(errno::EINVAL);
        }
        if has == 0 {
            return create(&context, &pd, attr.srq_context, &mut attr.attr);
        }
        // SAFETY: `attr` has these, as its mask says: an XRC domain and a completion queue of ours,
        // or NULL.
        let (xrcd, cq) = unsafe { (Xrcd::from_abi(attr.xrcd)?, Cq::named(attr.cq)?) };
        let same = |other: &Arc<Context>| other.shares(&context);
        if !same(xrcd.context()) || !same(&cq.context) {
            return Err(errno::EINVAL);
        }
        let xrc = XrcSrq { xrcd: xrcd.keep(), cq: cq.keep() };
        create_xrc(&context, &pd, xrc, attr.srq_context, &mut attr.attr)
    }))
}

pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, num: *mut u32) -> c_int {
    // SAFETY: NULL, or a queue of ours and the caller's place.
    errno::code(unsafe { Srq::named(srq) }.and_then(|srq| {
        // SAFETY: `num` is NULL, or the caller's place for a number.
        *unsafe { num.as_mut() }.ok_or(errno::EINVAL)? = srq.num;
        Ok(())
    }))
}

/// The number of the next queue: 24 bits, as the numbers of queue pairs.
fn next_num() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    // Relaxed: a number that guards no memory.
    (NEXT.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff).max(1)
}

fn ring_of(pd: &Pd, attr: &ibv_srq_attr) -> Result<RecvRing, Errno> {
    RecvRing::new(pd.id, (attr.max_wr, attr.max_sge), pd.lender(Resource::Srq))
}

fn new(
    context: &Arc<Context>,
    pd: Arc<Pd>,
    ring: RecvRing,
    user: *mut core::ffi::c_void,
    num: u32,
    xrc: Option<XrcSrq>,
) -> Srq {
    // SAFETY: zero is a valid value of every field.
    let mut abi: ibv_srq = unsafe { core::mem::zeroed() };
    abi.context = context.as_abi();
    abi.srq_context = user;
    abi.pd = Arc::as_ptr(&pd).cast_mut().cast();
    abi.handle = num;
    let tracer = pd.context.tracer.as_ref();
    let trace = tracer.and_then(|tracer| tracer.shared(num, ring.capacity()));
    let check = pd.context.check_srq(num, xrc.as_ref());
    Srq {
        abi: UnsafeCell::new(abi),
        pd,
        num,
        ring,
        taker: Padded::default(),
        users: Users::default(),
        turn: SrqTimes::default(),
        acks: Acks::default(),
        xrc,
        trace,
        check,
        context: Arc::clone(context),
    }
}

pub(crate) unsafe extern "C" fn modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::code(unsafe { Srq::named(srq) }.and_then(|srq| {
        // SAFETY: `attr` is NULL, or the caller's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(errno::EINVAL)?;
        let mask = mask as u32;
        // Resizing is a capability that the device does not claim.
        if mask & !ibv_srq_attr_mask::IBV_SRQ_LIMIT.0 != 0 {
            return Err(errno::EINVAL);
        }
        if mask != 0 {
            if attr.srq_limit > srq.ring.capacity() {
                return Err(errno::EINVAL);
            }
            srq.taker.lock().limit = attr.srq_limit;
        }
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::code(unsafe { Srq::named(srq) }.and_then(|srq| {
        // SAFETY: `attr` is NULL, or the caller's attributes.
        let attr = unsafe { attr.as_mut() }.ok_or(errno::EINVAL)?;
        let srq_limit = srq.taker.lock().limit;
        *attr =
            ibv_srq_attr { max_wr: srq.ring.capacity(), max_sge: srq.ring.max_sge(), srq_limit };
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: NULL, or a queue that the caller gives back.
    errno::code(unsafe { Srq::named(srq) }.and_then(|object| {
        object.users.end().inspect_err(|error| object.check_in_use(*error))?;
        if object.xrc.is_some() {
            object.withdraw();
        }
        if let Some(trace) = &object.trace {
            trace.destroyed();
        }
        if let Some(check) = &object.check {
            // A thread that takes messages may keep it, with a queue pair that has ended.
            check.clear();
        }
        object.pd.context.gone(Object::SharedReceiveQueue, object.num.into());
        let this: *const Srq = &raw const **object;
        let is_this = |other: &Arc<Srq>| core::ptr::eq(Arc::as_ptr(other), this);
        let context = &object.context;
        context.events.remove(|e| matches!(&e.element, Element::Srq(srq) if is_this(srq)));
        object.acks.wait();
        match &object.xrc {
            None => _ = context.device.population.srqs.fetch_sub(1, Ordering::Relaxed),
            Some(xrc) => {
                xrc.cq.users.leave();
                xrc.xrcd.users.leave();
            }
        }
        // SAFETY: it has no users, and the caller uses it no more; of one of XRC, `withdraw` has
        // waited for messages that had found it.
        unsafe { object.ring.give_back() };
        object.pd.users.leave();
        // SAFETY: takes back the reference of `create_srq`.
        unsafe { Arc::decrement_strong_count(srq.cast::<Srq>()) };
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: `ibv_post_srq_recv` asks for a live `srq`, a valid list `wr` and a writable `bad_wr`.
    unsafe { post::<false>(srq, wr, bad_wr) }
}

/// [`post_srq_recv`] of a process that is traced or checked.
pub(crate) unsafe extern "C" fn post_srq_recv_watched(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: `ibv_post_srq_recv` asks for a live `srq`, a valid list `wr` and a writable `bad_wr`.
    unsafe { post::<true>(srq, wr, bad_wr) }
}

/// # Safety
/// That of the verb.
#[inline(always)]
unsafe fn post<const WATCHED: bool>(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::code(unsafe { Srq::from_abi(srq) }.and_then(|srq| {
        if bad_wr.is_null() {
            return Err(errno::EINVAL);
        }
        // SAFETY: `bad_wr` is not NULL.
        unsafe { errno::memory_of_post(wr, bad_wr) }?;
        // SAFETY: the caller's list.
        let _charged = unsafe { Charged::for_receives(srq.pd.context.device.charging_card(), wr) };
        let mut poster = srq.ring.poster.lock();
        // SAFETY: the caller's list.
        let result = unsafe {
            match WATCHED {
                false => srq.ring.post(&mut poster, wr, bad_wr),
                true => srq.ring.post_noted(&mut poster, wr, bad_wr, |index, wr| {
                    if let Some(trace) = &srq.trace {
                        trace.posted_recv(index, wr.wr_id, recv_len(wr));
                    }
                    if let Some(check) = &srq.check {
                        check_receive(&srq.pd, check, wr);
                    }
                }),
            }
        };
        if let (true, Err(error)) = (WATCHED, result) {
            // SAFETY: the request that was refused, of the caller's list.
            srq.check_refused(unsafe { (*bad_wr).as_ref() }, error);
        }
        result
    }))
}
