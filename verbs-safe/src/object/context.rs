//! An open device.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::FileType;
use verbs_sys::{Table, ibv_access_flags, ibv_context, ibv_device_attr_ex, ibv_pd, ibv_port_attr};

use crate::attr::{DeviceAttr, PortAttr};
use crate::descriptor::make_nonblocking;
use crate::errno::Errno;
use crate::error::{
    AllocPdError, OpenDeviceError, QueryDeviceError, QueryPortError, RegisterError,
};
use crate::object::backlog::Backlog;
use crate::object::device::Device;
use crate::object::pointer::{ObjectPtr, destroyed};

/// An open device. Clones are handles of the same one; it is closed when the
/// last of them, and of everything made from it, is gone.
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<ContextInner>,
}

pub(crate) struct ContextInner {
    pub(crate) raw: ObjectPtr<ibv_context>,
    pub(crate) table: Table,
    /// Asynchronous events that were taken and not asked for yet.
    pub(crate) backlog: Backlog,
    device: Device,
}

impl Drop for ContextInner {
    fn drop(&mut self) {
        // SAFETY: everything made from the context holds it, so that nothing is left of it.
        let result = unsafe { (self.table.close_device)(self.raw.as_ptr()) };
        destroyed("the context", Errno::check(result), || self.device.clone());
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
        let (raw, table, backlog) = (self.open_raw()?, self.table(), Backlog::default());
        let inner = Arc::new(ContextInner { raw, table, backlog, device: self.clone() });
        // Waits for events use poll(2), which has a timeout; taking one must not block.
        make_nonblocking(inner.as_fd()).map_err(|errno| self.not_opened(errno))?;
        Ok(Context { inner })
    }
}

impl Context {
    /// Reports whether the device is one of the kernel's, which registers memory through the
    /// kernel: its commands go to a character device. (The software device's descriptor is a file.)
    pub(crate) fn is_kernels(&self) -> bool {
        // SAFETY: `self.inner` keeps the context open; its descriptor does not change.
        let fd = unsafe { (*self.inner.raw.as_ptr()).cmd_fd };
        // SAFETY: `fd` is open as long as the context, which `self.inner` keeps.
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
        // SAFETY: `self.inner` keeps the context alive, which belongs to this table.
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
        // SAFETY: `self.inner` keeps the context alive, which belongs to this table.
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

    /// A protection domain. Queue pairs and memory of different domains do not work together.
    ///
    /// # Errors
    /// [`AllocPdError`] with the system's reason.
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, AllocPdError> {
        self.domain(ibv_access_flags(0))
    }

    /// A protection domain with on-demand paging for all its memory: the device requests a page
    /// when it needs it, and no page is pinned. The first access to a page takes a page fault.
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
    /// [`RegisterError::NoOnDemandPaging`] if the device lacks it for any operation of reliable
    /// connections.
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

    /// A protection domain that adds this access to that of each region.
    fn domain(&self, access: ibv_access_flags) -> Result<ProtectionDomain, AllocPdError> {
        // SAFETY: `self.inner` keeps the context alive.
        let raw = unsafe { (self.inner.table.alloc_pd)(self.inner.raw.as_ptr()) };
        let raw = ObjectPtr::new(raw).map_err(|errno| AllocPdError { errno })?;
        let context = self.inner.clone();
        Ok(ProtectionDomain { inner: Arc::new(PdInner { raw, context, access }) })
    }
}

impl AsFd for Context {
    /// The descriptor that becomes readable when there is an asynchronous event, for a program's
    /// own poll loop. Only wait on it: events read from it are lost. It does not signal events that
    /// [`QpControl::has_reached_last_wqe`](crate::QpControl::has_reached_last_wqe) has taken: call
    /// [`poll_async_event`](Self::poll_async_event) for these.
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
    pub(crate) raw: ObjectPtr<ibv_pd>,
    pub(crate) context: Arc<ContextInner>,
    /// Access flags with which all regions are registered, besides their own.
    pub(crate) access: ibv_access_flags,
}

impl Drop for PdInner {
    fn drop(&mut self) {
        // SAFETY: every object made in the domain holds it, so none is left.
        let result = unsafe { (self.context.table.dealloc_pd)(self.raw.as_ptr()) };
        destroyed("a protection domain", Errno::check(result), || self.context.clone());
    }
}

impl ProtectionDomain {
    /// The context that it was made from.
    #[must_use]
    pub fn context(&self) -> Context {
        Context { inner: Arc::clone(&self.inner.context) }
    }
}

debug_shows!(ProtectionDomain);
