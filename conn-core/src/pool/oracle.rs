//! The operations of a [`BufferPool`], and a naive model of it: three lists.

use std::{collections::VecDeque, vec, vec::Vec};

use arbitrary::Arbitrary;

use super::*;
use crate::exhaustive::CheckedMachine;

/// An operation on a pool.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum BufferPoolOp {
    /// A message arrived in this buffer.
    Lend(u8),
    /// The application is done with this buffer.
    Free(u8),
    /// This buffer was returned without a message.
    Return(u8),
    /// Up to this many are reposted.
    Repost(u8),
    /// The last `n` of those reposted last could not be posted.
    Unpost(u8),
    /// These two, in any state, could not be posted.
    UnpostAny(u8, u8),
}

/// The pool and its model.
#[derive(Clone, Debug)]
pub struct CheckedBufferPool {
    machine: BufferPool<Vec<PoolSlot>>,
    waiting: VecDeque<u32>,
    posted: Vec<u32>,
    lent: Vec<u32>,
    batch: usize,
}

impl CheckedBufferPool {
    /// Both, at the start.
    ///
    /// # Errors
    /// As [`BufferPool::new`].
    pub fn new(buffers: u32, repost_batch: u32) -> Result<Self, PoolConfigError> {
        let storage = vec![PoolSlot::new(); buffers as usize];
        Ok(Self {
            machine: BufferPool::new(storage, PoolConfig { repost_batch })?,
            waiting: (0..buffers).collect(),
            posted: Vec::new(),
            lent: Vec::new(),
            batch: repost_batch.min(buffers) as usize,
        })
    }

    fn buffers(&self) -> usize {
        self.waiting.len() + self.posted.len() + self.lent.len()
    }

    fn check(&self) {
        let machine = &self.machine;
        assert_eq!(machine.waiting() as usize, self.waiting.len());
        assert_eq!(machine.posted() as usize, self.posted.len());
        assert_eq!(machine.lent() as usize, self.lent.len());
        assert_eq!(machine.buffers() as usize, self.buffers());
        let list = |ids: &mut dyn Iterator<Item = &u32>, state| {
            ids.for_each(|&id| assert_eq!(machine.state(id), Some(state), "buffer {id}"));
        };
        list(&mut self.waiting.iter(), BufferState::Waiting);
        list(&mut self.posted.iter(), BufferState::Posted);
        list(&mut self.lent.iter(), BufferState::Lent);
        assert_eq!(machine.state(self.buffers() as u32), None);
        for reserved in 0..3 {
            let data = self.posted.len().saturating_sub(reserved);
            let low = data <= self.waiting.len() && !self.waiting.is_empty();
            let due = self.waiting.len() >= self.batch || low;
            assert_eq!(machine.due_beyond(reserved as u32), due);
        }
        assert!(machine.due() || self.waiting.is_empty() || !self.posted.is_empty(), "stalled");
    }

    fn repost(&mut self, room: usize) {
        let mut out = vec![u32::MAX; room];
        let count = self.machine.take_repost(&mut out);
        assert_eq!(count, room.min(self.waiting.len()));
        let expected: Vec<u32> = self.waiting.drain(..count).collect();
        assert_eq!(out[..count], expected, "first freed, first reposted");
        self.posted.extend(expected);
    }

    fn unpost(&mut self, ids: &[u32]) -> bool {
        let bad = (0..ids.len())
            .rev()
            .find(|&at| !self.posted.contains(&ids[at]) || ids[at + 1..].contains(&ids[at]));
        let result = self.machine.unpost(ids);
        if let Some(at) = bad {
            assert_eq!(result, Err(UnpostError { id: ids[at] }));
            return true;
        }
        assert_eq!(result, Ok(()));
        self.posted.retain(|id| !ids.contains(id));
        ids.iter().rev().for_each(|&id| self.waiting.push_front(id));
        false
    }

    fn lend(&mut self, id: u32) -> bool {
        let result = self.machine.lend(id);
        let refused = self.refuse_unposted(id);
        assert_eq!(result, refused.map_or(Ok(()), Err));
        if refused.is_none() {
            self.posted.retain(|&p| p != id);
            self.lent.push(id);
        }
        refused.is_some()
    }

    fn return_unreceived(&mut self, id: u32) -> bool {
        let result = self.machine.return_unreceived(id);
        let refused = self.refuse_unposted(id);
        assert_eq!(result, refused.map_or(Ok(()), Err));
        if refused.is_none() {
            self.posted.retain(|&p| p != id);
            self.waiting.push_back(id);
        }
        refused.is_some()
    }

    fn refuse_unposted(&self, id: u32) -> Option<LendError> {
        match id {
            id if id as usize >= self.buffers() => Some(LendError::OutOfRange),
            id if !self.posted.contains(&id) => Some(LendError::NotPosted),
            _ => None,
        }
    }

    fn free(&mut self, id: u32) -> bool {
        let result = self.machine.free(id);
        if id as usize >= self.buffers() {
            assert_eq!(result, Err(FreeError::OutOfRange));
        } else if !self.lent.contains(&id) {
            assert_eq!(result, Err(FreeError::NotLent));
        } else {
            assert_eq!(result, Ok(()));
            self.lent.retain(|&l| l != id);
            self.waiting.push_back(id);
        }
        result.is_err()
    }
}

impl CheckedMachine for CheckedBufferPool {
    type Op = BufferPoolOp;

    fn apply(&mut self, op: BufferPoolOp) {
        let before = self.machine.clone();
        let refused = match op {
            BufferPoolOp::Lend(id) => self.lend(id.into()),
            BufferPoolOp::Free(id) => self.free(id.into()),
            BufferPoolOp::Return(id) => self.return_unreceived(id.into()),
            BufferPoolOp::Repost(room) => {
                self.repost(room.into());
                false
            }
            BufferPoolOp::Unpost(n) => {
                let keep = self.posted.len().saturating_sub(n.into());
                let last = self.posted[keep..].to_vec();
                self.unpost(&last)
            }
            BufferPoolOp::UnpostAny(a, b) => self.unpost(&[a.into(), b.into()]),
        };
        if refused {
            // The list must be the same too, not only its length: take it out of both.
            let order = |pool: &BufferPool<Vec<PoolSlot>>| {
                let mut ids = vec![0; pool.buffers() as usize];
                let count = pool.clone().take_repost(&mut ids);
                ids.truncate(count);
                ids
            };
            assert_eq!(order(&self.machine), order(&before));
        }
        self.check();
    }
}
