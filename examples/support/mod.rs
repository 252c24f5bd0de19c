//! Code that the examples share, so that each is about its own subject. The first one, `send_recv`,
//! uses none of it: there every step can be read.
#![allow(dead_code, reason = "each example uses a part of it")]

use std::error::Error;
use std::time::{Duration, Instant};

use verbs_safe::{
    Completion, CompletionBatch, CompletionQueue, ConnectAttr, QpControl, random_psn,
};

/// Whatever goes wrong ends the example, and is printed.
pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

/// Reason why an example has ended, for people: what `main` returns is printed by `Debug`.
pub(crate) struct Failure(Box<dyn Error + Send + Sync>);

impl std::fmt::Debug for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.into())
    }
}

/// Connects two queue pairs to each other: steps 6 and 7 of `send_recv`.
pub(crate) fn connect(a: &QpControl, b: &QpControl) -> Result {
    let context = a.context();
    let gid = context.choose_gid(1, None)?;
    let mtu = context.port(1)?.active_mtu;
    let (psn_a, psn_b) = (random_psn(), random_psn());
    let (end_a, end_b) = (a.endpoint(1, gid, psn_a)?, b.endpoint(1, gid, psn_b)?);
    // 7 RNR retries are retries for ever: no example has flow control.
    let attr = |psn| ConnectAttr { mtu, rnr_retry: 7, ..ConnectAttr::new(gid.index as u8, psn) };
    a.connect(&end_b, &attr(psn_a))?;
    Ok(b.connect(&end_a, &attr(psn_b))?)
}

/// Time after which a wait has failed, whether the ends were connected or not.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `ready` says so.
pub(crate) fn wait_until(mut ready: impl FnMut() -> Result<bool>) -> Result {
    let start = Instant::now();
    while !ready()? {
        if start.elapsed() > PATIENCE {
            return Err("nothing has arrived".into());
        }
        // Both ends may share a processor.
        std::thread::yield_now();
    }
    Ok(())
}

/// A completion queue and what was taken from it.
pub(crate) struct Completions {
    queue: CompletionQueue,
    batch: CompletionBatch,
}

impl Completions {
    pub(crate) fn new(queue: &CompletionQueue) -> Completions {
        Completions { queue: queue.clone(), batch: CompletionBatch::new(32) }
    }

    /// Shows `each` what has completed; returns true if anything has.
    pub(crate) fn poll(&mut self, mut each: impl FnMut(Completion<'_>) -> Result) -> Result<bool> {
        let count = self.queue.poll(&mut self.batch)?;
        for completion in self.batch.drain() {
            if let Some(error) = completion.error() {
                return Err(error.into());
            }
            each(completion)?;
        }
        Ok(count > 0)
    }

    /// Waits until something has completed, and shows it to `each`.
    pub(crate) fn wait(&mut self, mut each: impl FnMut(Completion<'_>) -> Result) -> Result {
        wait_until(|| self.poll(&mut each))
    }
}
