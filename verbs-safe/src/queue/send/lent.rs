//! Memory that a send queue was lent.

use std::fmt;
use std::sync::Arc;

use crate::region::buffer::Buffer;
use crate::region::file::FileRegion;
use crate::region::registration::Registration;

/// Memory lent to a send queue, each piece at the index of its entry in the queue's directory of
/// regions. No code accesses its bytes.
///
/// The queue owns it, so that a loan touches neither a reference count nor the queue pair's lock.
/// When the queue is dropped first, the queue pair takes over the memory that it may still use. A
/// forgotten queue leaks the memory.
#[derive(Default)]
pub(super) struct Loans(Vec<Option<LentMemory>>);

pub(super) enum LentMemory {
    Buffer(Buffer),
    File(FileRegion),
}

impl LentMemory {
    pub(super) fn registration(&self) -> &Arc<Registration> {
        match self {
            LentMemory::Buffer(buffer) => buffer.registration(),
            LentMemory::File(file) => file.registration(),
        }
    }
}

impl Loans {
    pub(super) fn put(&mut self, at: usize, lent: LentMemory) {
        if at >= self.0.len() {
            // Bounded: by `MAX_ENTRIES`.
            self.0.resize_with(at + 1, || None);
        }
        self.0[at] = Some(lent);
    }

    pub(super) fn take(&mut self, at: usize) -> Option<LentMemory> {
        self.0.get_mut(at)?.take()
    }

    /// Takes all of them out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = LentMemory> {
        self.0.drain(..).flatten()
    }
}

impl fmt::Debug for Loans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Loans").field(&self.0.iter().flatten().count()).finish()
    }
}
