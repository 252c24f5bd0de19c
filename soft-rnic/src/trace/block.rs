//! The block of words that an object has in a trace.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use super::file::TraceFile;

/// The words of an object.
#[derive(Debug)]
pub(super) struct TraceBlock {
    pub(super) file: Arc<TraceFile>,
    at: usize,
    words: usize,
}

impl TraceBlock {
    pub(super) fn new(file: &Arc<TraceFile>, words: usize) -> Option<TraceBlock> {
        Some(TraceBlock { file: Arc::clone(file), at: file.allocate(words)?, words })
    }

    pub(super) fn get(&self, word: usize) -> u64 {
        // Relaxed, here and below: a counter; what it counts has its own order.
        self.file.word(self.at + word).load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, word: usize, value: u64) {
        self.file.word(self.at + word).store(value, Ordering::Relaxed);
    }

    /// A store behind those before it, for a reader of a process that was killed meanwhile.
    pub(super) fn publish(&self, word: usize, value: u64) {
        // Release: the stores before it are not moved behind it.
        self.file.word(self.at + word).store(value, Ordering::Release);
    }
}

impl Drop for TraceBlock {
    fn drop(&mut self) {
        self.file.give_back(self.at, self.words);
    }
}
