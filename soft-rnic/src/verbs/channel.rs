//! Completion channels.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::cancellation::Uncancelled;
use crate::check::report::number;
use crate::errno;
use crate::event::EventQueue;
use crate::fabric::process::progress_thread::{before_waiting, watch_doorbell};
use crate::objects::in_arc::InArc;
use crate::objects::state::{CompChannel, Context, Cq};
use crate::objects::users::Users;

impl CompChannel {
    /// The object behind a caller's pointer; none for NULL.
    ///
    /// # Safety
    /// `channel` is NULL or a live channel of ours.
    pub(crate) unsafe fn from_abi<'a>(
        channel: *mut ibv_comp_channel,
    ) -> Option<InArc<'a, CompChannel>> {
        // SAFETY: `channel` is NULL or live (see # Safety), and every channel lives in an `Arc`.
        unsafe { InArc::new(channel.cast::<CompChannel>()) }
    }

    pub(crate) fn as_abi(self: &Arc<CompChannel>) -> *mut ibv_comp_channel {
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
        let context = context.keep();
        let abi = ibv_comp_channel { context: context.as_abi(), fd: events.raw_fd(), refcnt: 0 };
        let channel = Arc::new(CompChannel { abi, context, events, users: Users::default() });
        channel.made();
        // Relaxed, here and where it is destroyed: the count guards no memory.
        channel.context.device.population.channels.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::into_raw(channel).cast_mut().cast())
    }))
}

pub(crate) unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: NULL, or a channel that the caller gives back.
    errno::code(unsafe { CompChannel::from_abi(channel) }.ok_or(errno::EINVAL).and_then(|object| {
        object.users.end().inspect_err(|error| {
            let (call, what) = ("ibv_destroy_comp_channel", "a completion channel");
            let queues = || vec![number(object.users.count().max(1) as u64, "completion queue")];
            object.context.check_in_use(*error, call, what, queues);
        })?;
        if let (Some(peers), Some(set)) = (&object.context.device.peers, object.events.set()) {
            peers.waits_no_more(set);
        }
        object.check_gone();
        object.context.device.population.channels.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: takes back the reference of `create_comp_channel`.
        unsafe { Arc::decrement_strong_count(channel.cast::<CompChannel>()) };
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: NULL, or a channel of ours.
    errno::minus_one(unsafe { asked(channel, cq, cq_context) }.and_then(|channel| {
        let device = &channel.context.device;
        crate::schedule::sim::steps_before_event(device, &channel.events)?;
        let set = channel.events.set();
        let look = |blocks: bool| {
            before_waiting(device, set, || blocks);
            blocks.then(|| watch_doorbell(device)).flatten()
        };
        let event = channel.events.take_or(|cq| cq.channel_acks.got(), look)?;
        // SAFETY: the caller's places.
        unsafe { write_event(&event, cq, cq_context) };
        Ok(())
    }))
}

/// `ibv_get_cq_event` without its wait: [`WAITS`](crate::WAITS) if the caller is to wait for input
/// of the descriptor that is written to `fd`, and to call it again then. It is no cancellation
/// point.
///
/// # Safety
/// `channel` is NULL or alive; `cq` and `cq_context` are NULL or writable, and `fd` is writable.
pub unsafe extern "C" fn try_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
    fd: *mut c_int,
) -> c_int {
    let _uncancelled = Uncancelled::new();
    // SAFETY: `channel` is NULL or alive (see # Safety).
    let taken = unsafe { asked(channel, cq, cq_context) }.and_then(|channel| {
        let take = || channel.events.try_take(|cq| cq.channel_acks.got());
        let event = take().or_else(|| {
            // The descriptor is to be readable as well when another process has sent something.
            before_waiting(&channel.context.device, channel.events.set(), || false);
            take()
        });
        channel.events.taken_or_fd(event)
    });
    // SAFETY: the caller owns the places for a queue, its pointer and a descriptor (see # Safety).
    unsafe {
        match taken {
            Ok(Ok(event)) => write_event(&event, cq, cq_context),
            Ok(Err(own)) => {
                fd.write(own);
                return crate::WAITS;
            }
            Err(error) => return errno::minus_one(Err(error)),
        }
    }
    0
}

/// The channel of a call that asks for an event.
///
/// # Safety
/// `channel` is NULL or a live channel of ours.
unsafe fn asked<'a>(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> Result<InArc<'a, CompChannel>, Errno> {
    // SAFETY: `channel` is NULL or a live channel of ours (see # Safety).
    let channel = unsafe { CompChannel::from_abi(channel) };
    let channel = channel.filter(|_| !cq.is_null() && !cq_context.is_null());
    let channel = channel.ok_or(errno::EINVAL)?;
    channel.context.device.is_ours()?;
    Ok(channel)
}

/// Says which queue an event is of. The queue cannot be destroyed before the event is acknowledged.
///
/// # Safety
/// `cq` and `cq_context` are writable.
unsafe fn write_event(event: &Arc<Cq>, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) {
    let abi = event.as_abi();
    // SAFETY: `cq` and `cq_context` are writable (see # Safety); `event` keeps the queue alive.
    unsafe {
        cq.write(abi);
        cq_context.write((*abi).cq_context);
    }
}

pub(crate) unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, nevents: u32) {
    // SAFETY: NULL, or a completion queue of ours.
    if let Ok(cq) = unsafe { Cq::from_abi(cq) } {
        cq.channel_acks.ack(nevents);
    }
}
