//! The steps of threads that share a [`Combiner`], in any order, and a naive model of it: whether a
//! thread is inside, and whether another has asked since. `loom-tests` covers memory ordering.

use arbitrary::Arbitrary;

use super::*;
use crate::exhaustive::CheckedMachine;

/// One step of one thread. Each is one operation on the combiner or on the guarded work, so that a
/// history is an interleaving.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum CombinerOp {
    /// A thread publishes work.
    Publish(u8),
    /// A thread asks for its work to be done.
    Enter(u8),
    /// The thread inside does all the work that there is.
    Look,
    /// The thread inside has looked and leaves; if none is inside, a thread outside tries to.
    Leave,
}

/// Progress of the thread inside, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InsideProgress {
    Empty,
    /// It has not looked since it entered, or since `leave` returned true.
    HasToLook,
    HasLooked,
}

/// The combiner and its model.
#[derive(Debug)]
pub struct CheckedCombiner {
    machine: Combiner,
    inside: InsideProgress,
    /// A thread has asked since the last look began.
    asked: bool,
    /// Work that is not done, a bit a thread.
    undone: u32,
    /// Threads that have asked for their work to be done.
    owed: u32,
}

impl CheckedCombiner {
    /// A free combiner, and nothing to do.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "as the other oracles")]
    pub fn new() -> Self {
        let inside = InsideProgress::Empty;
        Self { machine: Combiner::new(), inside, asked: false, undone: 0, owed: 0 }
    }

    fn requests(&self) -> u64 {
        self.machine.requests.load(Ordering::Relaxed)
    }

    fn publish(&mut self, work: u32) {
        self.undone |= work;
        self.owed &= !work;
    }

    fn enter(&mut self, work: u32) {
        self.owed |= work;
        let entered = self.machine.try_enter();
        assert_eq!(entered, self.inside == InsideProgress::Empty, "one at a time");
        match entered {
            true => self.inside = InsideProgress::HasToLook,
            false => self.asked = true,
        }
    }

    fn look(&mut self) {
        if self.inside != InsideProgress::Empty {
            self.undone = 0;
            self.inside = InsideProgress::HasLooked;
        }
    }

    fn leave(&mut self) {
        let before = self.requests();
        match self.inside {
            // It must look first.
            InsideProgress::HasToLook => {}
            InsideProgress::Empty => {
                assert!(!self.machine.leave(), "no thread is inside");
                assert_eq!(self.requests(), before, "a refused leave changed something");
            }
            InsideProgress::HasLooked => {
                let again = self.machine.leave();
                assert_eq!(again, self.asked, "a thread that was asked looks again");
                self.asked = false;
                self.inside = if again { InsideProgress::HasToLook } else { InsideProgress::Empty };
            }
        }
    }
}

impl Clone for CheckedCombiner {
    fn clone(&self) -> Self {
        let machine = Combiner { requests: AtomicU64::new(self.requests()) };
        Self { machine, ..*self }
    }
}

impl CheckedMachine for CheckedCombiner {
    type Op = CombinerOp;

    fn apply(&mut self, op: CombinerOp) {
        match op {
            CombinerOp::Publish(thread) => self.publish(1 << (thread % 32)),
            CombinerOp::Enter(thread) => self.enter(1 << (thread % 32)),
            CombinerOp::Look => self.look(),
            CombinerOp::Leave => self.leave(),
        }
        let stranded = self.undone & self.owed;
        assert!(self.inside != InsideProgress::Empty || stranded == 0, "work was left undone");
        assert_eq!(self.requests() > 0, self.inside != InsideProgress::Empty);
        assert_eq!(self.requests() > 1, self.asked);
    }
}
