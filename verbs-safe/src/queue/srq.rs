//! Shared receive queues: many queue pairs, one pool.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use verbs_sys::{ibv_srq, ibv_srq_attr, ibv_srq_attr_mask, ibv_srq_init_attr};

use crate::errno::Errno;
use crate::error::{CreateSrqError, ModifySrqError};
use crate::ids::SrqId;
use crate::object::context::{Context, PdInner, ProtectionDomain};
use crate::object::pointer::{ObjectPtr, destroyed};
use crate::object::tag::SrqTag;
use crate::queue::pool::{Front, PoolMemory};

/// A shared receive queue. Clones are handles of the same one. Its receives are
/// posted through the [`RecvPoster`](crate::RecvPoster) that was made with it.
#[derive(Clone)]
pub struct SharedReceiveQueue {
    pub(crate) inner: Arc<SrqInner>,
}

pub(crate) struct SrqInner {
    pub(crate) raw: ObjectPtr<ibv_srq>,
    tag: Arc<SrqTag>,
    /// The memory of posted receives: the device may write there until the queue has
    /// been destroyed.
    memory: Arc<PoolMemory>,
    pub(crate) pd: Arc<PdInner>,
}

impl ProtectionDomain {
    /// A shared receive queue of `max_wr` requests, which land in `memory`.
    pub(crate) fn create_srq(
        &self,
        max_wr: u32,
        memory: Arc<PoolMemory>,
    ) -> Result<SharedReceiveQueue, CreateSrqError> {
        let tag = Arc::new(SrqTag { id: next_id() });
        let mut init = ibv_srq_init_attr {
            srq_context: Arc::as_ptr(&tag).cast_mut().cast::<c_void>(),
            attr: ibv_srq_attr { max_wr, max_sge: 1, srq_limit: 0 },
        };
        let (table, pd) = (&self.inner.context.table, self.inner.raw.as_ptr());
        // SAFETY: `self.inner` keeps the domain alive; `SrqInner` keeps the tag until the queue is
        // destroyed.
        let raw = unsafe { (table.create_srq)(pd, &mut init) };
        let refused = |errno| CreateSrqError::Refused { max_wr, errno };
        let (raw, pd) = (ObjectPtr::new(raw).map_err(refused)?, self.inner.clone());
        Ok(SharedReceiveQueue { inner: Arc::new(SrqInner { raw, tag, memory, pd }) })
    }
}

fn next_id() -> SrqId {
    static LAST: AtomicU32 = AtomicU32::new(0);
    // Relaxed: only the count itself matters.
    SrqId(LAST.fetch_add(1, Ordering::Relaxed))
}

impl SharedReceiveQueue {
    /// Its number in this process.
    #[must_use]
    pub fn id(&self) -> SrqId {
        self.inner.tag.id
    }

    /// Returns how many receives it can hold.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.inner.memory.slots()
    }

    /// Arms the limit: one asynchronous event
    /// ([`SRQ_LIMIT_REACHED`](crate::AsyncEventKind::SRQ_LIMIT_REACHED)) when fewer
    /// than `limit` receives are posted. One-shot; 0 disarms it.
    ///
    /// # Errors
    /// [`ModifySrqError`], as when the limit is over the queue's size.
    pub fn arm_limit(&self, limit: u32) -> Result<(), ModifySrqError> {
        let mut attr = ibv_srq_attr { srq_limit: limit, ..ibv_srq_attr::default() };
        let mask = ibv_srq_attr_mask::IBV_SRQ_LIMIT.0 as i32;
        // SAFETY: `self.inner` keeps the queue alive.
        let result = unsafe { (self.table().modify_srq)(self.inner.raw.as_ptr(), &mut attr, mask) };
        Errno::check(result).map_err(|errno| ModifySrqError { verb: "arming the limit of", errno })
    }

    /// The limit that is armed, 0 if none is.
    ///
    /// # Errors
    /// [`ModifySrqError`] with the system's reason.
    pub fn armed_limit(&self) -> Result<u32, ModifySrqError> {
        let mut attr = ibv_srq_attr::default();
        // SAFETY: `self.inner` keeps the queue alive; `attr` is writable.
        let result = unsafe { (self.table().query_srq)(self.inner.raw.as_ptr(), &mut attr) };
        Errno::check(result).map_err(|errno| ModifySrqError { verb: "querying", errno })?;
        Ok(attr.srq_limit)
    }

    /// Reports whether it is for datagram queue pairs; if not, it is for all others.
    #[must_use]
    pub fn is_datagram(&self) -> bool {
        self.inner.memory.front() == Front::RouteHeader
    }

    /// The context that it was made from.
    #[must_use]
    pub fn context(&self) -> Context {
        Context { inner: Arc::clone(&self.inner.pd.context) }
    }

    fn table(&self) -> &verbs_sys::Table {
        &self.inner.pd.context.table
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        // SAFETY: every queue pair that uses the queue holds it, so that none is left.
        let result = unsafe { (self.pd.context.table.destroy_srq)(self.raw.as_ptr()) };
        let uses = || (self.tag.clone(), self.memory.clone(), self.pd.clone());
        destroyed("a shared receive queue", Errno::check(result), uses);
    }
}

debug_shows!(SharedReceiveQueue: id());
