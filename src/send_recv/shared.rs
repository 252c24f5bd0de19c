//! One pool of receive buffers for many connections: a shared receive queue, and
//! three ways for buffers to get back into it.

mod config;
mod lending;
mod member;
mod posting;
mod state;

use host::thread::JoinHandle;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use verbs_safe::{RecvPool, SharedReceiveQueue};

use crate::doorbell;
use crate::error::ConnectError;
pub use config::{Reposting, SharedConfig};
pub(crate) use lending::RECALL_AFTER;
pub(crate) use member::PoolMember;
pub(crate) use state::{LinkAddress, SlotReturn};
use state::{MAX_LIST, SharedPoolInner, SharedReturn};

/// A pool of receive buffers that many connections share, behind one shared
/// receive queue. Clones are handles of the same pool.
///
/// Each connection keeps three buffers, and its sender borrows credits for more: at most
/// [`recv_depth`](super::Config::recv_depth) at a time, 4 at first, in the order of requests. The
/// pool never lends more buffers than it has, so receiver-not-ready cannot happen at any rate of
/// sending. A buffer is lent again after it has been reposted. Messages that the application holds
/// count as lent: while it holds all lendable buffers, each sender may send one message, and
/// another one when that is freed.
///
/// A sender returns unused credits when it waits for its last message, flushes or closes, and when
/// others have waited for a tenth of a second. A sender that makes no call keeps its loan. All such
/// loans take at most three quarters of the lendable buffers; after that, loans have one credit
/// each. [`close`](crate::SendHalf::close) does not wait for credits when all accepted messages are
/// sent: the goodbye has a buffer of its own, also while a request for credits has no answer.
///
/// The first poll that finds a message without a credit cuts its sender off. Until then that sender
/// can use up buffers for which others have credits; those see receiver-not-ready.
#[derive(Debug, Clone)]
pub struct SharedPool {
    owner: Arc<Owner>,
}

#[derive(Debug)]
struct Owner {
    inner: Arc<SharedPoolInner>,
    pool: RecvPool<SlotReturn>,
    queue: SharedReceiveQueue,
    reposter: Option<JoinHandle<()>>,
}

impl SharedPool {
    /// Makes a pool on `device`, with all its buffers posted.
    ///
    /// # Errors
    /// [`ConnectError::Config`]; [`ConnectError::Device`] when the device refuses the
    /// queue or the memory.
    pub fn new(
        device: &crate::device::Device,
        config: SharedConfig,
    ) -> Result<SharedPool, ConnectError> {
        // Validated before anything of this size is allocated.
        config.validate()?;
        let inner = Arc::new(SharedPoolInner::new(config)?);
        let recycler = SlotReturn::Shared(SharedReturn { inner: inner.clone() });
        let (mut poster, pool) = device
            .messages_pd()
            .create_shared_pool(config.buffers, config.buffer_bytes as usize, recycler)
            .map_err(|e| device.error("create a shared receive queue", &e))?;
        let all: Vec<u32> = (0..config.buffers).collect();
        for list in all.chunks(MAX_LIST) {
            doorbell::post_receives(&mut poster, list)
                .map_err(|e| device.error("post receive buffers", &e))?;
        }
        let queue = poster.shared().cloned();
        let queue =
            queue.ok_or_else(|| device.error("share a receive queue", &"it is not shared"))?;
        inner.store.lock().poster = Some(poster);
        let reposter = match config.reposting {
            Reposting::Thread => Some(posting::spawn_reposter(&inner)?),
            Reposting::Lock | Reposting::Combining => None,
        };
        Ok(SharedPool { owner: Arc::new(Owner { inner, pool, queue, reposter }) })
    }

    /// Sizes.
    #[must_use]
    pub fn config(&self) -> SharedConfig {
        self.owner.inner.config
    }

    /// Bytes of receive buffers registered, for all connections together.
    #[must_use]
    pub fn registered_bytes(&self) -> u64 {
        u64::from(self.config().buffers) * u64::from(self.config().buffer_bytes)
    }

    /// Returns the shared receive queue that queue pairs are made with.
    pub(crate) fn queue(&self) -> &SharedReceiveQueue {
        &self.owner.queue
    }

    /// Makes the pool take no more buffers.
    #[cfg(test)]
    pub(crate) fn break_down(&self) {
        // It is posted already.
        (0..self.config().buffers).for_each(|slot| self.owner.inner.post(&[slot]));
    }

    /// Returns the part of the pool that a receiver keeps.
    pub(crate) fn clock(&self) -> LoanClock {
        LoanClock(Arc::downgrade(&self.owner.inner))
    }
}

/// Has loans of a pool recalled when members wait for long. A receiver may outlive the pool.
#[derive(Debug, Clone)]
pub(crate) struct LoanClock(Weak<SharedPoolInner>);

impl LoanClock {
    /// Reports whether members wait: then call [`tick`](LoanClock::tick) soon.
    pub(crate) fn is_needed(&self) -> bool {
        // Relaxed: late by a poll is soon enough.
        self.0.upgrade().is_some_and(|inner| inner.has_waiting.load(Ordering::Relaxed))
    }

    /// To be called now and then.
    pub(crate) fn tick(&self, now: Instant) {
        if let Some(inner) = self.0.upgrade()
            && inner.has_waiting.load(Ordering::Relaxed)
        {
            inner.tick(now);
        }
    }

    /// Reports whether the pool is still there.
    pub(crate) fn is_live(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(crate) fn is_same(&self, other: &LoanClock) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.inner.close();
        if let Some(thread) = self.reposter.take()
            && thread.join().is_err()
        {
            tracing::error!("the reposting thread panicked");
        }
        let poster = self.inner.store.lock().poster.take();
        drop(poster);
    }
}

#[cfg(test)]
mod tests;
