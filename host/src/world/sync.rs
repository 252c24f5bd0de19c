//! Locks and condition variables that are points of a world. Threads outside of worlds find
//! `parking_lot`'s.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use super::here::{CurrentTask, here};
use super::state::WaitReason;

/// Takes a lock by `attempt`, waiting in the world while another thread has it.
fn acquire<G>(address: usize, attempt: impl Fn() -> Option<G>, wait: impl FnOnce() -> G) -> G {
    if here(|here| here.point("lock")).is_none() {
        return wait();
    }
    loop {
        if let Some(guard) = attempt() {
            return guard;
        }
        here(|here| here.block(WaitReason::Lock(address), None));
    }
}

fn address<T: ?Sized>(of: &T) -> usize {
    std::ptr::from_ref(of).cast::<()>().addr()
}

fn unlocked(address: usize) {
    here(|here| here.unlocked(address));
}

/// The calling thread waits for this lock, if it runs in a world.
pub(crate) fn wait_for_lock<L>(lock: &L) -> bool {
    here(|here| here.block(WaitReason::Lock(address(lock)), None)).is_some()
}

/// Threads that wait for this lock try again.
pub(crate) fn released<L>(lock: &L) {
    unlocked(address(lock));
}

/// A mutual-exclusion lock; a panic does not poison it.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

/// Access to the value of a lock `L`, by `parking_lot`'s guard `G`.
pub struct LockGuard<'a, L: ?Sized, G> {
    /// `None` only while a condition variable waits, and at the end.
    guard: Option<G>,
    lock: &'a L,
}

/// Exclusive access to the value of a [`Mutex`].
pub type MutexGuard<'a, T> = LockGuard<'a, Mutex<T>, parking_lot::MutexGuard<'a, T>>;
/// Shared access to the value of an [`RwLock`].
pub type RwLockReadGuard<'a, T> = LockGuard<'a, RwLock<T>, parking_lot::RwLockReadGuard<'a, T>>;
/// Exclusive access to the value of an [`RwLock`].
pub type RwLockWriteGuard<'a, T> = LockGuard<'a, RwLock<T>, parking_lot::RwLockWriteGuard<'a, T>>;

impl<L: ?Sized, G: Deref> Deref for LockGuard<'_, L, G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        self.guard.as_ref().expect("held until the drop")
    }
}

impl<L: ?Sized, G: DerefMut> DerefMut for LockGuard<'_, L, G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        self.guard.as_mut().expect("held until the drop")
    }
}

impl<L: ?Sized, G> Drop for LockGuard<'_, L, G> {
    fn drop(&mut self) {
        self.guard = None;
        unlocked(address(self.lock));
    }
}

impl<L: ?Sized, G: Deref<Target: fmt::Debug>> fmt::Debug for LockGuard<'_, L, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Mutex<T> {
    /// An unlocked one.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock and takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let guard = acquire(address(self), || self.0.try_lock(), || self.0.lock());
        MutexGuard { guard: Some(guard), lock: self }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        here(|here| here.point("try lock"));
        Some(MutexGuard { guard: Some(self.0.try_lock()?), lock: self })
    }

    /// Waits for the lock, for `time` at most.
    pub fn try_lock_for(&self, time: Duration) -> Option<MutexGuard<'_, T>> {
        if here(|_| ()).is_some() {
            return self.try_lock();
        }
        Some(MutexGuard { guard: Some(self.0.try_lock_for(time)?), lock: self })
    }

    /// The value, which no other thread can have.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// A lock that many threads may have for reading, or one for writing.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked one.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(parking_lot::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits for the lock and takes it, with others that read.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let guard = acquire(address(self), || self.0.try_read(), || self.0.read());
        RwLockReadGuard { guard: Some(guard), lock: self }
    }

    /// Takes the lock, with others that read, if no thread has it alone.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let guard = Some(self.0.try_read()?);
        Some(RwLockReadGuard { guard, lock: self })
    }

    /// Waits for the lock and takes it alone.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let guard = acquire(address(self), || self.0.try_write(), || self.0.write());
        RwLockWriteGuard { guard: Some(guard), lock: self }
    }

    /// The value, which no other thread can have.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// A condition that threads wait for.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

/// The end of a wait with a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Reports whether the deadline has passed.
    #[must_use]
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// One that no thread waits for.
    #[must_use]
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    /// Waits for a notification, without the lock meanwhile; may return early.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_here(guard, None);
    }

    /// [`wait`](Self::wait), for `time` at most.
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        time: Duration,
    ) -> WaitTimeoutResult {
        // Outside of worlds by the system's clock, as `parking_lot`'s.
        let now = || here(CurrentTask::now).unwrap_or_else(Instant::now);
        let deadline = now() + time;
        self.wait_here(guard, Some(deadline));
        WaitTimeoutResult(now() >= deadline)
    }

    fn wait_here<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, deadline: Option<Instant>) {
        if here(|_| ()).is_none() {
            let Some(inner) = guard.guard.as_mut() else { return };
            match deadline {
                None => self.0.wait(inner),
                Some(deadline) => _ = self.0.wait_until(inner, deadline),
            }
            return;
        }
        // No point in between: the thread waits before another one can notify it.
        guard.guard = None;
        unlocked(address(guard.lock));
        here(|here| here.block(WaitReason::Condition(address(self)), deadline));
        let lock = guard.lock;
        guard.guard = Some(acquire(address(lock), || lock.0.try_lock(), || lock.0.lock()));
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
        here(|here: &CurrentTask| here.notify(address(self), 1));
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
        here(|here: &CurrentTask| here.notify(address(self), usize::MAX));
    }
}
