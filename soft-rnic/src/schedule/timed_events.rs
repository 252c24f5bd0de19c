//! Events that a plan of faults raises, each so long after its context was opened.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use verbs_sys::ibv_event_type;

use crate::objects::state::{AsyncEvent, Context, Device, Element, TimedEvent};

/// The number of no queue pair, by which the timer asks for an event.
pub(crate) const EVENTS: u32 = 1;

/// A context is opened: arms its events.
pub(crate) fn begin(context: &Arc<Context>) {
    let Some(injector) = &context.injector else { return };
    let device = &context.device;
    for (event_type, delay) in injector.plan().events() {
        // Held until the event is there: its deadline may come at once.
        let mut timed = device.timed_events.lock();
        // Those of closed contexts do not come.
        timed.retain(|_, event| event.context.strong_count() > 0);
        let token = device.arm(EVENTS, Some(*delay));
        let (context, event_type) = (Arc::downgrade(context), *event_type);
        timed.insert(token, TimedEvent { context, event_type });
    }
}

/// The deadline `token` has come.
pub(crate) fn raise(device: &Device, token: u64) {
    let timed = device.timed_events.lock().remove(&token);
    let Some((context, event_type)) =
        timed.and_then(|timed| Some((timed.context.upgrade()?, timed.event_type)))
    else {
        return;
    };
    // Relaxed: a flag that guards no memory; who takes the event sees it.
    match event_type {
        ibv_event_type::IBV_EVENT_PORT_ERR => context.is_port_down.store(true, Ordering::Relaxed),
        ibv_event_type::IBV_EVENT_PORT_ACTIVE => {
            context.is_port_down.store(false, Ordering::Relaxed);
        }
        _ => {}
    }
    context.events.push(AsyncEvent { element: Element::Port, event_type });
}
