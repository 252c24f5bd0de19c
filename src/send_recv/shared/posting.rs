//! Reposting to the shared receive queue: under a lock, by a dedicated thread, or by the freeing
//! thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use host::sync::Mutex;
use host::thread::JoinHandle;

use conn_core::combiner::Combiner;

use super::config::{Reposting, SharedConfig};
use super::state::{MAX_LIST, NO_MEMBER, SharedPoolInner, SharedReturn, SrqState};
use crate::allocate::repost_queue;
use crate::doorbell;
use crate::error::ConnectError;
use crate::wakeup::EventfdWakeup;

impl SharedPoolInner {
    pub(super) fn new(config: SharedConfig) -> Result<SharedPoolInner, ConnectError> {
        let system = |what| move |error| ConnectError::System { what, error };
        Ok(SharedPoolInner {
            config,
            store: Mutex::new(SrqState::new(&config)),
            queue: repost_queue(config.buffers).map_err(system("a repost queue"))?,
            combiner: Combiner::new(),
            origins: (0..config.buffers).map(|_| AtomicU32::new(NO_MEMBER)).collect(),
            has_waiting: AtomicBool::new(false),
            wakeup: EventfdWakeup::new().map_err(system("an event descriptor"))?,
            closing: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        })
    }

    /// Lets the reposting thread end.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.wakeup.wake();
    }

    /// Posts buffers, and books which members they belonged to.
    pub(super) fn post(&self, slots: &[u32]) {
        let batch = (self.config.repost_batch as usize).clamp(1, MAX_LIST);
        for list in slots.chunks(batch) {
            // Before the post: after it the device may fill a buffer at once.
            let mut origins = [0; MAX_LIST];
            for (origin, slot) in origins.iter_mut().zip(list) {
                *origin = self.origins[*slot as usize].load(Ordering::Relaxed);
            }
            let mut store = self.store.lock();
            if !self.post_list(&mut store, list) {
                return self.tell_all(&store);
            }
            store.book_home(&origins[..list.len()]);
            self.tell(&mut store);
        }
    }

    /// Notes which member has received into a buffer.
    #[inline]
    pub(super) fn set_origin(&self, slot: u32, origin: u32) {
        // Relaxed: read by the thread that posts the buffer again, after it was freed, and
        // freeing synchronises.
        self.origins[slot as usize].store(origin, Ordering::Relaxed);
    }

    /// Reports whether the member of the origin `expected` was the last one to receive into a
    /// buffer. (A buffer of another pool may have a number that does not exist here.)
    #[inline]
    pub(super) fn is_origin(&self, slot: u32, expected: u32) -> bool {
        let origin = self.origins.get(slot as usize);
        // Relaxed: the member set this before it handed the message over to this thread.
        origin.is_some_and(|origin| origin.load(Ordering::Relaxed) == expected)
    }

    /// Posts the list; reports whether it was posted.
    fn post_list(&self, store: &mut SrqState, list: &[u32]) -> bool {
        let Some(queue) = store.poster.as_mut() else { return false };
        let posted = doorbell::post_receives(queue, list);
        if let Err(e) = &posted {
            tracing::error!(error = %e, "a shared receive queue takes no more buffers");
            // Release: receivers are notified after this, and read it then.
            self.failed.store(true, Ordering::Release);
        }
        posted.is_ok()
    }

    /// Drains the queue unless another thread is at it, which then does it for us.
    fn combine(&self) {
        host::point();
        if !self.combiner.try_enter() {
            return;
        }
        let mut slots = [0; MAX_LIST];
        loop {
            let count = self.queue.drain(&mut slots);
            if count > 0 {
                self.post(&slots[..count]);
                continue;
            }
            // A request of another thread from here on makes `leave` true.
            host::point();
            if !self.combiner.leave() {
                return;
            }
        }
    }
}

/// The single thread that posts buffers again (Fischer, "Send Receive", section Shared Receive
/// Queues).
pub(super) fn spawn_reposter(inner: &Arc<SharedPoolInner>) -> Result<JoinHandle<()>, ConnectError> {
    let system = |error| ConnectError::System { what: "the reposting thread", error };
    if host::is_short() {
        return Err(system(std::io::ErrorKind::WouldBlock.into()));
    }
    let inner = inner.clone();
    host::thread::spawn("srq-repost", move || repost_until_closed(&inner)).map_err(system)
}

fn repost_until_closed(inner: &SharedPoolInner) {
    let mut slots = [0; MAX_LIST];
    let mut empty = 0u32;
    while !inner.closing.load(Ordering::SeqCst) {
        match inner.queue.drain(&mut slots) {
            0 if empty < 1000 => {
                empty += 1;
                if empty.is_multiple_of(64) {
                    host::thread::yield_now();
                }
                host::thread::spin_loop();
            }
            0 => {
                inner.wakeup.announce();
                if inner.queue.is_empty() && !inner.closing.load(Ordering::SeqCst) {
                    inner.wakeup.wait();
                }
                inner.wakeup.retract();
                empty = 0;
            }
            count => {
                empty = 0;
                inner.post(&slots[..count]);
            }
        }
    }
}

impl SharedReturn {
    #[inline]
    pub(crate) fn recycle(&self, slot: u32) {
        let inner = &self.inner;
        if inner.config.reposting == Reposting::Lock {
            return inner.post(&[slot]);
        }
        // A buffer is returned once; the queue refuses a second return.
        let _ = inner.queue.enqueue(slot);
        match inner.config.reposting {
            Reposting::Thread => inner.wakeup.wake(),
            _ => inner.combine(),
        }
    }
}
