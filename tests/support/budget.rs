//! Two budgets of retries, one of which each queue pair of a test has: no test writes a timeout or a
//! number of retries itself, and `xtask/src/budgets.rs` refuses a test that does. (One that is about the
//! retries says so in a comment, "about retries: …".)
//!
//! A machine that is busy leaves a thread without a processor for some 100 ms, and a device that
//! is software does not answer meanwhile.
#![allow(dead_code, unreachable_pub, reason = "each test crate uses a part of it")]

use std::time::Duration;

/// A requester fails after `retry_count + 1` times 4.096 µs · 2^`timeout` of silence.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    pub timeout: u8,
    pub retry_count: u8,
}

/// For a peer that lives: 8.6 s on every device. (The kernel's rxe takes 7 retries for ever.)
pub const LIVING: Budget = Budget { timeout: 19, retry_count: 3 };

/// For a peer that is silent or dead from the start, by design: 3 ms.
pub const DEAD: Budget = Budget { timeout: 8, retry_count: 2 };

/// For a peer that lives until the test ends it. `soft0` begins to count when the peer's queue pair has
/// gone, and never gives up a peer that lives; other devices tell a slow peer from a dead one by the time only.
/// There the death takes 8.6 s to show: a test with many deaths has them all at once.
pub fn mortal() -> Budget {
    let is_soft = std::env::var("RDMA_CONN_DEVICE").map_or(true, |name| name.starts_with("soft"));
    if is_soft { DEAD } else { LIVING }
}

/// Time for what a living peer has yet to do. It bounds a hang, and asserts nothing about speed.
pub const PATIENCE: Duration = Duration::from_secs(60);
