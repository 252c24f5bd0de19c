//! Events that a deadline raises: those that a plan of faults has, each so long after its context was
//! opened, and those that completion queues hold back.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use verbs_sys::ibv_event_type;

use crate::objects::state::{AsyncEvent, Context, Device, Element, TimedEvent};

/// The number of no queue pair, by which the timer asks for an event.
pub(crate) const EVENTS: u32 = 1;

impl Device {
    /// Has an event raised `delay` nanoseconds from now; the token names its deadline.
    pub(crate) fn raise_later(self: &Arc<Device>, event: TimedEvent, delay: u64) -> u64 {
        // Held until the event is there: its deadline may come at once.
        let mut timed = self.timed_events.lock();
        let token = self.arm(EVENTS, Some(delay));
        timed.insert(token, event);
        token
    }
}

/// A context is opened: arms its events.
pub(crate) fn begin(context: &Arc<Context>) {
    let Some(injector) = &context.injector else { return };
    let device = &context.device;
    // Those of closed contexts do not come.
    device.timed_events.lock().retain(|_, event| match event {
        TimedEvent::Port(context, _) => context.strong_count() > 0,
        TimedEvent::Completions(cq) => cq.strong_count() > 0,
    });
    for (event_type, delay) in injector.plan().events() {
        device.raise_later(TimedEvent::Port(Arc::downgrade(context), *event_type), *delay);
    }
}

/// The deadline `token` has come.
pub(crate) fn raise(device: &Device, token: u64) {
    let timed = device.timed_events.lock().remove(&token);
    match timed {
        Some(TimedEvent::Port(context, event_type)) => {
            if let Some(context) = context.upgrade() {
                context.raise(event_type);
            }
        }
        Some(TimedEvent::Completions(cq)) => {
            if let Some(cq) = cq.upgrade() {
                cq.period_is_over(token);
            }
        }
        None => {}
    }
}

impl Context {
    /// An event of the port.
    fn raise(&self, event_type: ibv_event_type) {
        let is_down = match event_type {
            ibv_event_type::IBV_EVENT_PORT_ERR => Some(true),
            ibv_event_type::IBV_EVENT_PORT_ACTIVE => Some(false),
            _ => None,
        };
        if let Some(is_down) = is_down {
            // Relaxed: a flag that guards no memory; the thread that takes the event sees it.
            self.is_port_down.store(is_down, Ordering::Relaxed);
        }
        self.events.push(AsyncEvent { element: Element::Port, event_type });
    }
}
