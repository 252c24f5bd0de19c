//! End of a stream: it happens once, with the transfer or by a signal, whichever is first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, anyhow};
use base::outcome::{self, CommandError};
use base::signals;
use host::sync::{Mutex, MutexGuard};
use indicatif::ProgressBar;

use crate::measure::figures::bytes;
use crate::session::SessionChannel;

/// Words of both ends about a stream that ended early.
const A_PART: &str = "what has arrived is a part only";

/// A failure before the end of the stream, after `passed` bytes.
pub(super) fn early(failure: CommandError, passed: u64) -> CommandError {
    anyhow!("{failure:#} (after {}): {A_PART}", bytes(passed))
}

/// The end of this process, which a signal may bring about at any time.
#[derive(Clone)]
pub(super) struct PipeEnding(Arc<EndingShared>);

struct EndingShared {
    state: Mutex<EndingState>,
    /// Bytes that have gone by.
    passed: AtomicU64,
}

struct EndingState {
    is_claimed: bool,
    /// To the other end, once there is one.
    wire: Option<SessionChannel>,
    bar: ProgressBar,
}

impl PipeEnding {
    /// Has signals end the process from now on, with a word to the other end.
    pub(super) fn watch() -> Result<PipeEnding> {
        let state = EndingState { is_claimed: false, wire: None, bar: ProgressBar::hidden() };
        let shared = EndingShared { state: Mutex::new(state), passed: AtomicU64::new(0) };
        let ending = PipeEnding(Arc::new(shared));
        let told = ending.clone();
        signals::watch(move |signal| told.interrupt(signal))?;
        Ok(ending)
    }

    /// The other end has connected: from now on a signal is reported to it, too.
    pub(super) fn join(&self, wire: SessionChannel, bar: &ProgressBar) {
        let mut state = self.lock();
        (state.wire, state.bar) = (Some(wire), bar.clone());
    }

    /// Bytes that have gone by.
    pub(super) fn passed(&self, bytes: u64) {
        // Relaxed: a number for people.
        self.0.passed.store(bytes, Ordering::Relaxed);
    }

    /// The transfer has ended; a signal has no effect any more.
    pub(super) fn claim(&self) {
        self.lock().is_claimed = true;
    }

    fn lock(&self) -> MutexGuard<'_, EndingState> {
        self.0.state.lock()
    }

    /// Ends the process, unless it ends already.
    fn interrupt(&self, signal: &str) {
        let mut state = self.lock();
        if state.is_claimed {
            return;
        }
        state.bar.finish_and_clear();
        let why = anyhow!("interrupted by {signal}");
        let line = match &mut state.wire {
            None => format!("{why} before the other end was there"),
            Some(wire) => {
                wire.give_up(&why);
                let passed = self.0.passed.load(Ordering::Relaxed);
                format!("{:#}", early(why, passed))
            }
        };
        // The state stays locked: a transfer that ends now waits, and prints no second outcome.
        outcome::exit(signals::exit_status(signal), format_args!("rdma-conn: {line}"));
    }
}
