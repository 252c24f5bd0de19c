//! Asynchronous events: what happens to an object and belongs to no completion.

use core::ffi::c_int;

use rustix::io::Errno;
use verbs_sys::*;

use crate::cancellation::Uncancelled;
use crate::event::Acks;
use crate::faults::PORT_EVENTS;
use crate::objects::in_arc::InArc;
use crate::objects::state::{Context, Cq, Element, Qp, QueuedEvent, Srq};
use crate::{errno, limits};

impl Element {
    /// The object's count. No port waits for an acknowledgement.
    fn acks(&self) -> Option<&Acks> {
        Some(match self {
            Element::Port => return None,
            Element::Cq(cq) => &cq.async_acks,
            Element::Qp(qp) => &qp.async_acks,
            Element::Srq(srq) => &srq.acks,
        })
    }

    fn as_abi(&self) -> ibv_async_event__bindgen_ty_1 {
        match self {
            Element::Port => ibv_async_event__bindgen_ty_1 { port_num: limits::PORT.into() },
            Element::Cq(cq) => ibv_async_event__bindgen_ty_1 { cq: cq.as_abi() },
            Element::Qp(qp) => ibv_async_event__bindgen_ty_1 { qp: qp.as_abi() },
            Element::Srq(srq) => ibv_async_event__bindgen_ty_1 { srq: srq.as_abi() },
        }
    }
}

pub(crate) unsafe extern "C" fn get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: NULL, or a context of ours.
    errno::minus_one(unsafe { asked(context, event) }.and_then(|context| {
        crate::schedule::sim::steps_before_event(&context.device, &context.events)?;
        let taken = context.events.take(got)?;
        // SAFETY: the caller's place for one event.
        unsafe { event.write(taken.as_abi()) };
        Ok(())
    }))
}

/// `ibv_get_async_event` without its wait: [`WAITS`](crate::WAITS) if the caller is to wait for
/// input of the descriptor that is written to `fd`, and to call it again then. It is no
/// cancellation point.
///
/// # Safety
/// `context` is NULL or open; `event` is NULL or writable, and `fd` is writable.
pub unsafe extern "C" fn try_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
    fd: *mut c_int,
) -> c_int {
    let _uncancelled = Uncancelled::new();
    // SAFETY: `context` is NULL or open (see # Safety).
    let taken = unsafe { asked(context, event) }
        .and_then(|context| context.events.taken_or_fd(context.events.try_take(got)));
    // SAFETY: the caller owns the places for an event and for a descriptor (see # Safety).
    unsafe {
        match taken {
            Ok(Ok(taken)) => event.write(taken.as_abi()),
            Ok(Err(own)) => {
                fd.write(own);
                return crate::WAITS;
            }
            Err(error) => return errno::minus_one(Err(error)),
        }
    }
    0
}

/// The context of a call that asks for an event.
///
/// # Safety
/// `context` is NULL or an open context of ours.
unsafe fn asked<'a>(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> Result<InArc<'a, Context>, Errno> {
    // SAFETY: `context` is NULL or open (see # Safety).
    let context = unsafe { Context::from_abi(context) }?;
    if event.is_null() { Err(errno::EINVAL) } else { Ok(context) }
}

/// An event is handed out: its object waits for the acknowledgement.
fn got(event: &QueuedEvent) {
    if let Some(acks) = event.element.acks() {
        acks.got();
    }
}

impl QueuedEvent {
    fn as_abi(&self) -> ibv_async_event {
        ibv_async_event { element: self.element.as_abi(), event_type: self.event_type }
    }
}

pub(crate) unsafe extern "C" fn ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: NULL, or an event that `get_async_event` wrote; its object is alive,
    // because destroying it waits for this acknowledgement.
    unsafe {
        let Some(event) = event.as_ref() else { return };
        match event.event_type {
            ibv_event_type::IBV_EVENT_CQ_ERR => {
                if let Ok(cq) = Cq::from_abi(event.element.cq) {
                    cq.async_acks.ack(1);
                }
            }
            ibv_event_type::IBV_EVENT_SRQ_ERR | ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED => {
                if let Ok(srq) = Srq::from_abi(event.element.srq) {
                    srq.acks.ack(1);
                }
            }
            event if PORT_EVENTS.contains(&event) => {}
            // What is left is of queue pairs.
            _ => {
                if let Ok(qp) = Qp::from_abi(event.element.qp) {
                    qp.async_acks.ack(1);
                }
            }
        }
    }
}
