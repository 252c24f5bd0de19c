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
mod tests {
    use host::sync::BrokenBarrier;

    use super::*;

    #[test]
    fn threads_end_where_another_one_cannot_be_started() {
        let barrier = &Barrier::new(4);
        host::thread::scope(|scope| {
            let wait = |at| match at {
                0 | 1 => scope.spawn(|| barrier.wait()),
                2 => Err(io::ErrorKind::WouldBlock.into()),
                _ => panic!("another one is tried"),
            };
            let (started, all) = start_all((0..4).map(wait), barrier);
            assert!(all.unwrap_err().to_string().contains("no thread is left after 2"));
            let ended: Vec<_> = started.into_iter().map(|one| one.join().unwrap()).collect();
            assert_eq!(ended, [Err(BrokenBarrier); 2]);
        });
    }
}
