//! Completion channels.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::errno;
use crate::event::EventQueue;
use crate::objects::in_arc::InArc;
use crate::objects::state::{Channel, Context, Cq};

impl Channel {
    /// The object behind a caller's pointer; none for NULL.
    ///
    /// # Safety
    /// `channel` is NULL or a live channel of ours.
    pub(crate) unsafe fn from_abi<'a>(
        channel: *mut ibv_comp_channel,
    ) -> Result<Option<InArc<'a, Channel>>, Errno> {
        // SAFETY: the caller's promise; every channel lives in an Arc.
        Ok(unsafe { InArc::new(channel.cast::<Channel>()) })
    }

    pub(crate) fn as_abi(self: &Arc<Channel>) -> *mut ibv_comp_channel {
        Arc::as_ptr(self).cast_mut().cast()
    }
}

pub(crate) unsafe extern "C" fn create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    // SAFETY: NULL, or a context of ours.
    errno::pointer(unsafe { Context::from_abi(context) }.and_then(|context| {
        errno::memory()?;
        let events = match &context.device.peers {
            Some(_) => EventQueue::extensible()?,
            None => EventQueue::new()?,
        };
        context.users.fetch_add(1, Ordering::Relaxed);
        let context = context.keep();
        let abi = ibv_comp_channel { context: context.as_abi(), fd: events.raw_fd(), refcnt: 0 };
        let channel = Arc::new(Channel { abi, context, events, users: AtomicUsize::new(0) });
        channel.made();
        Ok(Arc::into_raw(channel).cast_mut().cast())
    }))
}

pub(crate) unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: NULL, or a channel that the caller gives back.
    errno::code(unsafe { Channel::from_abi(channel) }.and_then(|object| {
        let object = object.ok_or(errno::EINVAL)?;
        if object.users.load(Ordering::Acquire) != 0 {
            return Err(errno::EBUSY);
        }
        if let (Some(peers), Some(set)) = (&object.context.device.peers, object.events.set()) {
            peers.waits_no_more(set);
        }
        object.context.users.fetch_sub(1, Ordering::Release);
        object.check_gone();
        // SAFETY: takes back the reference of `create_comp_channel`.
        unsafe { Arc::decrement_strong_count(channel.cast::<Channel>()) };
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: NULL, or a channel of ours.
    let Ok(Some(channel)) = (unsafe { Channel::from_abi(channel) }) else {
        return errno::minus_one(Err(errno::EINVAL));
    };
    if cq.is_null() || cq_context.is_null() {
        return errno::minus_one(Err(errno::EINVAL));
    }
    let device = &channel.context.device;
    let event = device.is_ours().and_then(|()| {
        crate::schedule::sim::steps_before_event(device, &channel.events)?;
        let set = channel.events.set();
        let look = |blocks: bool| {
            crate::fabric::process::progress_thread::before_waiting(device, set, || blocks);
            blocks
                .then(|| crate::fabric::process::progress_thread::watch_doorbell(device))
                .flatten()
        };
        channel.events.take_or(|cq| cq.channel_acks.got(), look)
    });
    errno::minus_one(event.map(|event| {
        let abi = event.as_abi();
        // SAFETY: the caller's places; the queue cannot be destroyed before the
        // event is acknowledged.
        unsafe {
            cq.write(abi);
            cq_context.write((*abi).cq_context);
        }
    }))
}

pub(crate) unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, nevents: u32) {
    // SAFETY: NULL, or a completion queue of ours.
    if let Ok(cq) = unsafe { Cq::from_abi(cq) } {
        cq.channel_acks.ack(nevents);
    }
}
