//! An open device.

use std::ffi::c_int;
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::FileType;
use verbs_sys::{Table, ibv_access_flags, ibv_context, ibv_device_attr_ex, ibv_pd, ibv_port_attr};

use crate::attr::{DeviceAttr, PortAttr};
use crate::descriptor::make_nonblocking;
use crate::errno::{Errno, leaked};
use crate::error::{
    AllocPdError, OpenDeviceError, QueryDeviceError, QueryPortError, RegisterError,
};
use crate::object::backlog::Backlog;
use crate::object::device::Device;

/// An open device. Clones are handles of the same one; it is closed when the
/// last of them, and of everything made from it, is gone.
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<ContextInner>,
}

pub(crate) struct ContextInner {
    pub(crate) raw: NonNull<ibv_context>,
    pub(crate) table: Table,
    /// Asynchronous events that were taken and not asked for yet.
    pub(crate) backlog: Backlog,
    device: ManuallyDrop<Device>,
}

// SAFETY: any thread may call all verbs on a context.
unsafe impl Send for ContextInner {}
// SAFETY: several threads may call all verbs on one context at once; the other fields are `Sync`.
unsafe impl Sync for ContextInner {}

impl Drop for ContextInner {
    fn drop(&mut self) {
        // SAFETY: everything made from the context holds it, so that nothing is left of it.
        let closed = Errno::check(unsafe { (self.table.close_device)(self.raw.as_ptr()) });
        match closed {
            // SAFETY: dropped once, here.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.device) },
            Err(errno) => leaked("the context", errno),
        }
    }
}

impl AsFd for ContextInner {
    /// The descriptor that becomes readable when there is an asynchronous event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context's descriptor is open as long as the context, which `self` keeps.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).async_fd) }
    }
}

impl Device {
    /// Opens a context, through which everything else is made.
    ///
    /// # Errors
    /// [`OpenDeviceError`]: usually a missing permission, or a device that has gone.
    pub fn open(&self) -> Result<Context, OpenDeviceError> {
        Context::adopt(self.open_raw()?, self.table(), self.clone())
    }
}

impl Context {
    /// Takes over a context that `table` has just opened.
    fn adopt(
        raw: NonNull<ibv_context>,
        table: Table,
        device: Device,
    ) -> Result<Context, OpenDeviceError> {
        let name = device.name().to_owned();
        let inner = Arc::new({
            let (backlog, device) = (Backlog::default(), ManuallyDrop::new(device));
            ContextInner { raw, table, backlog, device }
        });
        // Events are waited for with poll(2), which knows a timeout; taking one must not block.
        make_nonblocking(inner.as_fd()).map_err(|errno| OpenDeviceError { device: name, errno })?;
        Ok(Context { inner })
    }

    /// Reports whether the device is one of the kernel's, which registers memory through the
    /// kernel: its commands go to a character device. (The software device's descriptor is a file.)
    pub(crate) fn is_kernels(&self) -> bool {
        // SAFETY: the context is open; its descriptor does not change.
        let fd = unsafe { (*self.inner.raw.as_ptr()).cmd_fd };
        // SAFETY: open as long as the context, which `self` keeps.
        let stat = (fd >= 0).then(|| rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) }));
        stat.and_then(Result::ok)
            .is_some_and(|stat| FileType::from_raw_mode(stat.st_mode).is_char_device())
    }

    /// The device's name.
    #[must_use]
    pub fn device_name(&self) -> &str {
        self.inner.device.name()
    }

    /// The device's node GUID.
    #[must_use]
    pub fn device_guid(&self) -> u64 {
        self.inner.device.guid()
    }

    /// Reports whether both are handles of the same open device. Objects of different contexts
    /// cannot be combined.
    #[must_use]
    pub fn is_same(&self, other: &Context) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Limits and capabilities.
    ///
    /// # Errors
    /// [`QueryDeviceError`] with the system's reason.
    pub fn attr(&self) -> Result<DeviceAttr, QueryDeviceError> {
        let mut attr = ibv_device_attr_ex::default();
        // SAFETY: the context is alive and belongs to this table.
        let result = unsafe {
            verbs_sys::ibv_query_device_ex(&self.inner.table, self.inner.raw.as_ptr(), &mut attr)
        };
        Errno::check(result)
            .map_err(|errno| QueryDeviceError { device: self.device_name().to_owned(), errno })?;
        // SAFETY: `self.inner` keeps the context open; the field is set once, when it is opened.
        let comp_vectors = unsafe { (*self.inner.raw.as_ptr()).num_comp_vectors };
        Ok(DeviceAttr::new(&attr, comp_vectors))
    }

    /// The attributes of port `port`, counted from 1.
    ///
    /// # Errors
    /// [`QueryPortError`], also where there is no such port.
    pub fn port(&self, port: u8) -> Result<PortAttr, QueryPortError> {
        let mut attr = ibv_port_attr::default();
        // SAFETY: the context is alive and belongs to this table.
        let result = unsafe {
            verbs_sys::ibv_query_port(&self.inner.table, self.inner.raw.as_ptr(), port, &mut attr)
        };
        Errno::check(result).map_err(|errno| QueryPortError {
            device: self.device_name().to_owned(),
            port,
            errno,
        })?;
        Ok(PortAttr::new(port, &attr))
    }

    /// A protection domain: what queue pairs and memory must share to work together.
    ///
    /// # Errors
    /// [`AllocPdError`] with the system's reason.
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, AllocPdError> {
        self.domain(ibv_access_flags(0))
    }

    /// A protection domain, all memory of which is registered on demand: the device asks for a page
    /// when it needs it, and no page is pinned. The first access to each takes as long as a page
    /// fault.
    ///
    /// ```
    /// # let devices = verbs_safe::devices(soft_rnic::table())?;
    /// # let context = devices[0].open()?;
    /// if context.attr()?.odp.supported {
    ///     let pd = context.alloc_pd_on_demand()?;
    ///     # let _ = pd;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RegisterError::NoOnDemandPaging`] where the device has none for some use of memory by
    /// reliable connections.
    pub fn alloc_pd_on_demand(&self) -> Result<ProtectionDomain, RegisterError> {
        let odp = self.attr()?.odp;
        let uses = [
            (odp.supported, "anything"),
            (odp.send, "sends"),
            (odp.recv, "receives"),
            (odp.srq_recv, "shared receive queues"),
            (odp.write, "writes"),
            (odp.read, "reads"),
            (odp.atomic, "atomics"),
        ];
        match uses.into_iter().find(|(is_offered, _)| !is_offered) {
            Some((_, missing)) => Err(RegisterError::NoOnDemandPaging {
                device: self.device_name().to_owned(),
                missing,
            }),
            None => Ok(self.domain(ibv_access_flags::IBV_ACCESS_ON_DEMAND)?),
        }
    }

    /// A protection domain, all regions of which are registered with this access besides their own.
    fn domain(&self, access: ibv_access_flags) -> Result<ProtectionDomain, AllocPdError> {
        // SAFETY: the context is alive.
        let raw = unsafe { (self.inner.table.alloc_pd)(self.inner.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| AllocPdError { errno: Errno::last() })?;
        let context = ManuallyDrop::new(self.inner.clone());
        Ok(ProtectionDomain { inner: Arc::new(PdInner { raw, context, access }) })
    }
}

impl AsFd for Context {
    /// The descriptor that becomes readable when there is an asynchronous event,
    /// for a program's own poll loop. Only wait on it: what is read from it is lost. Of
    /// events that were taken for a queue pair's sake
    /// ([`QpControl::has_reached_last_wqe`](crate::QpControl::has_reached_last_wqe)) it does
    /// not tell: [`poll_async_event`](Self::poll_async_event) does.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.device_name()).finish_non_exhaustive()
    }
}

/// A protection domain. Clones are handles of the same one.
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(crate) inner: Arc<PdInner>,
}

pub(crate) struct PdInner {
    pub(crate) raw: NonNull<ibv_pd>,
    pub(crate) context: ManuallyDrop<Arc<ContextInner>>,
    /// Access flags with which all regions are registered, besides their own.
    pub(crate) access: ibv_access_flags,
}

// SAFETY: any thread may call verbs on a protection domain.
unsafe impl Send for PdInner {}
// SAFETY: several threads may call verbs on one protection domain at once; the other fields are
// `Sync`.
unsafe impl Sync for PdInner {}

impl Drop for PdInner {
    fn drop(&mut self) {
        // SAFETY: whatever was made in the domain holds it, so that nothing is left in it.
        let result: c_int = unsafe { (self.context.table.dealloc_pd)(self.raw.as_ptr()) };
        match Errno::check(result) {
            // SAFETY: dropped once, here.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.context) },
            Err(errno) => leaked("a protection domain", errno),
        }
    }
}

impl ProtectionDomain {
    /// The context that it was made from.
    #[must_use]
    pub fn context(&self) -> Context {
        Context { inner: Arc::clone(&self.inner.context) }
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain").finish_non_exhaustive()
    }
}
