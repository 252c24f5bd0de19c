//! One pool of receive buffers for many connections: a shared receive queue, and
//! three ways for buffers to get back into it.

mod ledger;
mod member;
mod posting;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use verbs_safe::{RecvPool, SharedReceiveQueue};

use super::config::check;
use super::returns::{Returns, SlotReturn};
use super::{Config, ConfigError, ConnectError};
pub(crate) use member::Member;
use posting::Inner;
pub(crate) use posting::SharedReturn;

/// How freed buffers get back into the shared receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reposting {
    /// Whoever frees a buffer posts it, under a lock ("introduces a significant
    /// performance penalty", says Fischer, "Know Your Memory", 2021).
    Lock,
    /// Whoever frees a buffer enqueues its id; one thread dequeues and posts, in
    /// batches (Fischer's way).
    Thread,
    /// Whoever frees a buffer enqueues its id, and becomes the poster if there is
    /// none at the moment: no lock is waited for, no thread has to be woken.
    #[default]
    Combining,
}

impl Reposting {
    /// All of them.
    pub const ALL: [Reposting; 3] = [Reposting::Lock, Reposting::Thread, Reposting::Combining];

    /// `lock`, `thread` or `combining`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reposting::Lock => "lock",
            Reposting::Thread => "thread",
            Reposting::Combining => "combining",
        }
    }
}

/// Buffers in one postlist at most.
const MAX_LIST: usize = 64;

/// Sizes of a [`SharedPool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedConfig {
    /// Receive buffers. Each connection takes `recv_window + 1` of them for as long
    /// as it lives, so that receiver-not-ready cannot happen.
    pub buffers: u32,
    /// Size of each, in bytes.
    pub buffer_bytes: u32,
    /// Connections at most.
    pub max_peers: u32,
    /// How buffers get back.
    pub reposting: Reposting,
    /// Buffers posted with one doorbell, where there are so many.
    pub repost_batch: u32,
}

impl SharedConfig {
    /// Most buffers.
    pub const MAX_BUFFERS: u32 = 1 << 24;
    /// Most connections.
    pub const MAX_PEERS: u32 = 1 << 20;

    /// Checks every field. (A `repost_batch` is used as far as lists go.)
    ///
    /// # Errors
    /// The first field that is out of its range, with the range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let fits = (1..=Self::MAX_BUFFERS).contains(&self.buffers);
        check("buffers", self.buffers, fits, "1 to 16777216")?;
        let fits = (1..=Config::MAX_MESSAGE_BYTES).contains(&self.buffer_bytes);
        check("buffer_bytes", self.buffer_bytes, fits, "1 to 1073741824")?;
        let fits = (1..=Self::MAX_PEERS).contains(&self.max_peers);
        check("max_peers", self.max_peers, fits, "1 to 1048576")
    }
}

/// A pool of receive buffers that many connections share, behind one shared
/// receive queue. Clones are handles of the same pool.
///
/// Buffers are promised to connections as credits: never more than there are, so
/// that receiver-not-ready cannot happen however fast the senders are. A credit goes
/// back to a sender after its buffer has been posted again. A sender that sends without
/// credits is found out and cut off by the first poll that sees it; until then it can
/// use up buffers that others have credits for, and those see receiver-not-ready.
#[derive(Debug, Clone)]
pub struct SharedPool {
    owner: Arc<Owner>,
}

#[derive(Debug)]
struct Owner {
    inner: Arc<Inner>,
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
        // Before anything of such a size is made.
        config.validate()?;
        let inner = Arc::new(Inner::new(config)?);
        let recycler = SlotReturn::Shared(SharedReturn { inner: inner.clone() });
        let (mut poster, pool) = device
            .pd()
            .create_shared_pool(config.buffers, config.buffer_bytes as usize, recycler)
            .map_err(|e| device.error("create a shared receive queue", &e))?;
        let all: Vec<u32> = (0..config.buffers).collect();
        for list in all.chunks(MAX_LIST) {
            poster.post(list).map_err(|e| device.error("post receive buffers", &e))?;
        }
        let queue = poster.shared().cloned();
        let queue =
            queue.ok_or_else(|| device.error("share a receive queue", &"it is not shared"))?;
        *lock(&inner.poster) = Some(poster);
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

    /// What queue pairs are made with.
    pub(crate) fn queue(&self) -> &SharedReceiveQueue {
        &self.owner.queue
    }

    /// Sets buffers aside for one more connection.
    pub(crate) fn join(&self, buffers: u32) -> Result<Member, ConnectError> {
        let inner = &self.owner.inner;
        let index = lock(&inner.ledger).join(buffers, &inner.reposted)?;
        Ok(Member::new(self.clone(), index))
    }

    /// Registers a receiver to be woken when buffers were posted.
    pub(crate) fn add_receiver(&self, returns: &Arc<Returns>) {
        self.owner.inner.sleepers.add(returns);
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
        drop(lock(&self.inner.poster).take());
    }
}

/// A lock whose holder panicked is as good as any here: no code under it leaves
/// things half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Its senders may wait for buffers that will not come.
    #[test]
    fn a_receiver_that_sleeps_is_woken_when_its_pool_takes_no_buffers() {
        let device = crate::device::soft().unwrap();
        for reposting in Reposting::ALL {
            let (buffers, buffer_bytes) = (4, 64);
            let sizes =
                SharedConfig { buffers, buffer_bytes, max_peers: 1, reposting, repost_batch: 1 };
            let pool = SharedPool::new(&device, sizes).unwrap();
            let returns = Returns::new(1, buffers).unwrap();
            pool.add_receiver(&returns);
            let inner = &pool.owner.inner;
            inner.sleepers.announce();
            returns.bell().announce();
            // It is posted already.
            inner.post(&[0]);
            assert!(inner.failed.load(Ordering::SeqCst));
            let mut bell = [PollFd::new(returns.bell(), PollFlags::IN)];
            let rings = poll(&mut bell, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
            assert_eq!(rings, 1, "{reposting:?}");
        }
    }

    #[test]
    fn pools_that_nobody_has_room_for_are_refused_before_they_are_made() {
        let device = crate::device::soft().unwrap();
        let reposting = Reposting::Combining;
        let fine = SharedConfig {
            buffers: 4,
            buffer_bytes: 64,
            max_peers: 1,
            reposting,
            repost_batch: u32::MAX,
        };
        SharedPool::new(&device, fine).unwrap();
        for (field, bad) in [
            ("buffers", SharedConfig { buffers: 0, ..fine }),
            ("buffers", SharedConfig { buffers: u32::MAX, ..fine }),
            ("buffer_bytes", SharedConfig { buffer_bytes: 0, ..fine }),
            ("buffer_bytes", SharedConfig { buffer_bytes: u32::MAX, ..fine }),
            ("max_peers", SharedConfig { max_peers: 0, ..fine }),
            ("max_peers", SharedConfig { max_peers: u32::MAX, ..fine }),
        ] {
            let ConnectError::Config(error) = SharedPool::new(&device, bad).unwrap_err() else {
                panic!("{bad:?}");
            };
            assert_eq!(error.field, field);
        }
    }
}
