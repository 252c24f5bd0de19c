//! Time, threads, locks and waits: the one way by which the crates of the workspace reach the clock
//! and the scheduler of the host.
//!
//! | module | instead of |
//! |---|---|
//! | [`time`] | `Instant::now`, `thread::sleep`, `clock_gettime` |
//! | [`thread`] | `thread::spawn`, `park`, `unpark`, `yield_now`, `hint::spin_loop` |
//! | [`sync`] | `Mutex`, `RwLock`, `Condvar`, `Barrier`, `OnceLock` |
//! | [`channel`] | `mpsc` |
//! | [`random`] | `RandomState` |
//! | [`fd`] | `poll`, `epoll_wait`, timers, reads of descriptors that block |
//! | [`future`] | in a world only: a runtime for futures |
//! | [`processors`] | outside of worlds only: the distance of two processors |
//!
//! Without the feature `world`, each item is the host's own, inlined. With it, a thread that runs
//! in a [`World`](world) goes by the world instead: its time is virtual, and one thread runs at a
//! time, chosen by a seed wherever threads could meet. Threads outside of a world are not affected.
//!
//! **Contract: code of these crates waits for nothing, and meets other threads nowhere, but through
//! this crate.** What waits otherwise holds up its world, and what draws on chance otherwise does
//! not repeat.
#![forbid(unsafe_code)]

/// Returns what the calling thread's world says, if it runs in one.
macro_rules! in_world {
    (return $ask:expr) => {
        #[cfg(feature = "world")]
        if let Some(said) = $crate::world::here($ask) {
            return said;
        }
    };
}

pub mod channel;
mod fault;
pub mod fd;
pub mod future;
mod generator;
pub mod plant;
pub mod processors;
pub mod random;
pub mod sync;
pub mod thread;
pub mod time;
#[cfg(feature = "world")]
pub mod world;

/// A point at which another thread may run first: before a poll, and between the steps of an atomic
/// hand-over. It stands behind a store that hands something over: what should have been done before
/// it, and was not, is missing there. Without the feature `world` it is nothing.
#[inline]
pub fn point() {
    #[cfg(feature = "world")]
    world::here(|here| here.point("point"));
}

/// Says that the calling thread polls what lies at this address, a word or a queue: in a world
/// where threads have a processor each, its next [`thread::yield_until`] lasts until one of the
/// watched addresses [changes](notify_changed), or for 20 µs.
#[inline(always)]
pub fn watch<T>(what: *const T) {
    #[cfg(feature = "world")]
    world::here(|here| here.watch(what.addr(), size_of::<T>()));
    #[cfg(not(feature = "world"))]
    let _ = what;
}

/// Says that `len` bytes from this address on have changed, or the queue there: the other side of
/// [`watch`].
#[inline(always)]
pub fn notify_changed<T: ?Sized>(from: *const T, len: usize) {
    #[cfg(feature = "world")]
    world::here(|here| here.notify_changed(from.addr(), len));
    #[cfg(not(feature = "world"))]
    let _ = (from, len);
}

/// Says that something has happened: a message has arrived. A world in which threads only poll lets
/// time pass faster.
#[inline]
pub fn progress() {
    #[cfg(feature = "world")]
    world::here(world::CurrentTask::progress);
}

/// Tells a call that needs memory, a descriptor or a thread to fail: the nature of a world decides,
/// and elsewhere none does.
#[inline(always)]
#[must_use]
pub fn is_short() -> bool {
    in_world!(return world::CurrentTask::is_short);
    false
}

/// As [`is_short`], for a post to a queue.
#[inline(always)]
#[must_use]
pub fn is_post_short() -> bool {
    in_world!(return world::CurrentTask::is_post_short);
    false
}

/// Reports whether this thread runs in a world.
#[inline]
#[must_use]
pub fn is_in_world() -> bool {
    in_world!(return |_| true);
    false
}

/// Number of the world that this thread runs in; 0 if it runs in none.
#[must_use]
pub fn world_number() -> usize {
    in_world!(return world::CurrentTask::number);
    0
}

/// Tells whether the calling thread runs in a world where threads have a processor each.
#[inline]
#[must_use]
pub fn has_own_processor() -> bool {
    in_world!(return world::CurrentTask::has_own_processor);
    false
}

/// Calls `run` without a switch to another thread of the world in between.
#[inline]
pub fn uninterrupted<T>(run: impl FnOnce() -> T) -> T {
    #[cfg(feature = "world")]
    return world::uninterrupted(run);
    #[cfg(not(feature = "world"))]
    run()
}
