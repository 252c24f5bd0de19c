//! Asynchronous events: what happens to an object and belongs to no completion.

use core::ffi::c_int;

use verbs_sys::*;

use crate::errno;
use crate::event::Acks;
use crate::objects::state::{Context, Cq, Element, Qp, Srq};

impl Element {
    fn acks(&self) -> &Acks {
        match self {
            Element::Cq(cq) => &cq.async_acks,
            Element::Qp(qp) => &qp.async_acks,
            Element::Srq(srq) => &srq.acks,
        }
    }

    fn as_abi(&self) -> ibv_async_event__bindgen_ty_1 {
        match self {
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
    errno::minus_one(unsafe { Context::from_abi(context) }.and_then(|context| {
        if event.is_null() {
            return Err(errno::EINVAL);
        }
        crate::schedule::sim::steps_before_event(&context.device, &context.events)?;
        let taken = context.events.take(|e| e.element.acks().got())?;
        let element = taken.element.as_abi();
        // SAFETY: the caller's place for one event.
        unsafe { event.write(ibv_async_event { element, event_type: taken.event_type }) };
        Ok(())
    }))
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
            // The device makes no event of a port: what is left is of queue pairs.
            _ => {
                if let Ok(qp) = Qp::from_abi(event.element.qp) {
                    qp.async_acks.ack(1);
                }
            }
        }
    }
}
