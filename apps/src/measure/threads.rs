//! Threads that begin together, or not at all.

use std::io;

use anyhow::{Context, Result};
use host::sync::Barrier;

/// The error where both ends are in this process, and there is no thread for the second one.
pub(crate) const NO_THREAD: &str = "no thread for the other end";

/// Starts threads until one cannot be started: those that wait at `barrier` for the others end then.
/// Returns them, and why they are not all.
pub(crate) fn start_all<T>(
    threads: impl Iterator<Item = io::Result<T>>,
    barrier: &Barrier,
) -> (Vec<T>, Result<()>) {
    let mut started = Vec::new();
    for thread in threads {
        let count = started.len();
        let why = || format!("no thread is left after {count} of this measurement");
        match thread.with_context(why) {
            Ok(thread) => started.push(thread),
            Err(e) => {
                barrier.abort();
                return (started, Err(e));
            }
        }
    }
    (started, Ok(()))
}

#[cfg(test)]
mod tests;
