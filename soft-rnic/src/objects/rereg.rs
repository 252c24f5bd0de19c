//! Registering a region again: its keys stay.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::errno;
use crate::memory::mr_table::NULL;
use crate::memory::published::PublishedRegion;
use crate::objects::mr::{Mr, MrAttr, ZERO_BASED, validate};
use crate::objects::state::Pd;
use crate::objects::users::NewUser;

const TRANSLATION: u32 = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_TRANSLATION.0;
const PD: u32 = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_PD.0;
const ACCESS: u32 = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_ACCESS.0;

/// Reason why a region was not registered again, as the manual page names it; `errno` has more.
enum ReregError {
    /// The region is as it was, or as another call makes it: the arguments do not go together, or
    /// there is such a call.
    Input(Errno),
    /// The region is as it was: the new memory cannot be had.
    NewMemory(Errno),
    /// The region can only be deregistered, or was.
    Command(Errno),
}

/// `ibv_rereg_mr`: an access meanwhile finds the old region, or the new one, or none, and fails
/// then; the keys are the same afterwards. While a process is stopped in the middle of an access
/// the call fails, and leaves the region without a valid key. As in the kernel, `errno` is `EBUSY`
/// while the region is being changed through another struct, and `ENOENT` when it was deregistered
/// through one.
pub(crate) unsafe extern "C" fn rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // SAFETY: `ibv_rereg_mr` asks for a live `mr`, and for a live `pd`, if it is to change. That no
    // other call names `mr` meanwhile is asked by us: docs/soft-device.md says so.
    let (code, error) = match unsafe { rereg(mr, flags as u32, pd, (addr, length), access as u32) }
    {
        Ok(()) => return 0,
        Err(ReregError::Input(error)) => (ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_INPUT, error),
        Err(ReregError::NewMemory(error)) => {
            (ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_DONT_FORK_NEW, error)
        }
        Err(ReregError::Command(error)) => (ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_CMD, error),
    };
    errno::set(error);
    code.0
}

/// # Safety
/// `mr` is NULL or a region of ours, which no other call names meanwhile; `pd` is NULL or a domain
/// of ours, if it matters.
unsafe fn rereg(
    mr: *mut ibv_mr,
    flags: u32,
    pd: *mut ibv_pd,
    (addr, length): (*mut c_void, usize),
    access: u32,
) -> Result<(), ReregError> {
    // SAFETY: `mr` is NULL or a region of ours, which no other call names meanwhile (see # Safety).
    let object = unsafe { mr.cast::<Mr>().as_mut() }.ok_or(ReregError::Input(errno::EINVAL))?;
    let has = |flag| flags & flag != 0;
    let known = ibv_rereg_mr_flags::IBV_REREG_MR_FLAGS_SUPPORTED.0;
    let nothing_new = has(TRANSLATION) && (length == 0 || addr.is_null());
    if flags == 0 || flags & !known != 0 || nothing_new || (access != 0 && !has(ACCESS)) {
        return Err(ReregError::Input(errno::EINVAL));
    }
    let other = match has(PD) {
        // SAFETY: `pd` matters here, so that it is NULL or a domain of ours (see # Safety).
        true => Some(unsafe { Pd::from_abi(pd) }.map_err(ReregError::Input)?),
        false => None,
    };
    let context = Arc::clone(&object.pd.context);
    if other.as_ref().is_some_and(|pd| !pd.context.shares(&context)) {
        return Err(ReregError::Input(errno::EINVAL));
    }
    let registration = Arc::clone(&object.registration);
    let change = registration.change().map_err(|error| match error {
        errno::ENOENT => ReregError::Command(error),
        _ => ReregError::Input(error),
    })?;
    let (device, key) = (&context.device, change.key());
    let slot = device.mrs.slot(key).ok_or(ReregError::Input(errno::EINVAL))?;
    if slot.key.load(Ordering::Acquire) != key {
        // It has failed before.
        return Err(ReregError::Command(errno::EINVAL));
    }
    if registration.memory.is_some() || slot.access.load(Ordering::Relaxed) & NULL != 0 {
        return Err(ReregError::Input(errno::EINVAL));
    }
    let before = slot.published();
    let region = becomes(&before, flags, other.as_deref(), (addr, length), access)?;
    let in_domain =
        other.as_ref().map(|pd| pd.users.join()).transpose().map_err(ReregError::Input)?;
    let peers = device.peers.as_ref();
    // As for deregistration: what has seen the key is over before anything changes.
    device.mrs.invalidate(&change, peers).map_err(ReregError::Input)?;
    device.end_accesses().map_err(ReregError::Command)?;
    device.mrs.validate_again(&change, slot, &region, peers);
    context.deregistered(&MrAttr::from_published(&before));
    context.registered(&region);
    if has(TRANSLATION) {
        (object.abi.addr, object.abi.length) = (addr, length);
        context.region_at(key, addr.addr() as u64, length);
    }
    in_domain.into_iter().for_each(NewUser::keep);
    change.registered(region.length as usize, other.as_ref().map(|pd| &pd.users));
    if let Some(pd) = other {
        object.pd = pd.keep();
        object.abi.pd = Arc::as_ptr(&object.pd).cast_mut().cast();
    }
    Ok(())
}

/// The region that `before` becomes by the arguments of the call.
fn becomes(
    before: &PublishedRegion,
    flags: u32,
    pd: Option<&Arc<Pd>>,
    (addr, length): (*mut c_void, usize),
    access: u32,
) -> Result<MrAttr, ReregError> {
    let has = |flag| flags & flag != 0;
    // (An imported struct does not know the address.)
    let addr_before = core::ptr::with_exposed_provenance_mut(before.addr as usize);
    let (addr, length) =
        if has(TRANSLATION) { (addr, length) } else { (addr_before, before.length as usize) };
    let access = if has(ACCESS) { access } else { before.access };
    let iova = match has(TRANSLATION) {
        false => before.iova,
        true if access & ZERO_BASED != 0 => 0,
        true => addr as u64,
    };
    let access = validate(addr, length, iova, access).map_err(|error| match error {
        errno::EFAULT => ReregError::NewMemory(error),
        _ => ReregError::Input(error),
    })?;
    Ok(MrAttr {
        pd: pd.map_or(before.pd, |pd| pd.id),
        addr: addr.expose_provenance() as u64,
        iova,
        length: length as u64,
        access,
    })
}

#[cfg(test)]
mod tests;
