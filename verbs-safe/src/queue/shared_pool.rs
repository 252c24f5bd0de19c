//! Receive pools that many queue pairs share.

use std::sync::Arc;

use crate::error::CreateSrqError;
use crate::object::context::ProtectionDomain;
use crate::queue::pool::{Front, PoolMemory, RecvPool, Recycle};
use crate::queue::recv::{RecvPoster, RecvTarget};

impl ProtectionDomain {
    /// A shared receive queue with its pool of `slots` buffers of `slot_bytes` bytes. The poster
    /// has one owner, which may put it behind a lock or give it to a thread; the pool's handle can
    /// be cloned. Pass [`poster.shared()`](RecvPoster::shared) to the queue pairs that use it.
    ///
    /// # Errors
    /// [`CreateSrqError`]; nothing is left behind.
    ///
    /// ```
    /// # let devices = verbs_safe::devices(soft_rnic::table())?;
    /// # let pd = devices[0].open()?.alloc_pd()?;
    /// let (mut poster, pool) = pd.create_shared_pool(64, 4096, ())?;
    /// let slots: Vec<u32> = (0..pool.slots()).collect();
    /// poster.post(&slots)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create_shared_pool<R: Recycle>(
        &self,
        slots: u32,
        slot_bytes: usize,
        recycler: R,
    ) -> Result<(RecvPoster<R>, RecvPool<R>), CreateSrqError> {
        self.shared_pool(slots, slot_bytes, Front::Nothing, recycler)
    }

    /// As [`create_shared_pool`](Self::create_shared_pool), for datagram queue pairs only: each
    /// buffer has room for a route header, too. (A buffer does not tell whether it has one, so
    /// these queue pairs do not share pools with others.)
    ///
    /// # Errors
    /// [`CreateSrqError`]; nothing is left behind.
    pub fn create_shared_datagram_pool<R: Recycle>(
        &self,
        slots: u32,
        slot_bytes: usize,
        recycler: R,
    ) -> Result<(RecvPoster<R>, RecvPool<R>), CreateSrqError> {
        self.shared_pool(slots, slot_bytes, Front::RouteHeader, recycler)
    }

    fn shared_pool<R: Recycle>(
        &self,
        slots: u32,
        slot_bytes: usize,
        front: Front,
        recycler: R,
    ) -> Result<(RecvPoster<R>, RecvPool<R>), CreateSrqError> {
        let too_large = |(what, value, max)| CreateSrqError::TooLarge { what, value, max };
        PoolMemory::check(slots, slot_bytes).map_err(too_large)?;
        let memory = Arc::new(PoolMemory::new(self, slots, slot_bytes, front)?);
        let pool = RecvPool::new::<CreateSrqError>(memory.clone(), recycler)?;
        let srq = self.create_srq(slots, memory)?;
        Ok((RecvPoster::new(RecvTarget::Srq(srq), pool.clone())?, pool))
    }
}
