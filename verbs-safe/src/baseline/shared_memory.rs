//! Copying by hand between two processes: one says in shared memory which messages are there, the
//! other one copies them out of it and says how far it is.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use rustix::mm::munmap;
use thiserror::Error;

use crate::errno::{Errno, leaked};
use crate::error::MapError;
use crate::region::memory::{Pages, map_file};
use crate::region::mirrored::memory_file;
use crate::region::shared::words;

/// A file in memory that two processes map: two counts, and messages behind them. Either process
/// may write at any time, and only the counts make one wait for the other. So messages, too, are
/// loaded and stored as atomic words only.
///
/// The file is a memory file that is sealed against truncation: an access to a mapping behind the
/// end of its file would end the process (`SIGBUS`).
#[derive(Debug)]
pub struct SharedMessages {
    base: NonNull<u8>,
    /// Messages that there is room for, and bytes of one.
    slots: usize,
    size: usize,
    file: OwnedFd,
}

/// Reasons for which there are no [`SharedMessages`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SharedMessagesError {
    /// There is at least one message, of whole words, and all have addresses.
    #[error(
        "{slots} messages of {size} bytes: there is at least one, and the size is a multiple \
         of 8 above 0"
    )]
    Shape {
        /// Messages.
        slots: usize,
        /// Bytes of each.
        size: usize,
    },
    /// The file may be cut off while it is mapped.
    #[error(
        "the file can be truncated, which would kill its readers: share the file of \
         SharedMessages::new, or a memory file with F_SEAL_SHRINK"
    )]
    NotSealed,
    /// The file ends before the messages do.
    #[error("the file has {found} bytes, and the messages take {wanted}")]
    TooShort {
        /// Its length.
        found: u64,
        /// The least length.
        wanted: u64,
    },
    /// The system does not make or map it.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// Offset of the messages. Each count has a page to itself.
const MESSAGES_AT: usize = 8192;
const TAKEN_AT: usize = 4096;

impl SharedMessages {
    /// Makes a file for `slots` messages of `size` bytes, a multiple of 8, and maps it. The
    /// other process [opens](Self::open) it by this one's descriptor.
    ///
    /// # Errors
    /// [`SharedMessagesError`].
    pub fn new(slots: usize, size: usize) -> Result<SharedMessages, SharedMessagesError> {
        let bytes = bytes(slots, size)?;
        let file = memory_file("shared-messages", bytes, Pages::Normal)
            .map_err(|e| MapError::new("making a file", bytes, e))?;
        SharedMessages::map(file, slots, size, bytes)
    }

    /// Maps a file that another process has made: of as many messages, of that size.
    ///
    /// # Errors
    /// [`SharedMessagesError`]: also for a file that can be cut off, which is any other than a
    /// memory file that is sealed against it.
    pub fn open(
        file: OwnedFd,
        slots: usize,
        size: usize,
    ) -> Result<SharedMessages, SharedMessagesError> {
        let bytes = bytes(slots, size)?;
        let system = |errno: rustix::io::Errno| {
            MapError::new("looking at a file", bytes, Errno::from(errno))
        };
        // Only a memory file has seals. One of huge pages has them, too, but may lack a page.
        let seals = fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        let is_plain = fstatfs(&file).map_err(system)?.f_type as u64 & 0xffff_ffff == TMPFS;
        if !seals.contains(SealFlags::SHRINK) || !is_plain {
            return Err(SharedMessagesError::NotSealed);
        }
        // From here on it does not become shorter.
        let found = fstat(&file).map_err(system)?.st_size as u64;
        if found < bytes as u64 {
            return Err(SharedMessagesError::TooShort { found, wanted: bytes as u64 });
        }
        SharedMessages::map(file, slots, size, bytes)
    }

    /// The file is sealed, and has as many bytes.
    fn map(
        file: OwnedFd,
        slots: usize,
        size: usize,
        bytes: usize,
    ) -> Result<SharedMessages, SharedMessagesError> {
        let error = |errno| MapError::new("mapping a file", bytes, errno);
        let base = map_file(&file, 0, bytes).map_err(error)?;
        Ok(SharedMessages { base, slots, size, file })
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
                host::thread::spin_loop();
            }
            // Release: the message is there, as it would be if it had just been written.
            self.count(0).store(number, Ordering::Release);
        }
        while self.count(TAKEN_AT).load(Ordering::Acquire) < messages {
            host::thread::spin_loop();
        }
    }

    /// Copies the messages of these numbers (the first one is 0) as they arrive, each to the
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
                host::thread::spin_loop();
            }
            let (slot, at) = (number as usize % self.slots, number as usize % places);
            let place = &mut into[at * self.size..][..self.size];
            // SAFETY: the slot is in the mapping, aligned, and whole words long, as all of it
            // is accessed.
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

/// Type of the file system (tmpfs) that memory files of plain pages are on.
const TMPFS: u64 = 0x0102_1994;

/// The length of the file.
fn bytes(slots: usize, size: usize) -> Result<usize, SharedMessagesError> {
    let bytes = slots.checked_mul(size).and_then(|bytes| bytes.checked_add(MESSAGES_AT));
    let fits = slots > 0 && size > 0 && size.is_multiple_of(8);
    bytes.filter(|_| fits).ok_or(SharedMessagesError::Shape { slots, size })
}

impl AsFd for SharedMessages {
    /// The file, to be handed to the other process.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
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
mod tests;
