//! Address handles.

use core::ffi::c_int;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::check::checker::Object;
use crate::objects::device::admit;
use crate::objects::state::Pd;
use crate::queues::address::{DatagramAddress, ROUTE, is_route};
use crate::{alloc, errno, limits};

impl DatagramAddress {
    /// The destination that a send request of a datagram queue pair names.
    ///
    /// # Safety
    /// The request's address handle is NULL or a live one of ours.
    pub(crate) unsafe fn new(wr: &ibv_send_wr) -> Result<DatagramAddress, Errno> {
        // SAFETY: a datagram's request has this member of the union.
        let to = unsafe { wr.wr.ud };
        // SAFETY: `to.ah` is NULL or a live address handle of ours (see # Safety).
        let handle = unsafe { Ah::from_abi(to.ah) }?;
        Ok(DatagramAddress { qpn: to.remote_qpn, qkey: to.remote_qkey, ..handle.address })
    }
}

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    abi: ibv_ah,
    pub(crate) pd: Arc<Pd>,
    address: DatagramAddress,
}

impl Ah {
    /// The `handle` in the struct of each.
    pub(crate) const HANDLE: u32 = 0;

    /// The object behind a caller's pointer.
    ///
    /// # Safety
    /// `ah` is NULL or a live address handle of ours.
    pub(crate) unsafe fn from_abi<'a>(ah: *mut ibv_ah) -> Result<&'a Ah, Errno> {
        // SAFETY: `ah` is NULL or a live address handle of ours (see # Safety).
        unsafe { ah.cast::<Ah>().as_ref() }.ok_or(errno::EINVAL)
    }
}

/// Creates a handle for the GID of a port or group. It need not exist: datagrams to one that does
/// not are dropped.
pub(crate) unsafe extern "C" fn create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::pointer(unsafe { Pd::from_abi(pd) }.and_then(|pd| {
        // SAFETY: `attr` is NULL, or the caller's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(errno::EINVAL)?;
        if !is_route(attr) {
            pd.context.check_refused("ibv_create_ah", errno::EINVAL, ROUTE);
            return Err(errno::EINVAL);
        }
        alloc::headroom()?;
        let in_domain = pd.users.join()?;
        admit(&pd.context.device.population.ahs, limits::MAX_AH)?;
        in_domain.keep();
        let pd = pd.keep();
        pd.context.made(Object::AddressHandle, 0);
        let address = DatagramAddress {
            // SAFETY: bytes, whichever member was written.
            gid: unsafe { attr.grh.dgid.raw },
            pd: pd.id,
            traffic_class: attr.grh.traffic_class,
            hop_limit: attr.grh.hop_limit,
            ..DatagramAddress::default()
        };
        let abi_pd = Arc::as_ptr(&pd).cast_mut().cast();
        let abi = ibv_ah { context: pd.context.as_abi(), pd: abi_pd, handle: Ah::HANDLE };
        Ok(Box::into_raw(Box::new(Ah { abi, pd, address })).cast())
    }))
}

pub(crate) unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: NULL, or a handle that the caller gives back.
    errno::code(unsafe { Ah::named(ah) }.map(|object| {
        object.pd.context.device.population.ahs.fetch_sub(1, Ordering::Relaxed);
        object.pd.context.gone(Object::AddressHandle, 0);
        object.pd.users.leave();
        // SAFETY: it was made by `create_ah`.
        drop(unsafe { Box::from_raw(ah.cast::<Ah>()) });
    }))
}
