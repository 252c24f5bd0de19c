//! The verbs of device memory.

use core::ffi::c_int;
use std::sync::Arc;

use verbs_sys::*;

use crate::check::checker::Object;
use crate::memory::mr_table::{DEVICE_MEMORY, MW_BIND, ON_DEMAND};
use crate::objects::device_memory::Dm;
use crate::objects::mr::{MrAttr, ZERO_BASED, permitted, register};
use crate::objects::state::{Context, Pd};
use crate::{errno, limits};

/// `ibv_alloc_dm`. The memory is zero at first.
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    // SAFETY: NULL, or a context of ours.
    errno::pointer(unsafe { Context::from_abi(context) }.and_then(|context| {
        // SAFETY: NULL, or the caller's.
        let attr = unsafe { attr.as_ref() }.ok_or(errno::EINVAL)?;
        if attr.comp_mask != 0 || attr.log_align_req > limits::MAX_DM_LOG_ALIGN {
            return Err(errno::EINVAL);
        }
        let dm = Dm::new(context.keep(), attr.length as u64, 1 << attr.log_align_req)?;
        context.made(Object::DeviceMemory, 0);
        Ok(Arc::into_raw(dm).cast_mut().cast())
    }))
}

/// `ibv_free_dm`: `EBUSY` while a region of it is registered, and `ENOENT` if it was freed through
/// another struct.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    // SAFETY: NULL, or memory that the caller gives back.
    errno::code(unsafe { Dm::from_abi(dm) }.and_then(|object| {
        object.end().inspect_err(|error| {
            let users = || vec!["a memory region of it".into()];
            object.context.check_in_use(*error, "ibv_free_dm", "device memory", users);
        })?;
        object.context.gone(Object::DeviceMemory, 0);
        // SAFETY: takes back the reference of `alloc_dm`.
        unsafe { Arc::decrement_strong_count(dm.cast::<Dm>()) };
        Ok(())
    }))
}

/// `ibv_reg_dm_mr`: a region with addresses from 0 on, which is `dm_offset` of the memory. It may
/// have no bytes.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
    access: u32,
) -> *mut ibv_mr {
    // SAFETY: NULL, or a domain of ours.
    errno::pointer(unsafe { Pd::from_abi(pd) }.and_then(|pd| {
        // SAFETY: NULL, or memory of ours.
        let dm = unsafe { Dm::from_abi(dm) }?;
        let access = permitted(access)?;
        let at = dm.memory.at(dm_offset, length).ok_or(errno::EINVAL)?;
        let ours = Arc::ptr_eq(&pd.context.device, &dm.context.device);
        if access & (ZERO_BASED | ON_DEMAND | MW_BIND) != ZERO_BASED || !ours {
            return Err(errno::EINVAL);
        }
        let (addr, length, access) = (at as u64, length as u64, access | DEVICE_MEMORY);
        let region = MrAttr { pd: pd.id, addr, iova: 0, length, access };
        register(&pd, &region, core::ptr::null_mut(), Some(Arc::clone(&dm.memory)))
    }))
}
