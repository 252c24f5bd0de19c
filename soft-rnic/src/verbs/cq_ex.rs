//! Extended completion queues: completions are looked at one by one, through functions of the
//! queue, and only the fields that the program wants are read.
//!
//! `start_poll` takes the first completion and keeps the queue for the calling thread, as the
//! manual page asks; `next_poll` takes one more, `end_poll` lets go. A completion that was taken
//! has left the queue: what a thread keeps is a lock of its own, so that the queue can be polled
//! by `ibv_poll_cq`, filled, and rid of a queue pair's completions meanwhile.
//!
//! `IBV_CREATE_CQ_ATTR_SINGLE_THREADED` changes nothing: a lock that nobody else wants costs one
//! exchange for a whole poll. A queue with `IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN` drops the
//! completions for which it has no room, and lives on.

use core::ffi::c_int;
use core::mem::ManuallyDrop;

use rustix::io::Errno;
use verbs_sys::*;

use crate::lock::Lock;
use crate::objects::state::{Context, Cq, ExtendedCqState};
use crate::{clock, errno};

use super::domain::parent_from_abi;

/// Fields of a completion that the device knows. There are no VLANs, flow tags or tags here.
const FIELDS: u64 = IBV_WC_STANDARD_FLAGS.0 as u64 | TIMES;
const TIMES: u64 = ibv_create_cq_wc_flags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP.0 as u64
    | ibv_create_cq_wc_flags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK.0 as u64;
const MASK_FLAGS: u32 = ibv_cq_init_attr_mask::IBV_CQ_INIT_ATTR_MASK_FLAGS.0;
const MASK_PD: u32 = ibv_cq_init_attr_mask::IBV_CQ_INIT_ATTR_MASK_PD.0;
const MASK: u32 = MASK_FLAGS | MASK_PD;
const IGNORE_OVERRUN: u32 = ibv_create_cq_attr_flags::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN.0;
const FLAGS: u32 = ibv_create_cq_attr_flags::IBV_CREATE_CQ_ATTR_SINGLE_THREADED.0 | IGNORE_OVERRUN;

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: NULL, or a context of ours and the caller's attributes.
    errno::pointer(unsafe { Context::from_abi(context) }.and_then(|context| {
        // SAFETY: `attr` is NULL, or the caller's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(errno::EINVAL)?;
        let flags = if attr.comp_mask & MASK_FLAGS != 0 { attr.flags } else { 0 };
        if attr.comp_mask & !MASK != 0 || attr.wc_flags & !FIELDS != 0 || flags & !FLAGS != 0 {
            return Err(errno::EOPNOTSUPP);
        }
        let domain = match attr.comp_mask & MASK_PD {
            0 => None,
            // SAFETY: `attr.parent_domain` is NULL or a live domain of ours, as `ibv_create_cq_ex`
            // asks.
            _ => Some(unsafe { parent_from_abi(&context, attr.parent_domain) }?),
        };
        let extended = ExtendedCqState {
            entry: Lock::new([0; 6]),
            has_times: attr.wc_flags & TIMES != 0,
            ignores_overrun: flags & IGNORE_OVERRUN != 0,
            domain,
        };
        let cqe = c_int::try_from(attr.cqe).map_err(|_| errno::EINVAL)?;
        let vector = c_int::try_from(attr.comp_vector).map_err(|_| errno::EINVAL)?;
        let user = (attr.cq_context, attr.channel);
        // SAFETY: the caller's objects.
        let cq = unsafe { super::cq::create(&context, cqe, user, vector, Some(extended)) }?;
        let abi = cq.cast::<ibv_cq_ex>();
        // SAFETY: no one else knows the queue yet.
        fill(unsafe { &mut *abi });
        Ok(abi)
    }))
}

/// Every function is there, whatever fields were asked for: a program that reads others gets what
/// the device has, or 0.
fn fill(cq: &mut ibv_cq_ex) {
    fill! { cq;
        start_poll next_poll end_poll read_opcode read_vendor_err read_byte_len read_imm_data
        read_qp_num read_src_qp read_wc_flags read_completion_ts read_completion_wallclock_ns
    }
    cq.read_slid = Some(nothing);
    cq.read_sl = Some(nothing_short);
    cq.read_dlid_path_bits = Some(nothing_short);
    cq.read_cvlan = Some(no_vlan);
    cq.read_flow_tag = Some(nothing);
    cq.read_tm_info = Some(no_tag);
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: NULL, or a queue of ours and the caller's attributes.
    let (object, attr) = unsafe { (extended(cq), attr.as_ref()) };
    let (Some((object, extended)), Some(ibv_poll_cq_attr { comp_mask: 0 })) = (object, attr) else {
        return errno::code(Err(errno::EINVAL));
    };
    let mut entry = extended.entry.lock();
    // SAFETY: the queue is the caller's.
    errno::code(unsafe { take(cq, object, &mut entry) }.map(|()| {
        // Kept for this thread until `end_poll`.
        core::mem::forget(entry);
    }))
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: NULL, or a queue of ours.
    errno::code(unsafe { extended(cq) }.ok_or(errno::EINVAL).and_then(|(object, extended)| {
        // SAFETY: the caller has started to poll.
        let entry = unsafe { extended.entry.resume() }.ok_or(errno::EINVAL)?;
        // It stays kept.
        let mut entry = ManuallyDrop::new(entry);
        // SAFETY: the queue is the caller's.
        unsafe { take(cq, object, &mut entry) }
    }))
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: NULL, or a queue of ours, which the caller has started to poll.
    unsafe { extended(cq).map(|(_, extended)| drop(extended.entry.resume())) };
}

/// Takes the next completion; `ENOENT` if there is none.
///
/// # Safety
/// `cq` is the ABI's struct of `object`, and its `entry` is the caller's.
unsafe fn take(cq: *mut ibv_cq_ex, object: &Cq, entry: &mut [u64; 6]) -> Result<(), Errno> {
    // SAFETY: room for one completion, of as many bytes.
    let n = unsafe { super::cq::take(object, 1, core::ptr::from_mut(entry).cast()) }?;
    if n == 0 {
        return Err(errno::ENOENT);
    }
    // SAFETY: the program reads these only while it polls.
    unsafe {
        (*cq).wr_id = entry[0];
        (*cq).status = ibv_wc_status(low(entry[1]));
    }
    Ok(())
}

/// The queue and what it has as an extended one.
///
/// # Safety
/// `cq` is NULL or a live completion queue of ours.
unsafe fn extended<'a>(cq: *mut ibv_cq_ex) -> Option<(&'a Cq, &'a ExtendedCqState)> {
    // SAFETY: `cq` is NULL or a live completion queue of ours (see # Safety).
    let object = unsafe { Cq::from_abi(cq.cast()) }.ok()?.object();
    Some((object, object.extended.as_ref()?))
}

/// Word `i` of the completion that is looked at; 0 if none is.
///
/// # Safety
/// `cq` is NULL, or a live completion queue of ours that the calling thread polls.
unsafe fn word(cq: *mut ibv_cq_ex, i: usize) -> u64 {
    // SAFETY: `cq` is NULL, or a live queue of ours that this thread polls, so that it took `entry`
    // (see # Safety).
    let entry = unsafe { extended(cq).and_then(|(_, extended)| extended.entry.resume()) };
    entry.map(ManuallyDrop::new).map_or(0, |entry| entry[i])
}

const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Functions that read a part of the completion: its words are those of an `ibv_wc`.
macro_rules! read {
    ($($name:ident -> $ty:ty = |$word:ident: $i:literal| $value:expr;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $ty {
            // SAFETY: the program calls it while it polls a queue of ours.
            let $word = unsafe { word(cq, $i) };
            $value
        })*
    };
}

read! {
    read_opcode -> ibv_wc_opcode = |word: 1| ibv_wc_opcode(high(word));
    read_vendor_err -> u32 = |word: 2| low(word);
    read_byte_len -> u32 = |word: 2| high(word);
    read_imm_data -> __be32 = |word: 3| low(word);
    read_qp_num -> u32 = |word: 3| high(word);
    read_src_qp -> u32 = |word: 4| low(word);
    read_wc_flags -> u32 = |word: 4| high(word);
    read_completion_ts -> u64 = |word: 5| word;
    read_completion_wallclock_ns -> u64 = |word: 5| if word == 0 { 0 } else { clock::wall_time(word) };
}

/// RoCE has no local identifiers; this device has no flow tags.
unsafe extern "C" fn nothing(_cq: *mut ibv_cq_ex) -> u32 {
    0
}

unsafe extern "C" fn nothing_short(_cq: *mut ibv_cq_ex) -> u8 {
    0
}

unsafe extern "C" fn no_vlan(_cq: *mut ibv_cq_ex) -> u16 {
    0
}

unsafe extern "C" fn no_tag(_cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: NULL, or the caller's place.
    if let Some(info) = unsafe { info.as_mut() } {
        *info = ibv_wc_tm_info::default();
    }
}

/// Moderates events; there is nothing else to modify.
pub(crate) unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    const MODERATE: u32 = ibv_cq_attr_mask::IBV_CQ_ATTR_MODERATE.0;
    // SAFETY: NULL, or a queue of ours and the caller's attributes.
    errno::code(unsafe { Cq::from_abi(cq) }.and_then(|cq| {
        // SAFETY: `attr` is NULL, or the caller's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(errno::EINVAL)?;
        match attr.attr_mask {
            0 => Err(errno::EINVAL),
            MODERATE => cq.moderate(attr.moderate.cq_count, attr.moderate.cq_period),
            _ => Err(errno::EOPNOTSUPP),
        }
    }))
}

/// The clock in nanoseconds, all of them in `tv_nsec`, as cards give the ticks of theirs.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    // SAFETY: NULL, or the caller's struct.
    let (Some(values), false) = (unsafe { values.as_mut() }, context.is_null()) else {
        return errno::code(Err(errno::EINVAL));
    };
    values.comp_mask &= ibv_values_mask::IBV_VALUES_MASK_RAW_CLOCK.0;
    if values.comp_mask != 0 {
        values.raw_clock = timespec { tv_sec: 0, tv_nsec: clock::now().cast_signed() };
    }
    0
}
