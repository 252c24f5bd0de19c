//! One pool of receive buffers for many connections: a shared receive queue, and
//! three ways for buffers to get back into it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use conn_core::gate::Gate;
use conn_core::repost::{RepostQueue, RepostWord, words_for};
use verbs_safe::{Completion, RecvBuf, RecvPool, RecvPoster, SharedReceiveQueue};

use super::config::check;
use super::returns::{Returns, SlotReturn};
use super::{Config, ConfigError, ConnectError, Ended};
use crate::bell::Bell;

/// How freed buffers get back into the shared receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reposting {
    /// Whoever frees a buffer posts it, under a lock ("introduces a significant
    /// performance penalty", says the seed).
    Lock,
    /// Whoever frees a buffer enqueues its id; one thread dequeues and posts, in
    /// batches (the seed's way).
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

/// The origin of a buffer that came by way of a member which has left.
const NOBODY: u32 = u32::MAX;

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

/// What the buffers themselves refer to. It does not refer to their pool, except
/// through the poster, which the last handle takes out: no cycle stays.
struct Inner {
    config: SharedConfig,
    poster: Mutex<Option<RecvPoster<SlotReturn>>>,
    queue: RepostQueue<Box<[RepostWord]>>,
    gate: Gate,
    /// Which member last received into each buffer.
    origins: Box<[AtomicU32]>,
    /// Buffers posted again, by member.
    reposted: Box<[AtomicU64]>,
    ledger: Mutex<Ledger>,
    sleepers: Sleepers,
    /// Wakes the reposting thread.
    bell: Bell,
    closing: AtomicBool,
    failed: AtomicBool,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedPool").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Receivers to wake when buffers have been posted: their senders may wait for the
/// credit.
#[derive(Debug, Default)]
struct Sleepers {
    asleep: AtomicUsize,
    /// Weak: a pool may outlive many receivers.
    receivers: Mutex<Vec<Weak<Returns>>>,
}

/// Who has how many buffers.
#[derive(Debug)]
struct Ledger {
    free: u32,
    members: Vec<Membership>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Membership {
    Vacant,
    Live {
        buffers: u32,
    },
    /// Gone, but messages of it are still alive: its buffers come back when the
    /// last one was freed.
    Leaving {
        buffers: u32,
        received: u64,
    },
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
            Reposting::Thread => Some(spawn_reposter(&inner)?),
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
        let index = lock(&inner.ledger).join(buffers, inner)?;
        let seen = inner.reposted[index as usize].load(Ordering::Relaxed);
        let pool = self.owner.pool.clone();
        Ok(Member {
            shared: self.clone(),
            pool,
            index,
            buffers,
            received: seen,
            settled: seen,
            own: Vec::new(),
            gathers: inner.config.reposting == Reposting::Combining,
            has_left: false,
        })
    }

    /// Registers a receiver to be woken when buffers were posted.
    pub(crate) fn add_receiver(&self, returns: &Arc<Returns>) {
        let mut receivers = lock(&self.owner.inner.sleepers.receivers);
        receivers.retain(|r| r.strong_count() > 0);
        if !receivers.iter().any(|r| r.as_ptr() == Arc::as_ptr(returns)) {
            receivers.push(Arc::downgrade(returns));
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.inner.closing.store(true, Ordering::SeqCst);
        self.inner.bell.ring();
        if let Some(thread) = self.reposter.take()
            && thread.join().is_err()
        {
            tracing::error!("the reposting thread panicked");
        }
        drop(lock(&self.inner.poster).take());
    }
}

impl Ledger {
    fn join(&mut self, buffers: u32, inner: &Inner) -> Result<u32, ConnectError> {
        self.collect(inner);
        let max = inner.config.max_peers;
        let vacant = self.members.iter().position(|m| *m == Membership::Vacant);
        let index = vacant.ok_or(ConnectError::TooManyPeers(max))?;
        if buffers > self.free {
            return Err(ConnectError::SharedPoolFull {
                free: self.free,
                buffers: inner.config.buffers,
                wanted: buffers,
            });
        }
        self.free -= buffers;
        self.members[index] = Membership::Live { buffers };
        Ok(index as u32)
    }

    /// Takes back the buffers of members whose last message is freed by now.
    fn collect(&mut self, inner: &Inner) {
        for (member, reposted) in self.members.iter_mut().zip(&inner.reposted) {
            if let Membership::Leaving { buffers, received } = *member
                && reposted.load(Ordering::Acquire) == received
            {
                self.free += buffers;
                *member = Membership::Vacant;
            }
        }
    }
}

impl Inner {
    fn new(config: SharedConfig) -> Result<Inner, ConnectError> {
        let system = |what| move |source| ConnectError::System { what, source };
        let words = words_for(config.buffers);
        let queue =
            RepostQueue::new((0..words).map(|_| RepostWord::new()).collect(), config.buffers)
                .map_err(|e| ConnectError::System {
                    what: "a repost queue",
                    source: std::io::Error::new(std::io::ErrorKind::InvalidInput, e.to_string()),
                })?;
        let members = vec![Membership::Vacant; config.max_peers as usize];
        Ok(Inner {
            config,
            poster: Mutex::new(None),
            queue,
            gate: Gate::new(),
            origins: (0..config.buffers).map(|_| AtomicU32::new(0)).collect(),
            reposted: (0..config.max_peers).map(|_| AtomicU64::new(0)).collect(),
            ledger: Mutex::new(Ledger { free: config.buffers, members }),
            sleepers: Sleepers::default(),
            bell: Bell::new().map_err(system("an event descriptor"))?,
            closing: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        })
    }

    /// Posts buffers and books whose they were.
    fn post(&self, slots: &[u32]) {
        let batch = (self.config.repost_batch as usize).clamp(1, MAX_LIST);
        for list in slots.chunks(batch) {
            // Before the post: after it a buffer may be received into at once.
            let mut origins = [0; MAX_LIST];
            for (origin, slot) in origins.iter_mut().zip(list) {
                *origin = self.origins[*slot as usize].load(Ordering::Relaxed);
            }
            if !self.post_list(list) {
                return;
            }
            for &origin in origins[..list.len()].iter().filter(|origin| **origin != NOBODY) {
                // Release: whoever sees the count may grant the credit, so the post
                // must lie before it. SeqCst, for `Sleepers::wake` after it.
                self.reposted[origin as usize].fetch_add(1, Ordering::SeqCst);
            }
        }
        self.sleepers.wake();
    }

    /// Notes which member has received into a buffer.
    #[inline]
    fn set_origin(&self, slot: u32, member: u32) {
        // Relaxed: read by whoever posts the buffer again, after it was freed, and
        // freeing synchronises.
        self.origins[slot as usize].store(member, Ordering::Relaxed);
    }

    /// Whether the list was posted.
    fn post_list(&self, list: &[u32]) -> bool {
        let mut poster = lock(&self.poster);
        let Some(queue) = poster.as_mut() else { return false };
        let posted = queue.post(list);
        if let Err(e) = &posted {
            tracing::error!(error = %e, "a shared receive queue takes no more buffers");
            self.failed.store(true, Ordering::Release);
        }
        posted.is_ok()
    }

    /// Drains the queue unless somebody else is at it, who then does it for us.
    fn combine(&self) {
        if !self.gate.try_enter() {
            return;
        }
        let mut slots = [0; MAX_LIST];
        loop {
            let count = self.queue.drain(&mut slots);
            if count > 0 {
                self.post(&slots[..count]);
            } else if !self.gate.leave() {
                return;
            }
        }
    }
}

impl Sleepers {
    fn wake(&self) {
        // SeqCst against the announcement: one of us sees the other.
        if self.asleep.load(Ordering::SeqCst) > 0 {
            let receivers = lock(&self.receivers);
            receivers.iter().filter_map(Weak::upgrade).for_each(|r| r.bell().ring());
        }
    }
}

/// The seed's single reposting thread.
fn spawn_reposter(inner: &Arc<Inner>) -> Result<JoinHandle<()>, ConnectError> {
    let inner = inner.clone();
    std::thread::Builder::new()
        .name("srq-repost".into())
        .spawn(move || repost_until_closed(&inner))
        .map_err(|source| ConnectError::System { what: "the reposting thread", source })
}

fn repost_until_closed(inner: &Inner) {
    let mut slots = [0; MAX_LIST];
    let mut empty = 0u32;
    while !inner.closing.load(Ordering::SeqCst) {
        match inner.queue.drain(&mut slots) {
            0 if empty < 1000 => {
                empty += 1;
                if empty.is_multiple_of(64) {
                    std::thread::yield_now();
                }
                std::hint::spin_loop();
            }
            0 => {
                inner.bell.announce();
                if inner.queue.is_empty() && !inner.closing.load(Ordering::SeqCst) {
                    inner.bell.wait();
                }
                inner.bell.retract();
                empty = 0;
            }
            count => {
                empty = 0;
                inner.post(&slots[..count]);
            }
        }
    }
}

/// How a shared buffer gets home.
#[derive(Debug, Clone)]
pub(crate) struct SharedReturn {
    inner: Arc<Inner>,
}

impl SharedReturn {
    #[inline]
    pub(crate) fn recycle(&self, slot: u32) {
        let inner = &self.inner;
        if inner.config.reposting == Reposting::Lock {
            return inner.post(&[slot]);
        }
        // A buffer comes home once; if it came twice, once is what counts.
        let _ = inner.queue.enqueue(slot);
        match inner.config.reposting {
            Reposting::Thread => inner.bell.ring(),
            _ => inner.combine(),
        }
    }
}

/// A connection's share of a pool.
#[derive(Debug)]
pub(crate) struct Member {
    shared: SharedPool,
    /// A handle of its own, which takes references to the pool in bulk.
    pool: RecvPool<SlotReturn>,
    index: u32,
    buffers: u32,
    received: u64,
    settled: u64,
    /// Buffers freed on the receiver's thread, gathered for one doorbell.
    own: Vec<u32>,
    /// Whether they are gathered, or go the way of all others.
    gathers: bool,
    has_left: bool,
}

impl Member {
    #[inline]
    pub(crate) fn take<'c>(
        &mut self,
        completion: Completion<'c>,
    ) -> Result<RecvBuf<SlotReturn>, Completion<'c>> {
        let buffer = self.pool.take_plain(completion)?;
        self.book(buffer.slot());
        Ok(buffer)
    }

    pub(crate) fn take_any(
        &mut self,
        completion: Completion<'_>,
    ) -> Result<RecvBuf<SlotReturn>, Ended> {
        let buffer = self.pool.take_prepaid(completion).map_err(|e| super::ended_by(&e))?;
        match self.has_left {
            true => self.shared.owner.inner.set_origin(buffer.slot(), NOBODY),
            false => self.book(buffer.slot()),
        }
        Ok(buffer)
    }

    #[inline]
    fn book(&mut self, slot: u32) {
        self.shared.owner.inner.set_origin(slot, self.index);
        self.received += 1;
    }

    /// Takes a buffer back on the receiver's thread.
    #[inline]
    pub(crate) fn reclaim(&mut self, buffer: RecvBuf<SlotReturn>) {
        if !self.gathers {
            return drop(buffer);
        }
        if let Some(slot) = self.pool.reclaim(buffer) {
            self.own.push(slot);
            if self.own.len() >= self.shared.owner.inner.config.repost_batch as usize {
                self.post_own();
            }
        }
    }

    fn post_own(&mut self) {
        self.shared.owner.inner.post(&self.own);
        self.own.clear();
    }

    /// Buffers of ours that were posted again since the last call.
    pub(crate) fn take_reposted(&mut self, idle: bool) -> Result<u32, Ended> {
        if idle && !self.own.is_empty() {
            self.post_own();
        }
        let inner = &self.shared.owner.inner;
        if inner.failed.load(Ordering::Acquire) {
            return Err(Ended::Device("the shared receive queue takes no buffers".into()));
        }
        // Acquire: the posts lie before the credits that we grant for them. SeqCst: it
        // is also the last look before a sleep, after the announcement, against
        // `Sleepers::wake`.
        let reposted = inner.reposted[self.index as usize].load(Ordering::SeqCst);
        let fresh = reposted - self.settled;
        self.settled = reposted;
        Ok(fresh as u32)
    }

    pub(crate) fn has_outstanding(&self) -> bool {
        self.received != self.settled
    }

    /// Says that the receiver is about to sleep: it looks at
    /// [`take_reposted`](Member::take_reposted) once more after this.
    pub(crate) fn announce_sleep(&self) {
        self.shared.owner.inner.sleepers.asleep.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn retract_sleep(&self) {
        self.shared.owner.inner.sleepers.asleep.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Member {
    /// Gives the share back, once: its buffers are for others when the last message
    /// in them was freed. What still comes after this is nobody's.
    pub(crate) fn leave(&mut self) {
        if std::mem::replace(&mut self.has_left, true) {
            return;
        }
        self.gathers = false;
        if !self.own.is_empty() {
            self.post_own();
        }
        let (buffers, received) = (self.buffers, self.received);
        let mut ledger = lock(&self.shared.owner.inner.ledger);
        ledger.members[self.index as usize] = Membership::Leaving { buffers, received };
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A lock whose holder panicked is as good as any here: no code under it leaves
/// things half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

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
