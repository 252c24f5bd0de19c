//! Every short history of a machine, for tests: with the feature `oracle`.

use core::fmt::Debug;

use std::vec::Vec;

/// A machine together with its oracle.
pub trait CheckedMachine: Clone {
    /// An operation on the machine.
    type Op: Copy + Debug;

    /// Lets `op` happen to both, and panics when they differ, when an invariant is
    /// broken, or when a refused operation has changed something.
    fn apply(&mut self, op: Self::Op);
}

/// Lets every sequence of `depth` operations out of `alphabet` happen to `start`, and
/// returns how many there were. Panics with the history that failed.
pub fn every_history<P: CheckedMachine>(start: &P, alphabet: &[P::Op], depth: u32) -> u64 {
    let mut history = HistoryOnPanic(Vec::new());
    walk(start, alphabet, depth, &mut history)
}

fn walk<P: CheckedMachine>(
    at: &P,
    alphabet: &[P::Op],
    depth: u32,
    history: &mut HistoryOnPanic<P::Op>,
) -> u64 {
    if depth == 0 {
        return 1;
    }
    let mut count = 0;
    for &op in alphabet {
        history.0.push(op);
        let mut next = at.clone();
        next.apply(op);
        count += walk(&next, alphabet, depth - 1, history);
        history.0.pop();
    }
    count
}

/// Prints the history when a panic passes by.
struct HistoryOnPanic<Op: Debug>(Vec<Op>);

impl<Op: Debug> Drop for HistoryOnPanic<Op> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::eprintln!("the history that failed: {:?}", self.0);
        }
    }
}
