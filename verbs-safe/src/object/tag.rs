//! Values behind the context pointers of queue pairs and shared receive queues, for the events that
//! name them.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::ids::SrqId;

/// The value that the context pointer of a queue pair points to.
#[derive(Debug, Default)]
pub(crate) struct QpTag {
    /// True once the device has reported that the queue pair takes no more from its shared receive
    /// queue.
    reached_last_wqe: AtomicBool,
}

impl QpTag {
    pub(crate) fn reach_last_wqe(&self) {
        // Release: its last completions were there before the event.
        self.reached_last_wqe.store(true, Ordering::Release);
        host::point();
    }

    pub(crate) fn has_reached_last_wqe(&self) -> bool {
        // Acquire: its last completions can be polled from here on.
        self.reached_last_wqe.load(Ordering::Acquire)
    }
}

/// The value that the context pointer of a shared receive queue points to.
pub(crate) struct SrqTag {
    pub(crate) id: SrqId,
}
