//! Asynchronous events: what happens to a device besides completions.

use std::fmt;
use std::os::fd::AsFd;
use std::time::Duration;

use verbs_sys::{async_event_name, ibv_async_event, ibv_event_type};

use crate::descriptor::{deadline, wait_readable};
use crate::errno::Errno;
use crate::error::AsyncEventError;
use crate::ids::{CqId, SrqId};
use crate::object::backlog::BacklogEvent;
use crate::object::context::{Context, ContextInner};
use crate::object::tag::{QpTag, SrqTag};

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

impl Context {
    /// The next asynchronous event of the device; `None` when there was none for
    /// `timeout` (`Some(Duration::ZERO)` only looks, `None` waits for ever). Of events that
    /// were taken for a queue pair's sake
    /// ([`QpControl::has_reached_last_wqe`](crate::QpControl::has_reached_last_wqe)), and
    /// that no caller asks for here, the last 1,024 are kept.
    ///
    /// # Errors
    /// [`AsyncEventError`] with the system's reason.
    pub fn poll_async_event(
        &self,
        timeout: Option<Duration>,
    ) -> Result<Option<AsyncEvent>, AsyncEventError> {
        let error = |errno| AsyncEventError { device: self.device_name().to_owned(), errno };
        let (inner, deadline) = (&self.inner, deadline(timeout));
        loop {
            let kept = inner.backlog.take();
            if let Some(noted) =
                kept.map_or_else(|| inner.take_async_event(), |n| Ok(Some(n))).map_err(error)?
            {
                return Ok(Some(noted.into()));
            }
            let fds = [inner.as_fd(), inner.backlog.wakeup().map_err(error)?];
            if wait_readable(&fds, deadline).map_err(error)?.is_none() {
                return Ok(None);
            }
        }
    }
}

impl ContextInner {
    /// Takes all events that are there, for callers that ask for them, and passes queue
    /// pairs their own.
    pub(crate) fn gather_async_events(&self) -> Result<(), Errno> {
        while let Some(noted) = self.take_async_event()? {
            self.backlog.put(noted);
        }
        Ok(())
    }

    /// Takes one event without blocking, and acknowledges it: its object cannot be
    /// destroyed before that, so that nothing is kept of it but plain values.
    fn take_async_event(&self) -> Result<Option<BacklogEvent>, Errno> {
        let mut raw = ibv_async_event::default();
        // SAFETY: the context is alive, `raw` is writable; the descriptor does not block.
        if unsafe { (self.table.get_async_event)(self.raw.as_ptr(), &mut raw) } != 0 {
            return match Errno::last() {
                Errno::EAGAIN | Errno::EINTR => Ok(None),
                errno => Err(errno),
            };
        }
        // SAFETY: the event was just received and is not acknowledged yet.
        let number = unsafe { number(&raw) };
        // SAFETY: `raw` was received just before, and is acknowledged once, here.
        unsafe { (self.table.ack_async_event)(&mut raw) };
        Ok(Some(BacklogEvent { event_type: raw.event_type, number }))
    }
}

impl From<BacklogEvent> for AsyncEvent {
    fn from(BacklogEvent { event_type, number }: BacklogEvent) -> AsyncEvent {
        let source = match SourceKind::from_event_type(event_type) {
            SourceKind::Cq => AsyncSource::Cq(CqId(number)),
            SourceKind::Srq => AsyncSource::Srq(SrqId(number)),
            SourceKind::Qp => AsyncSource::Qp(number),
            SourceKind::Port => AsyncSource::Port(number.cast_signed()),
            SourceKind::Device => AsyncSource::Device,
        };
        AsyncEvent { kind: AsyncEventKind(event_type), source }
    }
}

/// Kinds of objects that an event can be about.
enum SourceKind {
    Cq,
    Qp,
    Srq,
    Port,
    Device,
}

impl SourceKind {
    fn from_event_type(event_type: ibv_event_type) -> SourceKind {
        use ibv_event_type as t;
        match event_type {
            t::IBV_EVENT_CQ_ERR => SourceKind::Cq,
            t::IBV_EVENT_SRQ_ERR | t::IBV_EVENT_SRQ_LIMIT_REACHED => SourceKind::Srq,
            t::IBV_EVENT_QP_FATAL
            | t::IBV_EVENT_QP_REQ_ERR
            | t::IBV_EVENT_QP_ACCESS_ERR
            | t::IBV_EVENT_COMM_EST
            | t::IBV_EVENT_SQ_DRAINED
            | t::IBV_EVENT_PATH_MIG
            | t::IBV_EVENT_PATH_MIG_ERR
            | t::IBV_EVENT_QP_LAST_WQE_REACHED => SourceKind::Qp,
            t::IBV_EVENT_PORT_ACTIVE
            | t::IBV_EVENT_PORT_ERR
            | t::IBV_EVENT_LID_CHANGE
            | t::IBV_EVENT_PKEY_CHANGE
            | t::IBV_EVENT_SM_CHANGE
            | t::IBV_EVENT_CLIENT_REREGISTER
            | t::IBV_EVENT_GID_CHANGE => SourceKind::Port,
            _ => SourceKind::Device,
        }
    }
}

/// The number of what an event is about. A queue pair that has taken its last request is
/// told so.
///
/// # Safety
/// The event is not acknowledged yet, so that its object is alive; the object was
/// made by this crate.
unsafe fn number(event: &ibv_async_event) -> u32 {
    // SAFETY: the type says which member of the union is set. The context of every CQ, SRQ
    // and queue pair points to the tag that its owner keeps until it has been destroyed.
    unsafe {
        match SourceKind::from_event_type(event.event_type) {
            SourceKind::Cq => CqId::from_context((*event.element.cq).cq_context).0,
            SourceKind::Srq => (*(*event.element.srq).srq_context.cast::<SrqTag>()).id.0,
            SourceKind::Qp => {
                let qp = &*event.element.qp;
                if event.event_type == ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED {
                    (*qp.qp_context.cast::<QpTag>()).reach_last_wqe();
                }
                qp.qp_num
            }
            SourceKind::Port => event.element.port_num.cast_unsigned(),
            SourceKind::Device => 0,
        }
    }
}
