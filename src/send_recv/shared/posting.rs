//! The way of buffers back into the shared receive queue: under a lock, by a thread of
//! their own, or by whoever frees.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

use conn_core::gate::Gate;
use conn_core::repost::{RepostQueue, RepostWord, words_for};
use verbs_safe::RecvPoster;

use super::ledger::Ledger;
use super::{MAX_LIST, Reposting, SharedConfig, lock};
use crate::bell::Bell;
use crate::send_recv::ConnectError;
use crate::send_recv::returns::{Returns, SlotReturn};

/// The origin of a buffer that came by way of a member which has left.
pub(super) const NOBODY: u32 = u32::MAX;

/// What the buffers themselves refer to. It does not refer to their pool, except
/// through the poster, which the last handle takes out: no cycle stays.
pub(super) struct Inner {
    pub(super) config: SharedConfig,
    pub(super) poster: Mutex<Option<RecvPoster<SlotReturn>>>,
    queue: RepostQueue<Box<[RepostWord]>>,
    gate: Gate,
    /// Which member last received into each buffer.
    origins: Box<[AtomicU32]>,
    /// Buffers posted again, by member.
    pub(super) reposted: Box<[AtomicU64]>,
    pub(super) ledger: Mutex<Ledger>,
    pub(super) sleepers: Sleepers,
    /// Wakes the reposting thread.
    bell: Bell,
    closing: AtomicBool,
    pub(super) failed: AtomicBool,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedPool").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Receivers to wake when buffers have been posted: their senders may wait for the
/// credit.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    asleep: AtomicUsize,
    /// Weak: a pool may outlive many receivers.
    receivers: Mutex<Vec<Weak<Returns>>>,
}

impl Inner {
    pub(super) fn new(config: SharedConfig) -> Result<Inner, ConnectError> {
        let system = |what| move |error| ConnectError::System { what, error };
        let words = words_for(config.buffers);
        let queue =
            RepostQueue::new((0..words).map(|_| RepostWord::new()).collect(), config.buffers)
                .map_err(|e| ConnectError::System {
                    what: "a repost queue",
                    error: std::io::Error::new(std::io::ErrorKind::InvalidInput, e.to_string()),
                })?;
        Ok(Inner {
            config,
            poster: Mutex::new(None),
            queue,
            gate: Gate::new(),
            origins: (0..config.buffers).map(|_| AtomicU32::new(0)).collect(),
            reposted: (0..config.max_peers).map(|_| AtomicU64::new(0)).collect(),
            ledger: Mutex::new(Ledger::new(&config)),
            sleepers: Sleepers::default(),
            bell: Bell::new().map_err(system("an event descriptor"))?,
            closing: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        })
    }

    /// Lets the reposting thread end.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Posts buffers and books whose they were.
    pub(super) fn post(&self, slots: &[u32]) {
        let batch = (self.config.repost_batch as usize).clamp(1, MAX_LIST);
        for list in slots.chunks(batch) {
            // Before the post: after it a buffer may be received into at once.
            let mut origins = [0; MAX_LIST];
            for (origin, slot) in origins.iter_mut().zip(list) {
                *origin = self.origins[*slot as usize].load(Ordering::Relaxed);
            }
            if !self.post_list(list) {
                // Who sleeps has to hear of it, too.
                return self.sleepers.wake();
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
    pub(super) fn set_origin(&self, slot: u32, member: u32) {
        // Relaxed: read by whoever posts the buffer again, after it was freed, and
        // freeing synchronises.
        self.origins[slot as usize].store(member, Ordering::Relaxed);
    }

    /// Whether that member was the last one to receive into a buffer. (A buffer of another
    /// pool may have a number that there is not here.)
    #[inline]
    pub(super) fn is_origin(&self, slot: u32, member: u32) -> bool {
        let origin = self.origins.get(slot as usize);
        // Relaxed: whoever holds the message has it from the member that has set this.
        origin.is_some_and(|origin| origin.load(Ordering::Relaxed) == member)
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
    pub(super) fn add(&self, returns: &Arc<Returns>) {
        let mut receivers = lock(&self.receivers);
        receivers.retain(|r| r.strong_count() > 0);
        if !receivers.iter().any(|r| r.as_ptr() == Arc::as_ptr(returns)) {
            receivers.push(Arc::downgrade(returns));
        }
    }

    pub(super) fn announce(&self) {
        self.asleep.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn retract(&self) {
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake(&self) {
        // SeqCst against the announcement: one of us sees the other.
        if self.asleep.load(Ordering::SeqCst) > 0 {
            let receivers = lock(&self.receivers);
            receivers.iter().filter_map(Weak::upgrade).for_each(|r| r.bell().ring());
        }
    }
}

/// The seed's single reposting thread.
pub(super) fn spawn_reposter(inner: &Arc<Inner>) -> Result<JoinHandle<()>, ConnectError> {
    let inner = inner.clone();
    std::thread::Builder::new()
        .name("srq-repost".into())
        .spawn(move || repost_until_closed(&inner))
        .map_err(|error| ConnectError::System { what: "the reposting thread", error })
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
    pub(super) inner: Arc<Inner>,
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
