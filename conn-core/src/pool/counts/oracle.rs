//! The operations of [`PoolCounts`], and a naive model of it: each buffer's state.

use std::{vec, vec::Vec};

use arbitrary::Arbitrary;

use super::*;
use crate::exhaustive::CheckedMachine;
use crate::pool::BufferState;

/// An operation on a number of buffers.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum PoolCountsOp {
    /// Messages arrived in them.
    Lend(u8),
    /// The application is done with them.
    Free(u8),
    /// They were returned without a message.
    Return(u8),
    /// They were posted.
    Repost(u8),
}

/// The counts and their model.
#[derive(Clone, Debug)]
pub struct CheckedPoolCounts {
    machine: PoolCounts,
    states: Vec<BufferState>,
    batch: usize,
}

impl CheckedPoolCounts {
    /// Both, at the start.
    ///
    /// # Errors
    /// As [`PoolCounts::new`].
    pub fn new(buffers: u32, repost_batch: u32) -> Result<Self, PoolConfigError> {
        Ok(Self {
            machine: PoolCounts::new(buffers, PoolConfig { repost_batch })?,
            states: vec![BufferState::Waiting; buffers as usize],
            batch: repost_batch.min(buffers) as usize,
        })
    }

    fn count(&self, state: BufferState) -> usize {
        self.states.iter().filter(|s| **s == state).count()
    }

    /// Moves `n` buffers, all or none; returns the expected answer of the machine.
    fn change(&mut self, n: u8, from: BufferState, to: BufferState) -> Result<(), Miscount> {
        let possible = self.count(from);
        if usize::from(n) > possible {
            return Err(Miscount { possible: possible as u32 });
        }
        let found = self.states.iter_mut().filter(|s| **s == from);
        found.take(n.into()).for_each(|s| *s = to);
        Ok(())
    }

    fn check(&self) {
        let machine = &self.machine;
        let (waiting, posted) = (self.count(BufferState::Waiting), self.count(BufferState::Posted));
        assert_eq!(machine.waiting() as usize, waiting);
        assert_eq!(machine.posted() as usize, posted);
        assert_eq!(machine.lent() as usize, self.count(BufferState::Lent));
        assert_eq!(machine.buffers() as usize, self.states.len());
        for reserved in 0..3 {
            let low = posted.saturating_sub(reserved) <= waiting && waiting > 0;
            assert_eq!(machine.due_beyond(reserved as u32), waiting >= self.batch || low);
        }
        assert!(machine.due() || waiting == 0 || posted > 0, "stalled");
    }
}

impl CheckedMachine for CheckedPoolCounts {
    type Op = PoolCountsOp;

    fn apply(&mut self, op: PoolCountsOp) {
        use BufferState::{Lent, Posted, Waiting};
        let before = self.machine.clone();
        let (result, expected) = match op {
            PoolCountsOp::Lend(n) => (self.machine.lend(n.into()), self.change(n, Posted, Lent)),
            PoolCountsOp::Free(n) => (self.machine.free(n.into()), self.change(n, Lent, Waiting)),
            PoolCountsOp::Return(n) => {
                (self.machine.return_unreceived(n.into()), self.change(n, Posted, Waiting))
            }
            PoolCountsOp::Repost(n) => {
                (self.machine.repost(n.into()), self.change(n, Waiting, Posted))
            }
        };
        assert_eq!(result, expected);
        if result.is_err() {
            assert_eq!(self.machine, before, "what is refused changes nothing");
        }
        self.check();
    }
}
