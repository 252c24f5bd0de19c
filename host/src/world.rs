//! Worlds: real code in virtual time, in an order that a seed decides.
//!
//! The threads of a world hand a baton to each other: one runs at a time. Wherever threads could meet (a lock, a
//! wait, a [`point`](crate::point)) the running one may have to hand it on, and the seed decides to which.
//!
//! ```text
//!             point, and the seed says so              woken, deadline, descriptor
//!   running ------------------------------> ready <---------------------------------- blocked
//!      ^  \__________________________________|  ^_________________________________________/ \
//!      |               chosen                             (ready, but not chosen)            |
//!      +----------------------------------------- waits ------------------------------------+
//! ```
//!
//! Time passes when no thread can run: it jumps to the next deadline. Besides, each point takes some
//! nanoseconds, and more the longer nothing has happened, so that a thread that polls until a deadline reaches it.
//!
//! [`run`] runs a program in a world:
//!
//! 1. Its first thread is the program; threads that it starts by [`thread::spawn`](crate::thread::spawn) are of the
//!    world, too.
//! 2. It ends when all of its threads have ended: a thread that stays is a [`Failure`], as are a panic, a wait that
//!    nothing can end, and more steps or time than the [`Limits`] permit.
//! 3. The [`Report`] has a hash of all that was decided: the same seed has the same hash.
//!
//! **Contract: the program draws on no other source of chance or time, and waits through this crate only.**

mod here;
mod nature;
mod schedule;
mod state;
pub mod sync;
mod watch;

pub(crate) use here::is_interrupted;
pub use here::{
    CurrentTask, Task, fail, here, note, on_node, start_timer, uninterrupted, wait_for_fds,
};
pub use nature::{Failure, Limits, Nature, NodeId, Report};

use std::sync::{Arc, PoisonError};

use schedule::WorldInner;

/// Runs `program` in a world of this seed, and returns what it returned, unless the world fails.
///
/// One world runs at a time in a process: objects that all worlds share (a list of devices) are so used in the
/// same order each time. Threads of a world that fails stay parked for ever.
pub fn run<T: Send + 'static>(
    seed: u64,
    nature: Nature,
    limits: Limits,
    program: impl FnOnce() -> T + Send + 'static,
) -> (Report, Result<T, Failure>) {
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one_at_a_time = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    here::catch_panics();
    let shared = Arc::new(WorldInner::new(seed, nature, limits));
    let returned = Arc::new(std::sync::Mutex::new(None));
    let first = shared.add_task("program", NodeId::FIRST);
    let task = Task::new(Arc::clone(&shared), first);
    let started = {
        let (task, returned) = (task.clone(), Arc::clone(&returned));
        let program = move || {
            let value = program();
            *returned.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        };
        std::thread::Builder::new().name("program".into()).spawn(move || task.run(program))
    };
    match started {
        Ok(_) => shared.begin(first),
        Err(error) => shared.fail_from_outside(&format!("no thread for the program: {error}")),
    }
    let (report, failure) = shared.wait_for_end();
    let returned = returned.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (failure, returned) {
        (None, Some(value)) => (report, Ok(value)),
        (Some(failure), _) => (report, Err(failure)),
        (None, None) => {
            (report, Err(Failure { reason: "the program did not return".into(), threads: vec![] }))
        }
    }
}

#[cfg(test)]
mod tests;
