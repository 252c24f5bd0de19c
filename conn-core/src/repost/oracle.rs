//! The operations of a [`RepostQueue`] on one thread, and a naive model of it: a sorted set.
//! `loom-tests` covers concurrent threads.

use std::{collections::BTreeSet, vec, vec::Vec};

use arbitrary::Arbitrary;

use super::*;
use crate::exhaustive::CheckedMachine;

/// An operation on a queue.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum RepostQueueOp {
    /// This buffer is freed.
    Enqueue(u16),
    /// Up to this many are taken out.
    Drain(u8),
}

/// The queue and its model.
#[derive(Debug)]
pub struct CheckedRepostQueue {
    machine: RepostQueue<Vec<RepostWord>>,
    model: BTreeSet<u32>,
}

impl CheckedRepostQueue {
    /// Both, at the start.
    ///
    /// # Errors
    /// As [`RepostQueue::new`].
    pub fn new(buffers: u32) -> Result<Self, RepostQueueError> {
        let words = (0..words_for(buffers)).map(|_| RepostWord::new()).collect();
        Ok(Self { machine: RepostQueue::new(words, buffers)?, model: BTreeSet::new() })
    }

    fn state(&self) -> Vec<Bits> {
        self.machine.words.iter().map(|word| word.0.load(Ordering::Relaxed)).collect()
    }

    fn enqueue(&mut self, id: u32) {
        let before = self.state();
        let result = self.machine.enqueue(id);
        if id >= self.machine.buffers() {
            assert_eq!(result, Err(EnqueueError::OutOfRange));
        } else if !self.model.insert(id) {
            assert_eq!(result, Err(EnqueueError::AlreadyQueued));
        } else {
            assert_eq!(result, Ok(()));
        }
        assert!(result.is_ok() || self.state() == before, "a refused enqueue changed something");
    }

    fn drain(&mut self, room: usize) {
        let mut out = vec![u32::MAX; room];
        let count = self.machine.drain(&mut out);
        let expected: Vec<u32> = self.model.iter().copied().take(room).collect();
        assert_eq!(out[..count], expected);
        expected.iter().for_each(|id| assert!(self.model.remove(id)));
    }
}

impl Clone for CheckedRepostQueue {
    fn clone(&self) -> Self {
        let word = |&value| RepostWord(AtomicBits::new(value));
        let words = self.state().iter().map(word).collect();
        let machine = RepostQueue { words, buffers: self.machine.buffers };
        Self { machine, model: self.model.clone() }
    }
}

impl CheckedMachine for CheckedRepostQueue {
    type Op = RepostQueueOp;

    fn apply(&mut self, op: RepostQueueOp) {
        match op {
            RepostQueueOp::Enqueue(id) => self.enqueue(id.into()),
            RepostQueueOp::Drain(room) => self.drain(room.into()),
        }
        // A summary bit may outlive its ids (a drain that was full), never the reverse.
        assert!(!self.machine.is_empty() || self.model.is_empty(), "ids that no drain finds");
    }
}
