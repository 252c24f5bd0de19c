//! Taking asynchronous events.

use std::os::fd::AsFd;
use std::time::Duration;

use verbs_sys::{ibv_async_event, ibv_event_type as t};

use super::{AsyncEvent, AsyncEventKind, AsyncSource};
use crate::descriptor::{deadline, wait_readable};
use crate::errno::Errno;
use crate::error::AsyncEventError;
use crate::ids::CqId;
use crate::object::context::{Context, ContextInner};
use crate::object::tag::{QpTag, SrqTag};

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
            if let Some(event) =
                kept.map_or_else(|| inner.take_async_event(), |e| Ok(Some(e))).map_err(error)?
            {
                return Ok(Some(event));
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
        while let Some(event) = self.take_async_event()? {
            self.backlog.put(event);
        }
        Ok(())
    }

    /// Takes one event without blocking, and acknowledges it: its object cannot be
    /// destroyed before that, so that nothing is kept of it but plain values.
    fn take_async_event(&self) -> Result<Option<AsyncEvent>, Errno> {
        let mut raw = ibv_async_event::default();
        // SAFETY: `self` keeps the context alive; `raw` is writable; the descriptor does not block.
        if unsafe { (self.table.get_async_event)(self.raw.as_ptr(), &mut raw) } != 0 {
            return match Errno::last() {
                Errno::EAGAIN | Errno::EINTR => Ok(None),
                errno => Err(errno),
            };
        }
        // SAFETY: the event was just received and is not acknowledged yet.
        let source = unsafe { source(&raw) };
        // SAFETY: `raw` was received just before, and is acknowledged once, here.
        unsafe { (self.table.ack_async_event)(&mut raw) };
        Ok(Some(AsyncEvent { kind: AsyncEventKind(raw.event_type), source }))
    }
}

/// Returns the object of an event. Marks the tag of a queue pair that has taken its last request.
///
/// # Safety
/// The event is not acknowledged yet, so that its object is alive; the object was
/// made by this crate.
unsafe fn source(event: &ibv_async_event) -> AsyncSource {
    // SAFETY: the type says which member of the union is set. The context of every CQ, SRQ
    // and queue pair points to the tag that its owner keeps until it has been destroyed.
    unsafe {
        match event.event_type {
            t::IBV_EVENT_CQ_ERR => {
                AsyncSource::Cq(CqId::from_context((*event.element.cq).cq_context))
            }
            t::IBV_EVENT_SRQ_ERR | t::IBV_EVENT_SRQ_LIMIT_REACHED => {
                AsyncSource::Srq((*(*event.element.srq).srq_context.cast::<SrqTag>()).id)
            }
            t::IBV_EVENT_QP_FATAL
            | t::IBV_EVENT_QP_REQ_ERR
            | t::IBV_EVENT_QP_ACCESS_ERR
            | t::IBV_EVENT_COMM_EST
            | t::IBV_EVENT_SQ_DRAINED
            | t::IBV_EVENT_PATH_MIG
            | t::IBV_EVENT_PATH_MIG_ERR
            | t::IBV_EVENT_QP_LAST_WQE_REACHED => {
                let qp = &*event.element.qp;
                if event.event_type == t::IBV_EVENT_QP_LAST_WQE_REACHED {
                    (*qp.qp_context.cast::<QpTag>()).reach_last_wqe();
                }
                AsyncSource::Qp(qp.qp_num)
            }
            t::IBV_EVENT_PORT_ACTIVE
            | t::IBV_EVENT_PORT_ERR
            | t::IBV_EVENT_LID_CHANGE
            | t::IBV_EVENT_PKEY_CHANGE
            | t::IBV_EVENT_SM_CHANGE
            | t::IBV_EVENT_CLIENT_REREGISTER
            | t::IBV_EVENT_GID_CHANGE => AsyncSource::Port(event.element.port_num),
            _ => AsyncSource::Device,
        }
    }
}
