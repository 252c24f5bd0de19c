//! Thread domains and parent domains.
//!
//! A parent domain is a protection domain that is another one to every check: it has the same
//! number, so that its queue pairs reach regions of the other, and the other way round. What is
//! made in it may name a thread domain, which promises that one thread at a time uses these
//! objects. The device relies on no such promise: its locks cost one exchange where no other
//! thread wants them.
//!
//! It may have allocators of the program's: they are called for the receive queue of each queue
//! pair, for each shared receive queue, and for each completion queue that is created with the
//! domain, also when that is resized (`queues::queue_memory`).

use core::ffi::c_int;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::alloc;
use crate::check::checker::Object;
use crate::objects::device::admit;
use crate::objects::in_arc::InArc;
use crate::objects::state::{Context, Parent, Pd, Td};
use crate::objects::users::Users;
use crate::queues::queue_memory::Allocators;
use crate::{errno, limits};

const ALLOCATORS: u32 = ibv_parent_domain_init_attr_mask::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS.0;
/// Flag of the pointer that allocators are called with.
const PD_CONTEXT: u32 = ibv_parent_domain_init_attr_mask::IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT.0;

impl Td {
    /// The object behind a caller's pointer; none for NULL.
    ///
    /// # Safety
    /// `td` is NULL or a live thread domain of ours.
    unsafe fn from_abi<'a>(td: *mut ibv_td) -> Option<InArc<'a, Td>> {
        // SAFETY: `td` is NULL or live (see # Safety), and every one lives in an `Arc`.
        unsafe { InArc::new(td.cast::<Td>()) }
    }
}

pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    // SAFETY: NULL, or a context of ours and the caller's attributes.
    errno::pointer(unsafe { Context::from_abi(context) }.and_then(|context| {
        // SAFETY: `attr` is NULL, or the caller's attributes.
        if unsafe { attr.as_ref() }.ok_or(errno::EINVAL)?.comp_mask != 0 {
            return Err(errno::EOPNOTSUPP);
        }
        alloc::headroom()?;
        let context = context.keep();
        context.made(Object::ThreadDomain, 0);
        let abi = ibv_td { context: context.as_abi() };
        let td = Arc::new(Td { abi, context, users: Users::default() });
        Ok(Arc::into_raw(td).cast_mut().cast())
    }))
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: NULL, or a thread domain that the caller gives back.
    errno::code(unsafe { Td::from_abi(td) }.ok_or(errno::EINVAL).and_then(|object| {
        object.users.end().inspect_err(|error| {
            let users = || vec!["a parent domain".into()];
            object.context.check_in_use(*error, "ibv_dealloc_td", "a thread domain", users);
        })?;
        object.context.gone(Object::ThreadDomain, 0);
        // SAFETY: takes back the reference of `alloc_td`.
        unsafe { Arc::decrement_strong_count(td.cast::<Td>()) };
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: NULL, or objects of ours and of the caller.
    errno::pointer(unsafe { Context::from_abi(context) }.and_then(|context| {
        // SAFETY: `attr` is NULL, or the caller's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(errno::EINVAL)?;
        if attr.comp_mask & !(ALLOCATORS | PD_CONTEXT) != 0 {
            return Err(errno::EOPNOTSUPP);
        }
        let allocators = allocators(attr)?;
        // SAFETY: `attr.pd` and `attr.td` are NULL or live domains of ours, as the verb asks.
        let (pd, td) = unsafe { (Pd::from_abi(attr.pd)?, Td::from_abi(attr.td)) };
        let is_foreign = td.as_ref().is_some_and(|td| !td.context.shares(&context));
        if is_foreign || !pd.context.shares(&context) {
            return Err(errno::EINVAL);
        }
        let td = td.as_ref().map(InArc::keep);
        parent(Parent { pd: pd.keep(), td, allocators })
    }))
}

fn allocators(attr: &ibv_parent_domain_init_attr) -> Result<Option<Allocators>, Errno> {
    if attr.comp_mask & ALLOCATORS == 0 {
        return Ok(None);
    }
    let (Some(alloc), Some(free)) = (attr.alloc, attr.free) else { return Err(errno::EINVAL) };
    let has_context = attr.comp_mask & PD_CONTEXT != 0;
    let pd_context = if has_context { attr.pd_context } else { core::ptr::null_mut() };
    Ok(Some(Allocators { alloc, free, pd_context }))
}

/// As in rdma-core, the struct has the context and the handle of the domain that it stands for.
fn parent(parent: Parent) -> Result<*mut ibv_pd, Errno> {
    let Parent { pd, td, .. } = &parent;
    let (context, id) = (Arc::clone(&pd.context), pd.id);
    alloc::headroom()?;
    let in_domain = pd.users.join()?;
    admit(&context.device.population.pds, limits::MAX_PD)?;
    in_domain.keep();
    if let Some(td) = td {
        td.users.add();
    }
    context.made(Object::ProtectionDomain, 0);
    let abi = ibv_pd { context: context.as_abi(), handle: id };
    let users = Arc::default();
    let object = Arc::new(Pd { abi, context, id, users, parent: Some(parent) });
    Ok(Arc::into_raw(object).cast_mut().cast())
}

/// The parent domain behind a caller's pointer, which may be of any context that shares it.
///
/// # Safety
/// `pd` is NULL or a live domain of ours.
pub(super) unsafe fn parent_from_abi(context: &Context, pd: *mut ibv_pd) -> Result<Arc<Pd>, Errno> {
    // SAFETY: `pd` is NULL or a live domain of ours (see # Safety).
    let object = unsafe { Pd::from_abi(pd) }?;
    let is_parent = object.parent.is_some() && object.context.shares(context);
    is_parent.then(|| object.keep()).ok_or(errno::EINVAL)
}

/// Gives back a domain of either kind: `EBUSY` while something is in it, and `ENOENT` if it was given
/// back through another struct.
pub(crate) unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: NULL, or a domain that the caller gives back.
    errno::code(unsafe { Pd::named(pd) }.and_then(|object| {
        object.users.end().inspect_err(|error| object.check_in_use(*error))?;
        let context = &object.context;
        context.device.population.pds.fetch_sub(1, Ordering::Relaxed);
        context.gone(Object::ProtectionDomain, 0);
        match &object.parent {
            None => context.handles.pds.remove(object.id),
            Some(Parent { pd: child, td, .. }) => {
                child.users.leave();
                td.iter().for_each(|td| td.users.leave());
            }
        }
        // SAFETY: takes back the reference of `alloc_pd`, `import_pd` or `alloc_parent_domain`.
        unsafe { Arc::decrement_strong_count(pd.cast::<Pd>()) };
        Ok(())
    }))
}
