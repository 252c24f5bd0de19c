//! Contexts: what callers know an open device by.

use core::mem::offset_of;
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::errno;
use crate::objects::in_arc::InArc;
use crate::objects::state::Context;

impl Context {
    /// The struct by which callers know the context.
    pub(crate) fn as_abi(self: &Arc<Context>) -> *mut ibv_context {
        // SAFETY: the offset stays inside the object.
        unsafe {
            Arc::as_ptr(self)
                .byte_add(offset_of!(verbs_context, context))
                .cast::<ibv_context>()
                .cast_mut()
        }
    }

    /// Reports whether both are of one open device: objects made of one can be used with the other.
    pub(crate) fn shares(&self, other: &Context) -> bool {
        Arc::ptr_eq(&self.handles, &other.handles)
    }

    /// The object behind a caller's pointer; `EPERM` if it is of a parent of this process.
    ///
    /// # Safety
    /// `context` is NULL or an open context of ours.
    pub(crate) unsafe fn from_abi<'a>(
        context: *mut ibv_context,
    ) -> Result<InArc<'a, Context>, Errno> {
        // SAFETY: `context` is NULL or an open context of ours (see # Safety).
        let context = unsafe { Context::of_struct(context) }?;
        context.device.is_ours()?;
        Ok(context)
    }

    /// As [`from_abi`](Self::from_abi), also of a parent's.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn of_struct<'a>(
        context: *mut ibv_context,
    ) -> Result<InArc<'a, Context>, Errno> {
        if context.is_null() {
            return Err(errno::EINVAL);
        }
        // SAFETY: `context` is open (see # Safety), and lies at this offset in an object that an
        // `Arc` holds.
        unsafe { InArc::new(context.byte_sub(offset_of!(verbs_context, context)).cast()) }
            .ok_or(errno::EINVAL)
    }
}
