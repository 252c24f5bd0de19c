//! Traces: a file in which a process keeps what it has posted to `soft0` and what became of it,
//! readable after the process was killed.
//!
//! A process writes a trace if [`VARIABLE`] names a file when it opens a device. The file is
//! mapped, and written by plain stores: what was stored before a SIGKILL is there. It has
//!
//! ```text
//!   header | log: the last LOG_RECORDS events | objects: queue pairs, receive queues, CQs
//! ```
//!
//! **Contract: what is outstanding never depends on the log**, which wraps: each queue has a table
//! with a slot for each request that it can hold, and counters of what was posted, executed,
//! completed and polled.
//!
//! 1. `tracer` finds out whether there is a trace, and `file` makes it and has blocks for objects;
//! 2. the device tells `queue` and `completions`, which have those, of each event, if the process
//!    is traced: posts are other functions then, and completion queues are looked at as those with
//!    times are, so that a process without a trace pays a branch for a message that is delivered,
//!    and none in a post, a fast path or a poll;
//! 3. [`load`] reads a file, and trusts none of its bytes.
//!
//! All is in words of 64 bits, in the processor's order. A request and a record of the log have
//! a checksum, and a word that is written last: what a killed process was writing is recognised.
//! A child of fork does not write its parent's file, but one of its own, once it opens a device.

mod block;
pub(crate) mod completions;
mod file;
pub(crate) mod layout;
pub(crate) mod queue;
mod reader;
pub(crate) mod tracer;

pub use layout::{LOG_RECORDS, MAX_FILE_BYTES, VERSION};
pub use reader::{
    Event, SharedQueue, Stage, Trace, TraceError, TracedCq, TracedQp, TracedRequest, TracedWait,
    TracedWaitReason, load, read,
};

/// Returns the time at which a process started, in the kernel's clock ticks since the machine did
/// (field 22 of `/proc/PID/stat`); `None` if there is no such process. With the number it names a
/// process for good: numbers are used again, and a program may change its name.
#[must_use]
pub fn started(process: u32) -> Option<u64> {
    let text = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // 4711 (program) S 1 …: the state is the third.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The environment variable that names the file. `%p` in the name stands for the number of the
/// process; without it, a dot and the number are appended.
pub const VARIABLE: &str = "RDMA_CONN_SOFT_TRACE";
