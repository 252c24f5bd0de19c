//! The lock of the data path, and padding that keeps two writers apart.
//!
//! A message posted alone takes five of these locks (send queue, receive side,
//! completion queue twice, receive queue), all uncontended as a rule. An
//! uncontended `parking_lot::Mutex` needs two atomic read-modify-writes, this one
//! needs one and a plain store. Waiters spin briefly, then give the processor
//! away, and sleep in the end: what is held across a long copy is a send queue, for
//! which only its own threads and a deregistration wait: a thread that serves other processes
//! continues without it, if that copy waits for another process's memory.
//!
//! The order of the device's locks is in the crate's documentation.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

/// Polls of a held lock before the processor is given away: about a microsecond.
const SPINS: u32 = 64;
/// Times that it is given away before the waiter sleeps: a copy is under way, and the
/// processor better used for it.
const YIELDS: u32 = 64;
const ASLEEP: u32 = SPINS + YIELDS;
/// Times that a holder which gives way looks whether the waiter has arrived: some sleeps of it.
const GIVE_WAY: u32 = ASLEEP + 10;
/// Time that a waiter sleeps before it looks again.
const SLEEP: Duration = Duration::from_micros(20);

/// A mutual-exclusion lock that spins, then yields, then sleeps.
#[derive(Debug, Default)]
pub(crate) struct Lock<T> {
    held: AtomicBool,
    /// Some thread has waited for long, and waits still: see [`Guard::give_way`].
    is_awaited: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands the value to one thread at a time, so sharing the lock
// is sending the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        let (held, is_awaited) = (AtomicBool::new(false), AtomicBool::new(false));
        Lock { held, is_awaited, value: UnsafeCell::new(value) }
    }

    /// Waits for the lock and takes it.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        host::sync::before_lock();
        // Acquire: what the previous holder wrote is visible from here on.
        if self.held.swap(true, Ordering::Acquire) {
            self.wait();
        }
        Guard::new(self)
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        // A held one is only read: its line stays with its holder.
        if self.held.load(Ordering::Relaxed) {
            return None;
        }
        // Acquire: as in `lock`.
        (!self.held.swap(true, Ordering::Acquire)).then(|| Guard::new(self))
    }

    /// Resumes a lock whose guard was forgotten, so that it stayed held across calls of the
    /// program; `None` if it is not held.
    ///
    /// # Safety
    /// The calling thread is the one that took it, and no guard of it is left.
    #[inline]
    pub(crate) unsafe fn resume(&self) -> Option<Guard<'_, T>> {
        // Relaxed: if the caller took it, it has seen what the previous holder wrote.
        self.held.load(Ordering::Relaxed).then_some(Guard::new(self))
    }

    /// Waits for the lock and takes it, unless its holder is known to keep it for long.
    pub(crate) fn lock_unless(&self, is_kept: impl Fn() -> bool) -> Option<Guard<'_, T>> {
        let mut spins = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            if is_kept() {
                return None;
            }
            pause(&mut spins);
        }
    }

    #[cold]
    fn wait(&self) {
        let mut spins = 0;
        loop {
            host::sync::wait_for_lock(self);
            while self.held.load(Ordering::Relaxed) {
                // Relaxed, as below: a hint. The line is the holder's: it is written once.
                if spins >= SPINS && !self.is_awaited.load(Ordering::Relaxed) {
                    self.is_awaited.store(true, Ordering::Relaxed);
                }
                pause(&mut spins);
            }
            // Acquire: as in `lock`.
            if !self.held.swap(true, Ordering::Acquire) {
                // Others that wait say it again.
                self.is_awaited.store(false, Ordering::Relaxed);
                return;
            }
        }
    }
}

/// Waits for a while, the longer the more often it was called.
fn pause(spins: &mut u32) {
    *spins = ASLEEP.min(*spins + 1);
    match *spins {
        ..SPINS => host::thread::spin_loop(),
        SPINS..ASLEEP => host::thread::yield_now(),
        ASLEEP.. => host::time::sleep(SLEEP),
    }
}

/// Exclusive access to the value of a [`Lock`].
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// The guard is shared and sent as `&mut T` is, and not as `&Lock<T>`.
    value: PhantomData<&'a mut T>,
}

impl<'a, T> Guard<'a, T> {
    /// The guard of a lock that is held for it.
    const fn new(lock: &'a Lock<T>) -> Guard<'a, T> {
        Guard { lock, value: PhantomData }
    }

    /// Lets a thread have the lock that waits for it, if there is one, and takes it again: one that
    /// only releases it takes it before a waiter has looked.
    pub(crate) fn give_way(self) -> Guard<'a, T> {
        let lock = self.lock;
        // Relaxed: a hint.
        let is_awaited = || lock.is_awaited.load(Ordering::Relaxed);
        if !is_awaited() {
            return self;
        }
        drop(self);
        let (mut spins, mut looks) = (0, 0..GIVE_WAY);
        while is_awaited() && looks.next().is_some() {
            pause(&mut spins);
        }
        lock.lock()
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while the lock is held by its owner.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes it the only reference.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: the next holder sees what was written under the lock.
        self.lock.held.store(false, Ordering::Release);
        host::sync::unlocked(self.lock);
    }
}

/// A value on cache lines of its own (two: processors fetch lines in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests;
