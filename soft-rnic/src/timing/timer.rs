//! Deadlines: of receivers that were not ready, and of responses that did not
//! arrive.
//!
//! One thread for a device, started when the first deadline is armed; a program
//! that never meets one has no thread, and no clock is read for it. A simulated
//! device has the same deadlines in virtual time and no thread at all.

use core::cmp::Reverse;
use core::sync::atomic::{AtomicBool, AtomicU64};
use host::sync::OnceLock;
use std::collections::BinaryHeap;
use std::time::Instant;

use host::sync::{Condvar, Mutex};

/// Time to wait after an RNR NAK, in units of 10 µs, by the code in the NAK
/// (InfiniBand specification, volume 1, table "RNR NAK timer field").
const RNR_10US: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024,
    1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// Nanoseconds that an RNR NAK with this code asks for: code 12 is 0.64 ms, and
/// code 0 is 655.36 ms.
pub(crate) fn rnr_timer_ns(code: u8) -> u64 {
    u64::from(RNR_10US[usize::from(code) % 32]) * 10_000
}

/// Nanoseconds until a response is missed: 4.096 µs · 2^code, and never for 0.
pub(crate) fn response_timeout_ns(code: u8) -> Option<u64> {
    (code != 0).then(|| 4_096 << code)
}

/// A deadline: when, which one, and of which queue pair.
type Deadline = Reverse<(u64, u64, u32)>;

/// The deadlines of a device.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    pub(crate) deadlines: Mutex<BinaryHeap<Deadline>>,
    pub(crate) changed: Condvar,
    pub(crate) tokens: AtomicU64,
    pub(crate) started: OnceLock<Instant>,
    /// The device is gone.
    pub(crate) is_over: AtomicBool,
}

impl Timer {
    /// The next deadline is removed, if it has passed.
    pub(crate) fn pop_due(&self, now: u64) -> Option<(u32, u64)> {
        let mut deadlines = self.deadlines.lock();
        match deadlines.peek() {
            Some(Reverse((at, _, _))) if *at <= now => {}
            _ => return None,
        }
        deadlines.pop().map(|Reverse((_, token, qpn))| (qpn, token))
    }

    /// Returns the time of the next deadline.
    pub(crate) fn next(&self) -> Option<u64> {
        self.deadlines.lock().peek().map(|Reverse((at, _, _))| *at)
    }
}
