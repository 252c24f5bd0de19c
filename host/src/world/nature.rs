//! The configuration of a world, and its report.

use std::time::Duration;

use crate::fault::Plant;

/// A part of a world that fails as one: a process, or a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeId(pub(super) u32);

impl NodeId {
    /// The one that the program runs in.
    pub const FIRST: NodeId = NodeId(0);

    /// Its number, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Scheduling and faults of a world. All numbers are drawn from its seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nature {
    /// Each thread has a processor of its own: points take next to no time, and a thread that a
    /// device keeps waiting for what its calls cost is not in the way of others.
    pub own_processors: bool,
    /// At one of so many points another thread runs next.
    pub switch_one_in: u64,
    /// One of so many threads that could go on has no processor for a while; 0 is none.
    pub stall_one_in: u64,
    /// The longest such while, in nanoseconds.
    pub stall_ns: u64,
    /// At one of so many points the clock jumps forward; 0 is never.
    pub jump_one_in: u64,
    /// The longest such jump, in nanoseconds.
    pub jump_ns: u64,
    /// One of so many calls that need memory, a descriptor or a thread gets none; 0 is none.
    pub short_one_in: u64,
    /// The same of posts to queues.
    pub short_posts_one_in: u64,
    /// One of so many waits for descriptors is interrupted, as by a signal, and one of so many parks
    /// ends early; 0 is none.
    pub spurious_one_in: u64,
    /// A fault that tests plant into the code.
    pub plant: Option<Plant>,
}

impl Default for Nature {
    fn default() -> Nature {
        Nature {
            own_processors: false,
            switch_one_in: 4,
            stall_one_in: 0,
            stall_ns: 0,
            jump_one_in: 0,
            jump_ns: 0,
            short_one_in: 0,
            short_posts_one_in: 0,
            spurious_one_in: 0,
            plant: None,
        }
    }
}

/// Limits of a world that does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Points.
    pub steps: u64,
    /// Virtual time.
    pub time: Duration,
    /// The last events that a failure shows.
    pub events: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { steps: 5_000_000, time: Duration::from_secs(3600), events: 60 }
    }
}

/// A world that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Points that threads came to.
    pub steps: u64,
    /// Virtual time that has passed.
    pub time: Duration,
    /// Hash of all decisions: the same for the same seed.
    pub hash: u64,
    /// The last events, oldest first.
    pub events: Vec<String>,
}

/// A world's failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The panic's message, or the limit that was exceeded.
    pub reason: String,
    /// Threads that had not ended, and what they waited for.
    pub threads: Vec<String>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)?;
        self.threads.iter().try_for_each(|thread| write!(f, "\n    {thread}"))
    }
}
