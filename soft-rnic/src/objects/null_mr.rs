//! Null regions, by their verb.

use std::sync::Arc;

use verbs_sys::*;

use crate::alloc;
use crate::check::checker::Object;
use crate::errno;
use crate::limits::MAX_MESSAGE;
use crate::memory::mr_table::{LOCAL_WRITE, NULL};
use crate::memory::null_memory::NullMemory;
use crate::objects::handles::MrRegistration;
use crate::objects::mr::{Mr, MrAttr};
use crate::objects::state::Pd;

/// `ibv_alloc_null_mr`: only the local key is valid, for any address.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    // SAFETY: NULL, or a domain of ours.
    errno::pointer(unsafe { Pd::from_abi(pd) }.and_then(|pd| {
        alloc::headroom()?;
        let addr = NullMemory::get()?.zeroes as u64;
        let access = LOCAL_WRITE | NULL;
        // Its domain is not where those of other regions are, which are found before.
        let region = MrAttr { pd: 0, addr, iova: 0, length: MAX_MESSAGE, access };
        let device = &pd.context.device;
        let in_domain = pd.users.join()?;
        let room = pd.context.handles.mrs.room()?;
        let key = device.key_for(pd.id, &region)?;
        in_domain.keep();
        let registration = MrRegistration::new((key, 0), usize::MAX, &pd.users, None);
        room.insert(key, Arc::clone(&registration));
        pd.context.made(Object::MemoryRegion, key.into());
        Ok(Mr::from_registration(pd.keep(), core::ptr::null_mut(), registration))
    }))
}
