//! A queue pair, and the objects that it holds.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use verbs_sys::ibv_qp;

use crate::errno::{Errno, leaked};
use crate::object::context::PdInner;
use crate::object::cq::Reservation;
use crate::object::pointer::ObjectPtr;
use crate::object::tag::QpTag;
use crate::queue::pinned::PinnedRefs;
use crate::queue::pool::PoolMemory;
use crate::queue::srq::SrqInner;
use crate::transport::Transport;

/// The queue pair and all that it uses, above all the memory of its posted work, which
/// cannot be freed before the queue pair has been destroyed.
pub(crate) struct QpInner {
    raw: ObjectPtr<ibv_qp>,
    pub(crate) qp_num: u32,
    pub(crate) transport: Transport,
    pub(crate) uses: ManuallyDrop<Uses>,
}

/// Objects that a queue pair is made of, and holds until it has been destroyed. They are put
/// together where the queue pair is made, and nothing writes to them afterwards.
pub(crate) struct Uses {
    pub(crate) tag: Arc<QpTag>,
    /// The memory of the send ring.
    pub(super) _ring: Arc<PoolMemory>,
    pub(super) _pool: Option<Arc<PoolMemory>>,
    pub(super) _srq: Option<Arc<SrqInner>>,
    pub(crate) send_cq: Reservation,
    pub(super) _recv_cq: Reservation,
    /// Objects that requests refer to besides: address handles, regions.
    pub(crate) pinned: PinnedRefs,
    pub(crate) pd: Arc<PdInner>,
}

impl QpInner {
    /// Takes over a queue pair that was just made.
    ///
    /// # Safety
    /// It was made in the domain, of the queues and with the tag of `uses`, and nothing else
    /// destroys it.
    pub(super) unsafe fn new(raw: ObjectPtr<ibv_qp>, transport: Transport, uses: Uses) -> QpInner {
        // SAFETY: `raw` owns the queue pair; its number does not change.
        let qp_num = unsafe { (*raw.as_ptr()).qp_num };
        QpInner { raw, qp_num, transport, uses: ManuallyDrop::new(uses) }
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        if host::plant::is_planted(host::plant::Plant::LeakedQueuePair) {
            return;
        }
        // SAFETY: `self` is the last handle (it is being dropped), so no thread posts any more.
        let result = unsafe { (self.uses.pd.context.table.destroy_qp)(self.raw.as_ptr()) };
        match Errno::check(result) {
            // SAFETY: dropped once, here; the device is done with the memory.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.uses) },
            Err(errno) => leaked("a queue pair", errno),
        }
    }
}
