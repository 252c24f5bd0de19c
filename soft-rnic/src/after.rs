//! What an execution leaves to be done when its locks are free again.
//!
//! An error at one queue pair takes the other along, and an overrun completion
//! queue takes all that use it. Their send queues cannot be locked while ours is:
//! the state is set at once (atomically), the flush is queued here and run by
//! whoever caused it, after its own locks.

use std::sync::{Arc, Weak};

use crate::cq::Cq;
use crate::qp::Qp;

/// One thing to do.
pub(crate) enum Todo {
    /// Complete, with flush errors, whatever an erroneous queue pair still holds.
    Flush(Arc<Qp>),
    /// Take the users of a dead completion queue to the error state.
    KillUsers(Arc<Cq>),
    /// Go on with what a send queue has for memory of another process that is attached to.
    Attach(Arc<Qp>),
    /// Meet the process, of this slot, that a queue pair has something for.
    Meet(Arc<Qp>, u32),
}

/// The next thing to do. What may wait for another process's memory is the last.
fn next(todos: &mut Vec<Todo>) -> Option<Todo> {
    let at = todos.iter().rposition(|todo| !matches!(todo, Todo::Attach(_)));
    at.or(todos.len().checked_sub(1)).map(|at| todos.remove(at))
}

/// Things to do, usually none: then it is a null pointer.
#[derive(Default)]
#[allow(clippy::box_collection, reason = "one word on the stack of every post")]
pub(crate) struct After(Option<Box<Vec<Todo>>>);

impl After {
    pub(crate) fn push(&mut self, todo: Todo) {
        self.0.get_or_insert_default().push(todo);
    }

    /// Takes over another's.
    #[inline]
    pub(crate) fn append(&mut self, other: After) {
        if let Some(mut todos) = other.0 {
            self.0.get_or_insert_default().append(&mut todos);
        }
    }

    /// Does them, and what they cause in turn. No lock of a queue may be held.
    #[inline]
    pub(crate) fn run(self) {
        if self.0.is_some() {
            self.run_all();
        }
    }

    #[cold]
    fn run_all(mut self) {
        while let Some(todo) = self.0.as_mut().and_then(|todos| next(todos)) {
            match todo {
                Todo::Flush(qp) => qp.flush(&mut self),
                Todo::Attach(qp) => qp.go_on_alone(&mut self),
                Todo::Meet(qp, slot) => qp.go_and_meet(slot, &mut self),
                Todo::KillUsers(cq) => {
                    let users: Vec<_> = cq.qps.lock().iter().filter_map(Weak::upgrade).collect();
                    for qp in users {
                        qp.die(&mut self);
                    }
                }
            }
        }
    }
}
