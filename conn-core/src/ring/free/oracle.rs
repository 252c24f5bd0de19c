//! The operations of a free list, and a naive model of it: a queue of records, with a
//! mark on those that were freed.

use std::{collections::VecDeque, vec::Vec};

use arbitrary::Arbitrary;

use super::*;
use crate::exhaustive::CheckedMachine;

/// An operation on a free list.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum FreeListOp {
    /// A record of this number of units of 8 bytes is lent.
    Lend(u8),
    /// A record that is held is freed.
    Free {
        /// Index of the record, counted from the oldest.
        at: u8,
        /// On the owner's thread, or not.
        own: bool,
    },
    /// A record is freed a second time, with a stale handle.
    FreeAgain(u8),
    /// The owner looks where the head is.
    Head,
}

/// The list, and the records in the order in which they were lent.
#[derive(Debug)]
pub struct CheckedFreeList {
    list: FreeList<Vec<RecordSlot>>,
    front: FreeFront,
    /// Position behind each record that the head has not passed, and whether it is freed.
    model: VecDeque<(u64, bool)>,
    head: u64,
    tail: u64,
    /// Records that were lent, for stale handles.
    past: Vec<(u32, u64)>,
}

impl Clone for CheckedFreeList {
    fn clone(&self) -> Self {
        let slots = self.list.slots.iter().map(copy).collect();
        let (front, model, past) = (self.front.clone(), self.model.clone(), self.past.clone());
        Self { list: FreeList { slots }, front, model, past, ..*self }
    }
}

fn copy(slot: &RecordSlot) -> RecordSlot {
    RecordSlot(AtomicU64::new(slot.0.load(Ordering::Relaxed)))
}

impl CheckedFreeList {
    /// Both, with nothing lent.
    ///
    /// # Panics
    /// When `slots` is no power of two.
    pub fn new(slots: usize) -> Self {
        let list = FreeList::new((0..slots).map(|_| RecordSlot::new()).collect()).expect("a list");
        let (front, model, past) = (FreeFront::new(), VecDeque::new(), Vec::new());
        Self { list, front, model, head: 0, tail: 0, past }
    }

    fn lend(&mut self, units: u8) {
        let end = self.tail + 8 * (u64::from(units) + 1);
        let lent = self.front.lend(&self.list, end);
        assert_eq!(lent.is_ok(), self.model.len() < self.list.slots() as usize);
        if let Ok(lent) = lent {
            self.past.push((lent.slot, lent.end));
            self.model.push_back((end, false));
            self.tail = end;
        }
    }

    /// The handle of a record that was lent and ends at `end`.
    fn handle(&self, end: u64) -> Lent {
        let lent = self.past.iter().rev().find(|lent| lent.1 == end);
        let (slot, end) = *lent.expect("it was lent");
        Lent { slot, end }
    }

    fn free(&mut self, at: usize, own: bool) {
        let is_held = |record: &&(u64, bool)| !record.1;
        let Some(end) = self.model.iter().filter(is_held).nth(at).map(|record| record.0) else {
            return;
        };
        let lent = self.handle(end);
        let freed = match own {
            true => self.front.free(&self.list, lent),
            false => self.list.free(lent),
        };
        assert_eq!(freed, Ok(()));
        let record = self.model.iter_mut().find(|record| record.0 == end);
        record.expect("it is held").1 = true;
    }

    fn free_again(&mut self, at: usize) {
        let is_held = |end| self.model.iter().any(|&(e, freed)| e == end && !freed);
        let stale: Vec<_> = self.past.iter().filter(|lent| !is_held(lent.1)).collect();
        let Some(&&(slot, end)) = stale.get(at) else { return };
        let words = |list: &FreeList<Vec<RecordSlot>>| -> Vec<u64> {
            list.slots.iter().map(|slot| slot.0.load(Ordering::Relaxed)).collect()
        };
        let before = (words(&self.list), self.front.clone());
        assert_eq!(self.list.free(Lent { slot, end }), Err(NotLent));
        let as_owner = self.front.free(&self.list, Lent { slot, end });
        assert_eq!(as_owner, Err(NotLent));
        assert_eq!((words(&self.list), self.front.clone()), before, "a refused free");
    }
}

impl CheckedMachine for CheckedFreeList {
    type Op = FreeListOp;

    fn apply(&mut self, op: FreeListOp) {
        match op {
            FreeListOp::Lend(units) => self.lend(units),
            FreeListOp::Free { at, own } => self.free(at.into(), own),
            FreeListOp::FreeAgain(at) => self.free_again(at.into()),
            FreeListOp::Head => {}
        }
        while self.model.front().is_some_and(|record| record.1) {
            self.head = self.model.pop_front().expect("it is there").0;
        }
        if let FreeListOp::Head = op {
            assert_eq!(self.front.head(&self.list), self.head);
            assert_eq!(self.front.lent() as usize, self.model.len());
        }
        // A look moves the front of a copy.
        let mut ahead = self.clone();
        assert_eq!(ahead.front.head(&ahead.list), self.head);
        // Slots that the head has passed are room for the model only when it was looked.
        self.settle();
    }
}

impl CheckedFreeList {
    /// Moves the front over freed records, as the model has done already: lending depends on it.
    fn settle(&mut self) {
        self.front.head(&self.list);
    }
}
