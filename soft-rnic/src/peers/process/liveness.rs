//! A word that says whether a process lives, and that the kernel keeps: a robust futex.
//!
//! The progress thread stores its number in it. When the thread ends, because the process ends or
//! runs another program, the kernel replaces the number by [`OWNER_DIED`], before the process can
//! be reaped. A peer that loads the word sees a death in time; its own progress thread notices it
//! only when it next has a processor, and the dead process's memory stays mapped until then.

use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The value that the kernel stores when the thread that owns the word has ended.
pub(crate) const OWNER_DIED: u32 = 0x4000_0000;

/// The kernel's `struct robust_list_head` for one thread, and its only entry.
#[derive(Debug)]
#[repr(C)]
struct RobustList {
    /// The entry, or the list itself if it is empty.
    first: AtomicPtr<RobustList>,
    /// From an entry to its word.
    word_offset: isize,
    pending: *const RobustList,
    /// The next entry: the list itself, where it ends.
    entry: AtomicPtr<RobustList>,
}

// SAFETY: what is not atomic does not change once the list is made.
unsafe impl Sync for RobustList {}

/// Has the kernel watch over one word, until it is dropped.
#[derive(Debug)]
pub(crate) struct Liveness {
    word: *const AtomicU32,
    /// The kernel may read it as long as the thread runs: it is never freed.
    list: &'static RobustList,
}

// SAFETY: the word is atomic, and valid as long as this (`new`).
unsafe impl Send for Liveness {}
// SAFETY: the word is atomic, and valid as long as this (`new`).
unsafe impl Sync for Liveness {}

impl Liveness {
    /// # Safety
    /// The word stays valid until the value is dropped.
    pub(super) unsafe fn new(word: &AtomicU32) -> Liveness {
        let list: &'static mut RobustList = Box::leak(Box::new(RobustList {
            first: AtomicPtr::new(null_mut()),
            word_offset: 0,
            pending: null(),
            entry: AtomicPtr::new(null_mut()),
        }));
        let entry = (&raw const list.entry).addr();
        list.word_offset = (&raw const *word).expose_provenance().wrapping_sub(entry) as isize;
        let list: &'static RobustList = list;
        list.entry.store((&raw const *list).cast_mut(), Ordering::Relaxed);
        list.first.store((&raw const list.entry).cast_mut().cast(), Ordering::Relaxed);
        Liveness { word, list }
    }

    /// From now on the word says whether the calling thread lives. The thread locks no robust mutex
    /// of the C library: this takes the place of the library's list. Where the system has no
    /// such lists the word stays 0.
    #[expect(clippy::disallowed_methods, reason = "it does not wait")]
    pub(crate) fn begin(&self) {
        if host::is_in_world() {
            // The thread of a device that is killed may have begun, or not.
            // SAFETY: the word is valid as long as this (`new`).
            let word = unsafe { &*self.word };
            let _ = word.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
            return;
        }
        let len = size_of::<[usize; 3]>();
        // SAFETY: the list is never freed, and its only entry leads to a valid word, or it is
        // empty.
        let done = unsafe { libc::syscall(libc::SYS_set_robust_list, self.list, len) };
        if done == 0 {
            let thread = rustix::thread::gettid().as_raw_nonzero().get();
            // SAFETY: the word is valid as long as this (`new`).
            unsafe { &*self.word }.store(thread as u32, Ordering::Relaxed);
        }
    }
}

#[cfg(feature = "simulation")]
impl Liveness {
    /// Says what the kernel says of a thread that has ended.
    pub(crate) fn end(&self) {
        // SAFETY: the word is valid as long as this (`new`).
        unsafe { &*self.word }.store(OWNER_DIED, Ordering::Relaxed);
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        // The word goes: the kernel finds an empty list.
        self.list.first.store((&raw const *self.list).cast_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
