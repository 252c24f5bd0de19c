//! XRC domains, and the table of XRC receive queues.
//!
//! A domain belongs to the device: every context of the process that opens the same file gets the
//! same one. Another process gets another one, as its memory is not this device's: see the
//! documentation of the crate.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::collections::hash_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::Errno;
use verbs_sys::*;

use crate::alloc::{self, OutOfMemory};
use crate::check::checker::Object;
use crate::check::report::number;
use crate::objects::device::admit;
use crate::objects::in_arc::InArc;
use crate::objects::state::{Context, Cq, CqRing, Pd, Srq, XrcDomain, XrcTable, Xrcd};
use crate::objects::users::Users;
use crate::{errno, limits};

const FD: u32 = ibv_xrcd_init_attr_mask::IBV_XRCD_INIT_ATTR_FD.0;
const OFLAGS: u32 = ibv_xrcd_init_attr_mask::IBV_XRCD_INIT_ATTR_OFLAGS.0;

impl Xrcd {
    /// The object behind a caller's pointer.
    ///
    /// # Safety
    /// `xrcd` is NULL or a live XRC domain of ours.
    pub(crate) unsafe fn from_abi<'a>(xrcd: *mut ibv_xrcd) -> Result<InArc<'a, Xrcd>, Errno> {
        // SAFETY: `xrcd` is NULL or live (see # Safety), and every one lives in an `Arc`.
        unsafe { InArc::new(xrcd.cast::<Xrcd>()) }.ok_or(errno::EINVAL)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.pd.context
    }

    fn new(context: &Arc<Context>, domain: Arc<XrcDomain>) -> Result<Xrcd, OutOfMemory> {
        let context = Arc::clone(context);
        let abi = ibv_xrcd { context: context.as_abi() };
        let pd_abi = ibv_pd { context: context.as_abi(), handle: 0 };
        let ring = CqRing::own(1)?;
        let cq = Arc::new(Cq::new(Arc::clone(&context), None, ring, core::ptr::null_mut(), None));
        // No region is in domain 0.
        let pd = Arc::new(Pd { abi: pd_abi, context, id: 0, users: Arc::default(), parent: None });
        Ok(Xrcd { abi, domain, pd, cq, users: Users::default() })
    }
}

impl XrcDomain {
    fn new(file: Option<OwnedFd>) -> Arc<XrcDomain> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        // Relaxed: a number that guards no memory.
        let id = NEXT.fetch_add(1, Ordering::Relaxed).max(1);
        Arc::new(XrcDomain { id, _file: file, handles: AtomicUsize::new(1) })
    }

    /// Counts one more handle, unless the last one was closed.
    fn join(&self) -> bool {
        // Relaxed, here and in `leave`: the count guards no memory.
        let joined = self.handles.try_update(Ordering::Relaxed, Ordering::Relaxed, |handles| {
            (handles > 0).then_some(handles + 1)
        });
        joined.is_ok()
    }

    fn leave(&self) {
        self.handles.fetch_sub(1, Ordering::Relaxed);
    }
}

impl XrcTable {
    /// The domain that a descriptor's file names; the errors are the kernel's.
    fn domain_of(&self, fd: c_int, flags: c_int) -> Result<Arc<XrcDomain>, Errno> {
        let file = keep_inode(fd)?;
        let stat = fstat(&file)?;
        let mut by_file = self.by_file.lock();
        by_file.retain(|_, domain| domain.strong_count() > 0);
        let slot = by_file.entry((stat.st_dev, stat.st_ino));
        if let Entry::Occupied(known) = &slot
            && let Some(domain) = known.get().upgrade()
            && domain.join()
        {
            if flags & libc::O_EXCL != 0 {
                domain.leave();
                return Err(errno::EINVAL);
            }
            return Ok(domain);
        }
        if flags & libc::O_CREAT == 0 {
            return Err(errno::EAGAIN);
        }
        let domain = XrcDomain::new(Some(file));
        slot.insert_entry(Arc::downgrade(&domain));
        Ok(domain)
    }

    /// The XRC receive queue with a number.
    pub(crate) fn find(&self, srqn: u32) -> Option<Arc<Srq>> {
        let index = srqn % limits::MAX_XRC_SRQ as u32;
        self.srqs.read().get(&index).filter(|srq| srq.num == srqn).cloned()
    }

    /// Gives a queue the next number whose slot is free.
    pub(crate) fn insert(
        &self,
        next: impl Fn() -> u32,
        make: impl FnOnce(u32) -> Arc<Srq>,
    ) -> Result<Arc<Srq>, Errno> {
        let mut srqs = self.srqs.write();
        if srqs.len() >= limits::MAX_XRC_SRQ {
            return Err(errno::ENOMEM);
        }
        loop {
            let num = next();
            if let Entry::Vacant(slot) = srqs.entry(num % limits::MAX_XRC_SRQ as u32) {
                return Ok(Arc::clone(slot.insert(make(num))));
            }
        }
    }

    pub(crate) fn remove(&self, srqn: u32) {
        self.srqs.write().remove(&(srqn % limits::MAX_XRC_SRQ as u32));
    }
}

/// A descriptor that keeps the inode of the program's. (A copy of that would release the program's
/// locks on the file when it is closed.)
fn keep_inode(fd: c_int) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{fd}");
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| if error == Errno::NOENT { Errno::BADF } else { error })
}

pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    // SAFETY: NULL, or a context of ours and the caller's attributes.
    errno::pointer(unsafe { Context::from_abi(context) }.and_then(|context| {
        context.device.offers(ibv_device_cap_flags::IBV_DEVICE_XRC)?;
        alloc::headroom()?;
        // SAFETY: `attr` is NULL, or the caller's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(errno::EINVAL)?;
        if attr.comp_mask & !(FD | OFLAGS) != 0 {
            return Err(errno::EOPNOTSUPP);
        }
        if attr.comp_mask != FD | OFLAGS {
            return Err(errno::EINVAL);
        }
        let device = &context.device;
        let domain = match attr.fd {
            -1 => XrcDomain::new(None),
            fd if fd < 0 => return Err(Errno::BADF),
            fd => device.xrc.domain_of(fd, attr.oflags)?,
        };
        let made = Xrcd::new(&context, Arc::clone(&domain)).map_err(Errno::from);
        let admitted = made.and_then(|xrcd| {
            admit(&device.population.xrcds, limits::MAX_XRCD)?;
            Ok(Arc::new(xrcd))
        });
        let xrcd = admitted.inspect_err(|_| domain.leave())?;
        context.made(Object::XrcDomain, 0);
        Ok(Arc::into_raw(xrcd).cast_mut().cast())
    }))
}

/// The domain itself goes with the last of its handles.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: NULL, or a domain that the caller gives back.
    errno::code(unsafe { Xrcd::from_abi(xrcd) }.and_then(|object| {
        object.users.end().inspect_err(|error| {
            let of =
                || vec![number(object.users.count().max(1) as u64, "queue pair or receive queue")];
            object.context().check_in_use(*error, "ibv_close_xrcd", "an XRC domain", of);
        })?;
        object.context().device.population.xrcds.fetch_sub(1, Ordering::Relaxed);
        object.context().gone(Object::XrcDomain, 0);
        object.domain.leave();
        // SAFETY: takes back the reference of `open_xrcd`.
        unsafe { Arc::decrement_strong_count(xrcd.cast::<Xrcd>()) };
        Ok(())
    }))
}
