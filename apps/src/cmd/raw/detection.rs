//! Detection of WRITEs in the memory of several queue pairs ("RDMA Tutorial", polling incoming
//! messages): by one thread that takes turns with all regions, or by a thread for each of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result};
use host::sync::Mutex;
use rdma_conn::verbs_safe::SharedRegion;

use super::memory::{self, MessagePlaces};
use super::plan::RawPlan;

/// Way in which the regions to look at are found.
pub(super) trait Detection {
    /// Looks for regions that may have a message, and returns their number.
    fn look(&mut self) -> usize;

    /// Returns the rank of one of them.
    fn rank(&self, at: usize) -> usize;

    /// A message of this rank was taken, and its place reset; `next` is the number of the message
    /// that follows.
    fn taken(&self, rank: usize, next: u64);
}

/// All regions, as many as there are: the thread that takes the messages polls each of them.
#[derive(Debug)]
pub(super) struct InTurn(pub(super) usize);

impl Detection for InTurn {
    #[inline(always)]
    fn look(&mut self) -> usize {
        self.0
    }

    #[inline(always)]
    fn rank(&self, at: usize) -> usize {
        at
    }

    #[inline(always)]
    fn taken(&self, _: usize, _: u64) {}
}

/// Those in which the thread of the region has found a message.
#[derive(Debug)]
pub(super) struct ByThreads<'a> {
    polled: &'a PolledRegions,
    ranks: Vec<usize>,
}

impl Detection for ByThreads<'_> {
    fn look(&mut self) -> usize {
        self.ranks.clear();
        std::mem::swap(&mut self.ranks, &mut *self.polled.found.lock());
        self.ranks.len()
    }

    fn rank(&self, at: usize) -> usize {
        self.ranks[at]
    }

    fn taken(&self, rank: usize, next: u64) {
        let word = &self.polled.next[rank];
        // Release: the place was reset before.
        word.store(next, Ordering::Release);
        host::notify_changed(word, 8);
    }
}

/// State of the polling threads, and of the thread that takes the messages.
#[derive(Debug)]
struct PolledRegions {
    /// By rank, the number of the next message.
    next: Box<[AtomicU64]>,
    /// Ranks with a message. A rank may be there without one, or twice.
    found: Mutex<Vec<usize>>,
    is_over: AtomicBool,
}

impl PolledRegions {
    /// Polls the place of the next message of a rank until the measurement is over.
    fn poll(&self, memory: &SharedRegion, places: MessagePlaces, rank: usize, size: usize) {
        let (word, mut reported) = (&self.next[rank], None);
        // Relaxed: it guards no memory.
        while !self.is_over.load(Ordering::Relaxed) {
            host::watch(word);
            // Acquire: the place of the message before was reset.
            let next = word.load(Ordering::Acquire);
            let arrived = || memory::arrived(memory, places.at(rank, next), size);
            if reported != Some(next) && matches!(arrived(), Ok(Some(_))) {
                reported = Some(next);
                self.found.lock().push(rank);
            } else {
                host::thread::yield_until(None);
            }
        }
    }
}

/// Ends the polling threads, also where the measurement fails.
struct EndOfPolling<'a>(&'a PolledRegions);

impl Drop for EndOfPolling<'_> {
    fn drop(&mut self) {
        // Relaxed: it guards no memory.
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// Calls `work` beside a thread for each region of `memory`.
///
/// # Errors
/// Those of `work`; or there are not as many threads.
pub(super) fn by_threads<T>(
    plan: &RawPlan,
    memory: &SharedRegion,
    work: impl FnOnce(ByThreads<'_>) -> Result<T>,
) -> Result<T> {
    let polled = PolledRegions {
        next: (0..plan.qps).map(|_| AtomicU64::new(0)).collect(),
        found: Mutex::new(Vec::new()),
        is_over: AtomicBool::new(false),
    };
    let places = MessagePlaces::new(plan);
    host::thread::scope(|scope| {
        let polled = &polled;
        let _end = EndOfPolling(polled);
        for rank in 0..plan.qps as usize {
            let size = plan.size_of(rank) as usize;
            let thread = scope.spawn(move || polled.poll(memory, places, rank, size));
            thread.with_context(|| format!("no thread is left for queue pair {}", rank + 1))?;
        }
        work(ByThreads { polled, ranks: Vec::new() })
    })
}
