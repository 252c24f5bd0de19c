//! What two processes do that copy by hand: one says in shared memory which messages are
//! there, the other one copies them out of it and says how far it is.

use std::fs::File;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::errno::{Errno, leaked};
use crate::shared::words;

/// A file in memory that two processes have mapped: two counts, and messages behind them.
/// Whoever has mapped it may write at any time, and nothing makes them wait for each other but
/// the counts: messages, too, are only loaded and stored as atomic words.
#[derive(Debug)]
pub struct SharedMessages {
    base: NonNull<u8>,
    /// Messages that there is room for, and bytes of one.
    slots: usize,
    size: usize,
}

/// Where the messages begin. Each count has a page to itself.
const MESSAGES_AT: usize = 8192;
const TAKEN_AT: usize = 4096;

impl SharedMessages {
    /// Maps a file, for `slots` messages of `size` bytes, a multiple of 8; it is made that
    /// long.
    ///
    /// # Errors
    /// The system's reason; `EINVAL` for another size.
    pub fn new(file: &File, slots: usize, size: usize) -> Result<SharedMessages, Errno> {
        let bytes = slots.checked_mul(size).and_then(|bytes| bytes.checked_add(MESSAGES_AT));
        let fits = slots > 0 && size > 0 && size.is_multiple_of(8);
        let bytes = bytes.filter(|_| fits).ok_or(Errno::EINVAL)?;
        rustix::fs::ftruncate(file, bytes as u64)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::EINVAL)?;
        Ok(SharedMessages { base, slots, size })
    }

    /// Fills all slots with 7. Then says of `messages`, at most `window` ahead, that they are
    /// there, and waits until all were taken.
    pub fn offer(&self, messages: u64, window: u64) {
        let message = vec![7; self.size];
        for slot in 0..self.slots {
            // SAFETY: the slot is in the mapping, aligned, and whole words long, as all of it
            // is accessed.
            unsafe { words::store(self.message(slot), &message) };
        }
        let mut taken = 0;
        for number in 1..=messages {
            while number > taken + window {
                // Acquire: the copies that it tells of were made.
                taken = self.count(TAKEN_AT).load(Ordering::Acquire);
                std::hint::spin_loop();
            }
            // Release: the message is there, as it would be if it had just been written.
            self.count(0).store(number, Ordering::Release);
        }
        while self.count(TAKEN_AT).load(Ordering::Acquire) < messages {
            std::hint::spin_loop();
        }
    }

    /// Copies the messages of these numbers (the first one is 0) as they come, each to the
    /// next place of `into`.
    ///
    /// # Panics
    /// When there is no room for one.
    pub fn take(&self, numbers: Range<u64>, into: &mut [u8]) {
        let (places, mut there) = (into.len() / self.size, 0);
        assert!(places > 0, "there is room for a message");
        for number in numbers {
            while there <= number {
                // Acquire: the messages that it tells of are there.
                there = self.count(0).load(Ordering::Acquire);
                std::hint::spin_loop();
            }
            let (slot, at) = (number as usize % self.slots, number as usize % places);
            let place = &mut into[at * self.size..][..self.size];
            // SAFETY: as in `offer`.
            unsafe { words::load(place, self.message(slot)) };
            // Release: the copy is made.
            self.count(TAKEN_AT).store(number + 1, Ordering::Release);
        }
    }

    fn message(&self, slot: usize) -> *mut u8 {
        // SAFETY: slots are counted modulo their number, and lie within the mapping.
        unsafe { self.base.as_ptr().add(MESSAGES_AT + slot * self.size) }
    }

    fn count(&self, at: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of the mapping, which lives as long as this value and is
        // accessed atomically by both processes.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }
}

impl Drop for SharedMessages {
    fn drop(&mut self) {
        let bytes = MESSAGES_AT + self.slots * self.size;
        // SAFETY: the mapping is this value's own, and nothing points to it any more.
        if let Err(errno) = unsafe { munmap(self.base.as_ptr().cast(), bytes) } {
            leaked("shared messages", errno.into());
        }
    }
}

// SAFETY: the mapping is addresses that this value owns, and all of it is accessed atomically.
unsafe impl Send for SharedMessages {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_is_copied() {
        let path = std::env::temp_dir().join(format!("shared-messages-{}", std::process::id()));
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for not_words in [0, 100] {
            assert_eq!(SharedMessages::new(&file, 4, not_words).unwrap_err(), Errno::EINVAL);
        }
        let near = SharedMessages::new(&file, 4, 104).unwrap();
        let far = SharedMessages::new(&file, 4, 104).unwrap();
        let mut into = [0; 350];
        std::thread::scope(|scope| {
            scope.spawn(move || near.offer(1000, 3));
            far.take(0..1000, &mut into);
        });
        assert_eq!(into[..312], [7; 312]);
        assert_eq!(into[312..], [0; 38], "there is no room for a fourth");
    }
}
