//! Work on several items at a time.

use std::sync::Mutex;

use anyhow::Result;

/// Runs `work` on each item, in `threads` threads; the first failure is returned, and no further item is begun.
pub(crate) fn for_each<'a, T: Sync>(
    items: &'a [T],
    threads: usize,
    work: impl Fn(&'a T) -> Result<()> + Sync,
) -> Result<()> {
    let next = Mutex::new(items.iter());
    let run = || -> Result<()> {
        loop {
            let Some(item) = next.lock().expect("no panic").next() else { return Ok(()) };
            if let Err(e) = work(item) {
                next.lock().expect("no panic").by_ref().for_each(drop);
                return Err(e);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

#[cfg(test)]
mod tests;
