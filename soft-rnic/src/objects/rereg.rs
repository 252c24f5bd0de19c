//! Registering a region again: its keys stay.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use std::sync::Arc;

use verbs_sys::*;

use crate::errno;
use crate::objects::mr::{Mr, Region, ZERO_BASED, validate};
use crate::objects::mr_table::NULL;
use crate::objects::state::{Pd, PeerProcesses};

const TRANSLATION: u32 = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_TRANSLATION.0;
const PD: u32 = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_PD.0;
const ACCESS: u32 = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_ACCESS.0;

/// Why a region was not registered again, as the manual page names it; `errno` has more.
enum Failed {
    /// The region is as it was: the arguments do not go together.
    Input(c_int),
    /// The region is as it was: the new memory cannot be had.
    NewMemory(c_int),
    /// The region can only be deregistered.
    Command(c_int),
}

/// `ibv_rereg_mr`: what goes on meanwhile finds the region as it was, or as it becomes, or none,
/// and fails then; the keys are the same afterwards. While a process is stopped in the middle of
/// an access it fails, and leaves the region without a valid key.
pub(crate) unsafe extern "C" fn rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // SAFETY: the caller's promises.
    let (code, error) = match unsafe { rereg(mr, flags as u32, pd, (addr, length), access as u32) }
    {
        Ok(()) => return 0,
        Err(Failed::Input(error)) => (ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_INPUT, error),
        Err(Failed::NewMemory(error)) => {
            (ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_DONT_FORK_NEW, error)
        }
        Err(Failed::Command(error)) => (ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_CMD, error),
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
) -> Result<(), Failed> {
    // SAFETY: the caller's promise.
    let object = unsafe { mr.cast::<Mr>().as_mut() }.ok_or(Failed::Input(errno::EINVAL))?;
    let has = |flag| flags & flag != 0;
    let known = ibv_rereg_mr_flags::IBV_REREG_MR_FLAGS_SUPPORTED.0;
    let nothing_new = has(TRANSLATION) && (length == 0 || addr.is_null());
    if flags == 0 || flags & !known != 0 || nothing_new || (access != 0 && !has(ACCESS)) {
        return Err(Failed::Input(errno::EINVAL));
    }
    let other = match has(PD) {
        // SAFETY: as above.
        true => Some(unsafe { Pd::from_abi(pd) }.map_err(Failed::Input)?),
        false => None,
    };
    let context = Arc::clone(&object.pd.context);
    if other.as_ref().is_some_and(|pd| !pd.context.shares(&context)) {
        return Err(Failed::Input(errno::EINVAL));
    }
    let (device, key) = (&context.device, object.abi.lkey);
    let slot = device.mrs.slot(key).ok_or(Failed::Input(errno::EINVAL))?;
    if slot.key.load(Ordering::Acquire) != key {
        // It has failed before.
        return Err(Failed::Command(errno::EINVAL));
    }
    if object.registration.memory.is_some() || slot.access.load(Ordering::Relaxed) & NULL != 0 {
        return Err(Failed::Input(errno::EINVAL));
    }
    let before = slot.published();
    // (An imported struct does not know the address.)
    let addr_before = core::ptr::with_exposed_provenance_mut(before.addr as usize);
    let (new_addr, new_length) =
        if has(TRANSLATION) { (addr, length) } else { (addr_before, before.length as usize) };
    let access = if has(ACCESS) { access } else { before.access };
    let iova = match has(TRANSLATION) {
        false => before.iova,
        true if access & ZERO_BASED != 0 => 0,
        true => new_addr as u64,
    };
    let access = validate(new_addr, new_length, iova, access).map_err(|error| match error {
        errno::EFAULT => Failed::NewMemory(error),
        _ => Failed::Input(error),
    })?;
    let region = Region {
        pd: other.as_ref().map_or(before.pd, |pd| pd.id),
        addr: new_addr.expose_provenance() as u64,
        iova,
        length: new_length as u64,
        access,
    };
    let peers = device.peers.as_ref();
    // As for deregistration: what has seen the key is over before anything changes.
    device.mrs.invalidate(key, peers).map_err(Failed::Input)?;
    device.quiesce();
    peers.map_or(Ok(()), PeerProcesses::wait_outside).map_err(Failed::Command)?;
    {
        let _table = device.mrs.free.lock();
        device.mrs.fill(key, slot, &region, peers);
    }
    if has(TRANSLATION) {
        (object.abi.addr, object.abi.length) = (new_addr, new_length);
        context.region_at(key, new_addr.addr() as u64, new_length);
    }
    object.registration.change(new_length, other.as_ref().map(|pd| &pd.users));
    if let Some(pd) = other {
        object.pd = pd.keep();
        object.abi.pd = Arc::as_ptr(&object.pd).cast_mut().cast();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::device::default_device;
    use crate::objects::state::Qp;

    /// While an execution is under way, the key is invalid, and the region as the execution has
    /// found it.
    #[test]
    fn no_execution_finds_a_region_half_changed() {
        let v = crate::table();
        let (mut old, mut new) = ([0_u8; 64], [0_u8; 128]);
        // SAFETY: the verbs are used as their manual pages say.
        unsafe {
            let qp = crate::testing::queue_pair();
            let ibv_qp { context, pd, send_cq: cq, .. } = *qp;
            let mr = (v.reg_mr)(pd, old.as_mut_ptr().cast(), 64, 1);
            let (device, key) = (default_device(), (*mr).lkey);
            let slot = device.mrs.slot(key).unwrap();
            let (mr, new) = (mr as usize, new.as_mut_ptr() as usize);
            std::thread::scope(|scope| {
                let object = Qp::from_abi(qp).unwrap();
                let execution = object.sq.lock();
                let thread = scope.spawn(move || {
                    let (flags, pd) = (TRANSLATION as c_int, core::ptr::null_mut());
                    rereg_mr(mr as *mut ibv_mr, flags, pd, new as *mut c_void, 128, 0)
                });
                while slot.key.load(Ordering::Acquire) != 0 && !thread.is_finished() {
                    std::thread::yield_now();
                }
                // It has all the time that it wants.
                for _ in 0..10_000 {
                    std::thread::yield_now();
                }
                let seen = (slot.key.load(Ordering::Acquire), slot.published());
                assert_eq!((seen.0, seen.1.length, thread.is_finished()), (0, 64, false));
                assert_eq!(seen.1.addr, old.as_ptr() as u64);
                drop(execution);
                assert_eq!(thread.join().unwrap(), 0);
            });
            assert_eq!((slot.key.load(Ordering::Acquire), slot.published().length), (key, 128));
            let gone = [(v.dereg_mr)(mr as *mut ibv_mr), (v.destroy_qp)(qp), (v.destroy_cq)(cq)];
            assert_eq!((gone, (v.dealloc_pd)(pd)), ([0; 3], 0));
            (v.close_device)(context);
        }
    }
}
