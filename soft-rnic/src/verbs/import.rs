//! Importing: another context of a device that is open, and further structs of its objects.
//!
//! As in the kernel, a duplicate of a context's command descriptor stands for what was made of the
//! context. An imported context shares all objects: what was made of one can be used with the
//! other. It has a descriptor of events of its own, which gets each event of the port as well. An
//! object is destroyed through one of its structs, and the others are given back (`unimport`),
//! which destroys nothing; so can the one be that it was made with. These are functions of the
//! library, and not of a context.

use core::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::fcntl_get_seals;
use rustix::io::{Errno, fcntl_dupfd_cloexec, pread};
use verbs_sys::*;

use crate::errno;
use crate::event::EventQueue;
use crate::objects::device::DEVICES;
use crate::objects::device_memory::Dm;
use crate::objects::handles::{CommandFd, Handles};
use crate::objects::in_arc::InArc;
use crate::objects::mr::Mr;
use crate::objects::state::{Context, Device, Pd};

use super::context::{SEALS, file_id, give};

/// `ibv_import_device`: another context of the device that a duplicate of a context's `cmd_fd` is
/// of. The context closes the descriptor. `EINVAL` for any other descriptor, and `EOPNOTSUPP` for
/// one of another process: the device is in its memory.
///
/// # Safety
/// If it succeeds, `cmd_fd` is the context's to close.
pub unsafe extern "C" fn import_device(cmd_fd: c_int) -> *mut ibv_context {
    // SAFETY: `cmd_fd` is the context's to close, if this succeeds (see # Safety).
    errno::pointer(unsafe { import(cmd_fd) }.map(give))
}

/// # Safety
/// As [`import_device`].
unsafe fn import(cmd_fd: c_int) -> Result<Arc<Context>, Errno> {
    if cmd_fd < 0 {
        return Err(errno::EINVAL);
    }
    crate::alloc::headroom()?;
    // SAFETY: the number of a descriptor; the calls below fail if it is not open.
    let named = unsafe { BorrowedFd::borrow_raw(cmd_fd) };
    let device = named_device(named)?;
    let handles = Handles::for_file(file_id(named)?);
    let events = EventQueue::new()?;
    let command = match CommandFd::is_in_use(cmd_fd, &handles) {
        // It is no duplicate: the context that has it closes it.
        true => fcntl_dupfd_cloexec(named, 0)?,
        // SAFETY: nothing fails from here on, so that `cmd_fd` is the context's to close (see
        // # Safety).
        false => unsafe { OwnedFd::from_raw_fd(cmd_fd) },
    };
    Ok(Context::with_command(device, events, command, handles))
}

/// The device that a command descriptor's file names.
fn named_device(file: impl AsFd) -> Result<Arc<Device>, Errno> {
    // Only a file of memory has seals: nothing else is read.
    if fcntl_get_seals(&file) != Ok(SEALS) {
        return Err(errno::EINVAL);
    }
    let mut text = [0; 128];
    let len = pread(&file, &mut text, 0)?;
    let words = core::str::from_utf8(&text[..len]).ok().and_then(|text| {
        let mut words = text.strip_suffix('\n')?.rsplitn(3, ' ');
        let (_nth, process) = (words.next()?.parse::<u64>().ok()?, words.next()?);
        Some((words.next()?, process.parse::<u32>().ok()?))
    });
    let (name, process) = words.ok_or(errno::EINVAL)?;
    if process != std::process::id() {
        return Err(errno::EOPNOTSUPP);
    }
    let device = DEVICES.lock().iter().find(|device| device.name() == name).cloned();
    device.ok_or(errno::ENODEV)
}

/// `ibv_import_pd`: another struct of a protection domain; `ENOENT` if there is no such one.
///
/// # Safety
/// `context` is NULL or open.
pub unsafe extern "C" fn import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd {
    // SAFETY: NULL, or a context of ours.
    errno::pointer(unsafe { Context::from_abi(context) }.and_then(|context| {
        crate::alloc::headroom()?;
        let users = context.handles.pds.get(pd_handle).ok_or(errno::ENOENT)?;
        let context = context.keep();
        let abi = ibv_pd { context: context.as_abi(), handle: pd_handle };
        let pd = Arc::new(Pd { abi, context, id: pd_handle, users, parent: None });
        Ok(Arc::into_raw(pd).cast_mut().cast())
    }))
}

/// `ibv_unimport_pd`: gives the struct back, and leaves the domain unchanged. A parent domain has
/// one struct only, and keeps it.
///
/// # Safety
/// `pd` is NULL or a live domain's, which the caller gives back.
pub unsafe extern "C" fn unimport_pd(pd: *mut ibv_pd) {
    // SAFETY: `pd` is NULL or a live domain's struct (see # Safety).
    if let Ok(object) = unsafe { Pd::of_struct(pd) } {
        if object.parent.is_some() {
            return;
        }
        // SAFETY: takes back the reference of the struct's maker.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&object)) };
    }
}

/// `ibv_import_mr`: another struct of a region, whose `addr` is NULL; `ENOENT` if there is no such
/// one.
///
/// # Safety
/// `pd` is NULL or a live domain.
pub unsafe extern "C" fn import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr {
    // SAFETY: NULL, or a domain of ours.
    errno::pointer(unsafe { Pd::from_abi(pd) }.and_then(|pd| {
        crate::alloc::headroom()?;
        let registration = pd.context.handles.mrs.get(mr_handle).ok_or(errno::ENOENT)?;
        Ok(Mr::from_registration(pd.keep(), core::ptr::null_mut(), registration))
    }))
}

/// `ibv_unimport_mr`: gives the struct back, and leaves the region unchanged.
///
/// # Safety
/// `mr` is NULL or a live region's, which the caller gives back.
pub unsafe extern "C" fn unimport_mr(mr: *mut ibv_mr) {
    if !mr.is_null() {
        // SAFETY: it was made by `Mr::from_registration`; no table has it.
        drop(unsafe { Box::from_raw(mr.cast::<Mr>()) });
    }
}

/// `ibv_import_dm`: another struct of device memory; `ENOENT` if there is no such.
///
/// # Safety
/// `context` is NULL or open.
pub unsafe extern "C" fn import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm {
    // SAFETY: NULL, or a context of ours.
    errno::pointer(unsafe { Context::from_abi(context) }.and_then(|context| {
        crate::alloc::headroom()?;
        let memory = context.handles.dms.get(dm_handle).ok_or(errno::ENOENT)?;
        let dm = Dm::from_memory(InArc::keep(&context), memory, dm_handle);
        Ok(Arc::into_raw(dm).cast_mut().cast())
    }))
}

/// `ibv_unimport_dm`: gives the struct back, and leaves the memory unchanged.
///
/// # Safety
/// `dm` is NULL or live memory's, which the caller gives back.
pub unsafe extern "C" fn unimport_dm(dm: *mut ibv_dm) {
    // SAFETY: `dm` is NULL or a struct of live memory (see # Safety).
    if let Ok(object) = unsafe { Dm::from_abi(dm) } {
        // SAFETY: takes back the reference of the struct's maker.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&object)) };
    }
}
