//! Times from which on processes and ends do not answer.

use std::sync::Arc;
use std::time::Instant;

use host::sync::Mutex;
use host::time;

/// The time from which on a process, or an end, does not answer any more, once it has come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Silence(Arc<Mutex<Option<Instant>>>);

impl Silence {
    /// It begins now, unless it has begun.
    pub(crate) fn begin(&self) {
        let now = time::now();
        self.0.lock().get_or_insert(now);
    }

    pub(crate) fn since(&self) -> Option<Instant> {
        *self.0.lock()
    }
}
