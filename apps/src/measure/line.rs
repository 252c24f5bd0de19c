//! Distance of two processors: near if they share a cache. In a virtual machine that changes while
//! it runs ([`host::processors`]); figures of near and of far processors do not compare.

use rustix::thread::{CpuSet, sched_getaffinity};

/// Nanoseconds on the way within a shared cache, at most: AMD's complexes have 20 to 60, their
/// borders 100 and more.
const NEAR_NS: f64 = 80.0;

/// The distance of two processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessorDistance {
    Near,
    Far,
}

impl ProcessorDistance {
    /// The distance of processors between which a line takes this time.
    pub(crate) fn from_line_ns(line_ns: f64) -> ProcessorDistance {
        if line_ns <= NEAR_NS { ProcessorDistance::Near } else { ProcessorDistance::Far }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ProcessorDistance::Near => "near: they share a cache",
            ProcessorDistance::Far => "far: they share no cache",
        }
    }
}

/// Nanoseconds that a line takes from one of the first two processors that this process may use to
/// the other. `None` where there is one only, or they had no time for it.
pub(crate) fn line_ns() -> Option<f64> {
    let ours = sched_getaffinity(None).ok()?;
    let mut processors = (0..CpuSet::MAX_CPU).filter(|cpu| ours.is_set(*cpu));
    let (one, other) = (processors.next()?, processors.next()?);
    host::processors::cache_line_ns([one, other])
}

#[cfg(test)]
mod tests;
