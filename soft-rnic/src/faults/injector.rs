//! The plan of this process, if its environment has one.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use host::sync::OnceLock;

use crate::per_process::{PerProcess, variable};

use super::VARIABLE;
use super::plan::{FaultPlan, SeededPlan};
use super::queue::QueueFaults;

/// The plan, and how many queue pairs it has been applied to.
#[derive(Debug)]
pub(crate) struct Injector {
    of: Arc<SeededPlan>,
    created: AtomicU32,
}

impl Injector {
    fn new(plan: FaultPlan, seed: u64) -> Injector {
        Injector { of: Arc::new(SeededPlan::new(plan, seed)), created: AtomicU32::new(0) }
    }

    pub(crate) fn plan(&self) -> &FaultPlan {
        &self.of.plan
    }

    /// The faults of a new queue pair; none where the plan has none of requests.
    pub(crate) fn queue(&self) -> Option<QueueFaults> {
        // Relaxed: a number that guards no memory.
        let ordinal = self.created.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.plan().strikes_requests().then(|| QueueFaults::new(Arc::clone(&self.of), ordinal))
    }
}

/// The injector of the process, if it has a plan that can be read.
static INJECTOR: PerProcess<Option<Arc<Injector>>> = PerProcess::new();

/// Says what the plan has done. A child of fork that has opened no device has nothing to say.
extern "C" fn at_exit() {
    let injector = INJECTOR.get().flatten();
    if let Some(injector) = injector.filter(|injector| injector.plan().strikes_requests()) {
        let line = injector.of.tally.line(injector.plan().loss > 0.0);
        write(&format!("rdma-conn faults {}: {line}", std::process::id()));
    }
}

/// The injector of this process, if its environment asks for faults.
///
/// A plan that cannot be read is reported on standard error, once: the program runs without. So is
/// a seed that had to be drawn.
pub(crate) fn injector() -> Option<Arc<Injector>> {
    // A child of fork has its parent's handler.
    static REGISTERED: OnceLock<()> = OnceLock::new();
    let text = variable(VARIABLE)?;
    INJECTOR.get_or_make(|_| {
        // SAFETY: the function stays: the library is never unloaded.
        REGISTERED.get_or_init(|| _ = unsafe { libc::atexit(at_exit) });
        read(&text.to_string_lossy()).map(Arc::new)
    })
}

#[cold]
fn read(text: &str) -> Option<Injector> {
    let plan: FaultPlan = match text.parse() {
        Ok(plan) => plan,
        Err(error) => {
            report(&format!("no faults are injected: {VARIABLE}: {error}"));
            return None;
        }
    };
    let seed = plan.seed().unwrap_or_else(|| {
        let seed = draw_seed();
        if plan.draws() {
            report(&format!("faults with seed {seed}"));
        }
        seed
    });
    Some(Injector::new(plan, seed))
}

fn report(what: &str) {
    write(&format!("soft0: {what}"));
}

/// Writes one line, whole.
fn write(line: &str) {
    use std::io::Write;
    // Standard error may be closed.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// A random seed, short enough to be typed.
#[must_use]
pub fn draw_seed() -> u64 {
    host::random::entropy() >> 32
}
