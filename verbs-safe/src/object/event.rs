//! Asynchronous events of a device and its objects.

mod poll;

use std::fmt;

use verbs_sys::{async_event_name, ibv_event_type};

use crate::ids::{CqId, SrqId};

/// Kind of an asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AsyncEventKind(ibv_event_type);

impl AsyncEventKind {
    /// A completion queue overran, and is dead.
    pub const CQ_ERR: AsyncEventKind = AsyncEventKind(ibv_event_type::IBV_EVENT_CQ_ERR);
    /// A queue pair failed; it is in ERR.
    pub const QP_FATAL: AsyncEventKind = AsyncEventKind(ibv_event_type::IBV_EVENT_QP_FATAL);
    /// A shared receive queue holds fewer requests than its limit.
    pub const SRQ_LIMIT_REACHED: AsyncEventKind =
        AsyncEventKind(ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED);
    /// A queue pair in ERR has taken its last request from a shared receive queue.
    pub const QP_LAST_WQE_REACHED: AsyncEventKind =
        AsyncEventKind(ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED);
    /// The device is gone.
    pub const DEVICE_FATAL: AsyncEventKind = AsyncEventKind(ibv_event_type::IBV_EVENT_DEVICE_FATAL);

    /// The specification's name, `"unknown"` for a value that rdma-core 44 does not know.
    #[must_use]
    pub fn name(self) -> &'static str {
        async_event_name(self.0)
    }
}

impl fmt::Debug for AsyncEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0.0)
    }
}

/// Object that an asynchronous event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncSource {
    /// The completion queue of this number.
    Cq(CqId),
    /// The queue pair of this number.
    Qp(u32),
    /// The shared receive queue of this number.
    Srq(SrqId),
    /// The port of this number.
    Port(i32),
    /// The device, or something that this layer does not know.
    Device,
}

/// An asynchronous event, already acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Kind of the event.
    pub kind: AsyncEventKind,
    /// Object that it happened to.
    pub source: AsyncSource,
}
