//! Threads that begin together, or not at all, and two ends as two threads.

use std::io;

use anyhow::{Context, Result};
use base::pinning;
use host::sync::Barrier;

/// Does `lead` in this thread, and `follow` in a second one: both ends of a connection. Each owns its
/// end, which goes with it: the other one would wait for an end that has failed.
///
/// # Errors
/// There is no thread for the second one.
pub(crate) fn pair<A, B: Send>(
    lead: impl FnOnce() -> A,
    follow: impl FnOnce() -> B + Send,
) -> Result<(A, B)> {
    host::thread::scope(|scope| {
        let follower = scope.spawn(move || {
            pinning::pin_thread(1);
            follow()
        });
        let follower = follower.context("no thread for the other end")?;
        pinning::pin_thread(0);
        let led = lead();
        let followed = follower.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((led, followed))
    })
}

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
