//! The verbs of completion queues.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use std::sync::Arc;

use host::plant::{Plant, is_planted};
use rustix::io::Errno;
use verbs_sys::*;

use crate::objects::cq::producer::ArmState;
use crate::objects::device::admit;
use crate::objects::in_arc::InArc;
use crate::objects::state::{CompChannel, Context, Cq, CqRing, Device, Element, ExtendedCqState};
use crate::objects::users::NewUser;
use crate::timing::card::SMALL;
use crate::timing::charge::charge;
use crate::{errno, limits};

pub(crate) unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    // SAFETY: NULL, or objects of ours.
    errno::pointer(unsafe {
        Context::from_abi(context)
            .and_then(|context| create(&context, cqe, (cq_context, channel), comp_vector, None))
    })
}

/// Creates a completion queue of at least `cqe` entries; `user` is the caller's own pointer, and
/// the channel or NULL.
///
/// # Safety
/// The channel is NULL or a live one of ours.
pub(super) unsafe fn create(
    context: &Arc<Context>,
    cqe: c_int,
    user: (*mut c_void, *mut ibv_comp_channel),
    comp_vector: c_int,
    extended: Option<ExtendedCqState>,
) -> Result<*mut ibv_cq, Errno> {
    errno::memory()?;
    // SAFETY: the channel is NULL or a live one of ours (see # Safety).
    let channel = unsafe { CompChannel::from_abi(user.1) };
    let len = ring_len(&context.device, cqe)?;
    let foreign = channel.as_ref().is_some_and(|c| !c.context.shares(context));
    if comp_vector != 0 || foreign {
        return Err(errno::EINVAL);
    }
    let domain = extended.as_ref().and_then(|extended| extended.domain.clone());
    let in_domain = domain.as_ref().map(|domain| domain.users.join()).transpose()?;
    let ring = CqRing::new(len, extended.as_ref().and_then(ExtendedCqState::lender))?;
    admit(&context.device.population.cqs, limits::MAX_CQ)?;
    let channel = channel.as_ref().map(InArc::keep);
    if let Some(channel) = &channel {
        channel.users.add();
    }
    in_domain.into_iter().for_each(NewUser::keep);
    let cq = Arc::new(Cq::new(Arc::clone(context), channel, ring, user.0, extended));
    cq.made();
    Ok(Arc::into_raw(cq).cast_mut().cast())
}

/// Entries that a completion queue of a device on the network has at least, as with cards: a
/// completion arrives some time after what it answers, and a program with a queue of one entry
/// polls it then.
const WIRED_CQE: u32 = 16;

/// Slots for `cqe` entries.
fn ring_len(device: &Device, cqe: c_int) -> Result<u32, Errno> {
    let least = if device.wire().is_some() { WIRED_CQE } else { 1 };
    match u32::try_from(cqe) {
        Ok(cqe @ 1..=limits::MAX_CQE) => Ok(cqe.next_power_of_two().max(least)),
        _ => Err(errno::EINVAL),
    }
}

pub(crate) unsafe extern "C" fn resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: NULL, or a completion queue of ours.
    errno::code(
        unsafe { Cq::named(cq) }.and_then(|cq| cq.resize(ring_len(&cq.context.device, cqe)?)),
    )
}

pub(crate) unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: NULL, or a completion queue that the caller gives back.
    errno::code(unsafe { Cq::named(cq) }.and_then(|object| {
        object.users.end().inspect_err(|error| object.check_in_use(*error))?;
        object.check_acknowledged();
        object.retire();
        let is_this = |other: &Arc<Cq>| core::ptr::eq(Arc::as_ptr(other), &raw const **object);
        if let Some(channel) = &object.channel {
            channel.events.remove(is_this);
            object.channel_acks.wait();
            channel.users.leave();
        }
        object.context.events.remove(|e| matches!(&e.element, Element::Cq(cq) if is_this(cq)));
        object.async_acks.wait();
        object.context.device.population.cqs.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: it has no users, and the caller uses it no more.
        unsafe { object.give_back() };
        if let Some(domain) = object.extended.as_ref().and_then(|own| own.domain.as_ref()) {
            domain.users.leave();
        }
        object.check_gone();
        // SAFETY: takes back the reference of `create_cq`.
        unsafe { Arc::decrement_strong_count(cq.cast::<Cq>()) };
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn poll_cq(
    cq: *mut ibv_cq,
    num_entries: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    // SAFETY: `ibv_poll_cq` asks for a live `cq`, and a `wc` with room for `num_entries`.
    errno::count(unsafe { poll(cq, num_entries, wc) })
}

/// # Safety
/// That of the verb.
#[inline(always)]
unsafe fn poll(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> Result<u32, Errno> {
    if num_entries <= 0 || wc.is_null() {
        return if num_entries == 0 { Ok(0) } else { Err(errno::EINVAL) };
    }
    host::point();
    // SAFETY: NULL, or a completion queue of ours.
    let cq = unsafe { Cq::from_abi(cq) }?;
    if !cq.is_plain {
        // SAFETY: as below.
        return unsafe { poll_other(&cq, num_entries as u32, wc) };
    } else if !cq.has_entry() {
        crate::fabric::process::peer_processes::look_around(&cq.context.device);
    }
    // SAFETY: the caller's array has room for `num_entries`.
    let n = unsafe { cq.poll(wc, num_entries as u32) };
    if n == 0 && cq.dead.load(Ordering::Relaxed) {
        return Err(errno::EINVAL);
    }
    Ok(n)
}

/// [`poll_cq`] of a device that does something first, or of completions with times: an `ibv_wc`
/// has no place for those.
///
/// # Safety
/// `wc` has room for `num_entries`.
#[cold]
unsafe fn poll_other(cq: &Cq, num_entries: u32, wc: *mut ibv_wc) -> Result<u32, Errno> {
    // SAFETY: `wc` has room for `num_entries` (see # Safety).
    let n = unsafe { take(cq, num_entries, wc) }?;
    if cq.has_times() {
        for i in 0..n as usize {
            // SAFETY: one of the completions that were written.
            unsafe { wc.add(i).cast::<u64>().add(5).write_unaligned(0) };
        }
    }
    Ok(n)
}

/// Takes completions as they are in the queue, with their times; does before what the device has
/// to do before a poll.
///
/// # Safety
/// As [`poll_other`].
#[cold]
pub(super) unsafe fn take(cq: &Cq, num_entries: u32, wc: *mut ibv_wc) -> Result<u32, Errno> {
    let device = &cq.context.device;
    let card = if device.is_synchronous() { None } else { device.card() };
    let card = card.map(|card| (card, host::time::now()));
    host::watch(cq);
    if !device.is_synchronous() {
        crate::schedule::sim::steps_before_poll(device);
        crate::schedule::distance::look(device);
        crate::fabric::wire::progress::look(device);
    }
    if !cq.has_entry() {
        crate::fabric::process::peer_processes::look_around(device);
    }
    // SAFETY: `wc` has room for `num_entries` (see # Safety).
    let n = unsafe { cq.poll(wc, num_entries) };
    if cq.trace.is_some() || cq.check.is_some() {
        // SAFETY: `n` completions were written there.
        unsafe { watch_poll(cq, wc, n) };
    }
    if let Some((card, start)) = card {
        // SAFETY: `cq.poll` has written `n` completions to `wc`.
        charge(start, card.poll(n, unsafe { small_receives(wc, n) }));
    }
    if n == 0 && cq.dead.load(Ordering::Relaxed) {
        return Err(errno::EINVAL);
    }
    Ok(n)
}

/// Counts those of messages that a card puts into their completion.
///
/// # Safety
/// `wc` has `n` completions, as words.
unsafe fn small_receives(wc: *const ibv_wc, n: u32) -> u32 {
    let is_small = |i: &u32| {
        // SAFETY: `i < n`, and the caller has had `n` completions written to `wc`.
        let words = unsafe { wc.add(*i as usize).cast::<[u64; 6]>().read_unaligned() };
        // Word 1 is status and opcode; the high half of word 2 is the number of bytes.
        let is_receive = words[1] == u64::from(ibv_wc_opcode::IBV_WC_RECV.0) << 32;
        is_receive && (1..=SMALL).contains(&(words[2] >> 32))
    };
    (0..n).filter(is_small).count() as u32
}

/// Traces and checks what a poll has taken.
///
/// # Safety
/// `wc` has `n` completions, as words.
unsafe fn watch_poll(cq: &Cq, wc: *const ibv_wc, n: u32) {
    for i in 0..n as usize {
        // SAFETY: `i < n`, and `wc` has `n` completions (see # Safety).
        let words = unsafe { wc.add(i).cast::<[u64; 6]>().read_unaligned() };
        if let Some(trace) = &cq.trace {
            trace.polled(&words);
        }
        let Some(qp) = cq.context.device.qps.get((words[3] >> 32) as u32) else { continue };
        if let Some(queue) = qp.trace() {
            // Relaxed, here and below: counts that guard no memory.
            queue.polled(|| qp.freed.load(Ordering::Relaxed));
        }
        qp.check_poll(&words, qp.freed.load(Ordering::Relaxed));
    }
    if let Some(trace) = &cq.trace {
        trace.consumed(|| cq.head.load(Ordering::Relaxed));
    }
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: NULL, or a completion queue of ours.
    errno::code(unsafe { Cq::named(cq) }.map(|cq| {
        let mut producer = cq.producer.lock();
        if is_planted(Plant::LockOrder) {
            cq.context.device.qps.all().iter().for_each(|qp| drop(qp.sq.lock()));
        }
        // An arming for any completion is not weakened by a later one.
        if solicited_only == 0 {
            producer.armed = ArmState::Any;
        } else if producer.armed != ArmState::Any {
            producer.armed = ArmState::Solicited;
        }
        drop(producer);
        if !cq.context.device.is_synchronous() {
            crate::fabric::wire::progress::before_waiting(&cq.context.device);
        }
        if let Some(channel) = &cq.channel {
            let events = &channel.events;
            let blocks = || !events.is_nonblocking();
            crate::fabric::process::progress_thread::before_waiting(
                &cq.context.device,
                events.set(),
                blocks,
            );
        }
    }))
}
