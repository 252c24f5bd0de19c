//! Null regions, by their verb.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use verbs_sys::*;

use crate::errno;
use crate::limits::MAX_MESSAGE;
use crate::objects::mr::{Mr, Region};
use crate::objects::mr_table::{LOCAL_WRITE, NULL};
use crate::objects::null_memory::NullMemory;
use crate::objects::state::Pd;

/// `ibv_alloc_null_mr`: only the local key is valid, for any address.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    // SAFETY: NULL, or a domain of ours.
    errno::pointer(unsafe { Pd::from_abi(pd) }.and_then(|pd| {
        let addr = NullMemory::get()?.zeroes as u64;
        let access = LOCAL_WRITE | NULL;
        // Its domain is not where those of other regions are, which are found before.
        let region = Region { pd: 0, addr, iova: 0, length: MAX_MESSAGE, access };
        let device = &pd.context.device;
        let key = device.mrs.insert_for(pd.id, &region, device.peers.as_ref())?;
        pd.users.fetch_add(1, Ordering::Relaxed);
        let pd = pd.keep();
        let abi = ibv_mr {
            context: pd.context.as_abi(),
            pd: Arc::as_ptr(&pd).cast_mut().cast(),
            addr: core::ptr::null_mut(),
            length: usize::MAX,
            handle: key,
            lkey: key,
            rkey: 0,
        };
        Ok(Box::into_raw(Box::new(Mr { abi, pd, memory: None })).cast())
    }))
}
