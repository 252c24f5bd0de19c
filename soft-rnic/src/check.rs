//! Checks of a program: what it does wrong with buffers, queues and objects, and what no status
//! tells it.
//!
//! A process is checked if [`VARIABLE`] is set when it opens a device; it then reports on standard
//! error, and at its exit sums up.
//!
//! **Contract: a process that is not checked pays a branch for a message that is delivered, and none in
//! a post, a fast path or a poll.** Posts of a checked one are other functions, which queue each
//! request before any is executed, as those of a traced one.
//!
//! 1. `checker` finds out whether the process is checked, knows the objects that are alive, and
//!    reports at exit;
//! 2. the device tells of each request: at its post a `fingerprint` of its buffer is taken, which
//!    is compared when it is executed, and when its completion is polled (`queue` keeps what is
//!    outstanding until then); over the network, a packet that is sent again has to carry what it has
//!    carried before (`packets`);
//! 3. `claims` knows which bytes belong to the device meanwhile: where it writes to bytes that
//!    another request names, too, a change tells nothing;
//! 4. `completions` counts the completions that a completion queue could get;
//! 5. `report` writes findings, which are mistakes, and notes, which may be meant;
//! 6. `record` keeps what is reported for the command that waits for the program;
//! 7. `objects::misuse` says why requests fail, and calls are refused.

pub(crate) mod checker;
pub(crate) mod claims;
pub(crate) mod completions;
pub(crate) mod fingerprint;
pub(crate) mod packets;
pub(crate) mod queue;
mod record;
pub(crate) mod report;

pub use record::{CheckedProcess, MAX_RECORD, RECORD, read};

/// The environment variable that has a process checked: `report`; `fail`, to end with
/// [`STATUS`] if there are findings; or `strict`, if there are findings or notes.
pub const VARIABLE: &str = "RDMA_CONN_SOFT_CHECK";

/// The exit status of a process with findings, where that was asked for.
pub const STATUS: i32 = 99;
