//! Addresses of datagrams, and the handles that name them.

use core::ffi::c_int;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use verbs_sys::*;

use crate::device::admit;
use crate::errno;
use crate::limits;
use crate::mr::Pd;
use crate::state::is_route;

/// Set in the Q_Key of a request, it asks for the sending queue pair's own one.
const OWN_QKEY: u32 = 1 << 31;

/// Where a datagram goes: what the address handle says, and what the request adds.
/// It is copied at the post; the handle may go then.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Address {
    /// Of the port.
    pub(crate) gid: [u8; 16],
    /// Of the queue pair there.
    pub(crate) qpn: u32,
    /// As the request has it.
    qkey: u32,
    /// The domain of the address handle.
    pub(crate) pd: u32,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
}

impl Address {
    /// What a send request of a datagram queue pair says.
    ///
    /// # Safety
    /// The request's address handle is NULL or a live one of ours.
    pub(crate) unsafe fn new(wr: &ibv_send_wr) -> Result<Address, c_int> {
        // SAFETY: a datagram's request has this member of the union.
        let to = unsafe { wr.wr.ud };
        // SAFETY: the caller's promise.
        let handle = unsafe { Ah::from_abi(to.ah) }?;
        Ok(Address { qpn: to.remote_qpn, qkey: to.remote_qkey, ..handle.address })
    }

    /// The address of a queue pair of this device, for a datagram that carries its key
    /// by itself.
    pub(crate) fn here(qpn: u32, traffic_class: u8, hop_limit: u8) -> Address {
        Address { gid: limits::GID, qpn, traffic_class, hop_limit, ..Address::default() }
    }

    /// Whether both lead to the same queue pair.
    #[inline]
    pub(crate) fn is_same_peer(&self, other: &Address) -> bool {
        self.qpn == other.qpn && self.gid == other.gid
    }

    /// The key that the datagram carries, sent by a queue pair that has `own`.
    pub(crate) fn qkey(&self, own: u32) -> u32 {
        if self.qkey & OWN_QKEY != 0 { own } else { self.qkey }
    }
}

/// An address handle.
#[repr(C)]
struct Ah {
    abi: ibv_ah,
    pd: Arc<Pd>,
    address: Address,
}

impl Ah {
    /// # Safety
    /// `ah` is NULL or a live address handle of ours.
    unsafe fn from_abi<'a>(ah: *mut ibv_ah) -> Result<&'a Ah, c_int> {
        // SAFETY: the caller's promise.
        unsafe { ah.cast::<Ah>().as_ref() }.ok_or(errno::EINVAL)
    }
}

/// A handle for any GID: whether somebody is there, only the datagrams will tell,
/// or rather will not.
pub(crate) unsafe extern "C" fn create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::pointer(unsafe { Pd::from_abi(pd) }.and_then(|pd| {
        // SAFETY: as above.
        let attr = unsafe { attr.as_ref() }.filter(|attr| is_route(attr)).ok_or(errno::EINVAL)?;
        admit(&pd.context.device.population.ahs, limits::MAX_AH)?;
        pd.users.fetch_add(1, Ordering::Relaxed);
        let pd = pd.keep();
        let address = Address {
            // SAFETY: bytes, whichever member was written.
            gid: unsafe { attr.grh.dgid.raw },
            pd: pd.id,
            traffic_class: attr.grh.traffic_class,
            hop_limit: attr.grh.hop_limit,
            ..Address::default()
        };
        let abi_pd = Arc::as_ptr(&pd).cast_mut().cast();
        let abi = ibv_ah { context: pd.context.as_abi(), pd: abi_pd, handle: 0 };
        Ok(Box::into_raw(Box::new(Ah { abi, pd, address })).cast())
    }))
}

pub(crate) unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: NULL, or a handle that the caller gives back.
    errno::code(unsafe { Ah::from_abi(ah) }.map(|object| {
        object.pd.context.device.population.ahs.fetch_sub(1, Ordering::Relaxed);
        object.pd.users.fetch_sub(1, Ordering::Release);
        // SAFETY: it was made by `create_ah`.
        drop(unsafe { Box::from_raw(ah.cast::<Ah>()) });
    }))
}
