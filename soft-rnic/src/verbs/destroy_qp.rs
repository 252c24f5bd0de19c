//! The end of a queue pair, or of a handle of one.

use core::ffi::c_int;
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::check::checker::Object;
use crate::errno;
use crate::fabric::wire::progress::settle;
use crate::objects::state::{Element, Qp};

pub(crate) unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: NULL, or a queue pair that the caller gives back.
    errno::code(unsafe { destroy(qp) })
}

/// # Safety
/// That of the verb.
unsafe fn destroy(qp: *mut ibv_qp) -> Result<(), Errno> {
    // SAFETY: `ibv_destroy_qp` asks for a live `qp`, which the caller gives back.
    let object = unsafe { Qp::named(qp) }?.keep();
    if object.is_attached() {
        let (call, users) =
            ("ibv_destroy_qp", || vec!["a multicast group (ibv_detach_mcast)".into()]);
        object.context.check_in_use(errno::EBUSY, call, &format!("QP {:#x}", object.num), users);
        return Err(errno::EBUSY);
    }
    settle(object.real());
    if object.target.is_some() {
        object.close();
    } else {
        object.leave();
    }
    let is_this = |other: &Arc<Qp>| Arc::ptr_eq(other, &object);
    let events = &object.context.events;
    events.remove(|e| matches!(&e.element, Element::Qp(qp) if is_this(qp)));
    object.async_acks.wait();
    match &object.target {
        // Its domain can be closed now.
        Some(target) => target.xrcd.users.leave(),
        None => {
            // SAFETY: it was destroyed under both of its locks, after which none looks at receive
            // requests; the caller uses it no more.
            unsafe { object.rq.give_back() };
            object.detach();
        }
    }
    object.pd.context.gone(Object::QueuePair, object.num.into());
    // SAFETY: takes back the reference of `create_qp`.
    unsafe { Arc::decrement_strong_count(qp.cast::<Qp>()) };
    Ok(())
}
