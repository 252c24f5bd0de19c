//! Events that a deadline raises: those that a plan of faults has, each at its time after its
//! device was opened, in all contexts of that, and those that completion queues hold back.

use core::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use verbs_sys::ibv_event_type;

use crate::objects::handles::Handles;
use crate::objects::state::{Context, Device, Element, QueuedEvent, TimedEvent};

/// The number of no queue pair, by which the timer asks for an event.
pub(crate) const EVENTS: u32 = 1;

impl Device {
    /// Has an event raised `delay` nanoseconds from now; the token names its deadline.
    pub(crate) fn raise_later(self: &Arc<Device>, event: TimedEvent, delay: u64) -> u64 {
        // Held until the event is there: its deadline may pass at once.
        let mut timed = self.timed_events.lock();
        let token = self.arm(EVENTS, Some(delay));
        timed.insert(token, event);
        token
    }
}

/// A context gets the events of its port from now on. The first one of an open device arms them.
pub(crate) fn begin(context: &Arc<Context>) {
    let (device, handles) = (&context.device, &context.handles);
    let mut contexts = device.contexts.lock();
    contexts.retain(|context| context.strong_count() > 0);
    contexts.push(Arc::downgrade(context));
    drop(contexts);
    let Some(injector) = &context.injector else { return };
    // Relaxed: a flag that guards no memory.
    if handles.has_port_events.swap(true, Ordering::Relaxed) {
        return;
    }
    // Those of closed contexts are not raised.
    device.timed_events.lock().retain(|_, event| match event {
        TimedEvent::Port(handles, _) => handles.strong_count() > 0,
        TimedEvent::Completions(cq) => cq.strong_count() > 0,
    });
    for (event_type, delay) in injector.plan().events() {
        device.raise_later(TimedEvent::Port(Arc::downgrade(handles), *event_type), *delay);
    }
}

/// The deadline `token` has passed.
pub(crate) fn raise(device: &Device, token: u64) {
    let timed = device.timed_events.lock().remove(&token);
    match timed {
        Some(TimedEvent::Port(handles, event_type)) => {
            if let Some(handles) = handles.upgrade() {
                raise_at_port(device, &handles, event_type);
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

/// Events of its port that wait in a context at most: a program that takes none has the last ones.
const PORT_EVENTS: usize = 64;

/// An event of the port, for all contexts of the device.
pub(crate) fn raise_for_all(device: &Device, event_type: ibv_event_type) {
    let is_of_port = |event: &QueuedEvent| matches!(event.element, Element::Port);
    for context in device.contexts.lock().iter().filter_map(Weak::upgrade) {
        let event = QueuedEvent { element: Element::Port, event_type };
        context.events.push_latest(event, PORT_EVENTS, is_of_port);
    }
}

/// An event of the port, for all contexts of one open device, as the kernel has one for each
/// descriptor of events.
fn raise_at_port(device: &Device, handles: &Arc<Handles>, event_type: ibv_event_type) {
    let is_down = match event_type {
        ibv_event_type::IBV_EVENT_PORT_ERR => Some(true),
        ibv_event_type::IBV_EVENT_PORT_ACTIVE => Some(false),
        _ => None,
    };
    // Held until all have it: one that is imported meanwhile has it, or none of them had it before.
    let contexts = device.contexts.lock();
    if let Some(is_down) = is_down {
        // Relaxed: a flag that guards no memory; the thread that takes the event sees it.
        handles.is_port_down.store(is_down, Ordering::Relaxed);
    }
    let shares = |context: &Arc<Context>| Arc::ptr_eq(&context.handles, handles);
    for context in contexts.iter().filter_map(Weak::upgrade).filter(shares) {
        context.events.push(QueuedEvent { element: Element::Port, event_type });
    }
}
