//! Deadlines: of receivers that were not ready, and of responses that did not
//! come.
//!
//! One thread for a device, started when the first deadline is armed; a program
//! that never meets one has no thread, and no clock is read for it. A simulated
//! device has the same deadlines in virtual time and no thread at all.

use core::cmp::Reverse;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BinaryHeap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::after::After;
use crate::device::Device;

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
    deadlines: Mutex<BinaryHeap<Deadline>>,
    changed: Condvar,
    tokens: AtomicU64,
    started: OnceLock<Instant>,
}

impl Timer {
    /// The next deadline leaves, if its time has come.
    pub(crate) fn pop_due(&self, now: u64) -> Option<(u32, u64)> {
        let mut deadlines = self.deadlines.lock();
        match deadlines.peek() {
            Some(Reverse((at, _, _))) if *at <= now => {}
            _ => return None,
        }
        deadlines.pop().map(|Reverse((_, token, qpn))| (qpn, token))
    }

    /// When the next deadline is.
    pub(crate) fn next(&self) -> Option<u64> {
        self.deadlines.lock().peek().map(|Reverse((at, _, _))| *at)
    }
}

impl Device {
    /// Arms a deadline `delay` nanoseconds from now, none for `None`; the token
    /// names it.
    #[cold]
    pub(crate) fn arm(self: &Arc<Device>, qpn: u32, delay: Option<u64>) -> u64 {
        // Relaxed: only has to be unique.
        let token = self.timer.tokens.fetch_add(1, Ordering::Relaxed);
        if let Some(delay) = delay {
            self.arm_again(qpn, token, delay);
        }
        token
    }

    /// Arms a deadline that has come too early once more.
    #[cold]
    pub(crate) fn arm_again(self: &Arc<Device>, qpn: u32, token: u64, delay: u64) {
        let now = match self.sim() {
            Some(sim) => sim.now(),
            None => self.real_now(),
        };
        self.timer.deadlines.lock().push(Reverse((now + delay, token, qpn)));
        self.timer.changed.notify_one();
    }

    /// Nanoseconds since the device's timer was started; starts it if need be.
    fn real_now(self: &Arc<Device>) -> u64 {
        let epoch = self.timer.started.get_or_init(|| {
            let device = Arc::downgrade(self);
            let epoch = Instant::now();
            let spawned = std::thread::Builder::new()
                .name("soft-rnic-timer".into())
                .spawn(move || run(&device, epoch));
            // Without a thread the deadlines never come, as with infinite timers.
            drop(spawned);
            epoch
        });
        epoch.elapsed().as_nanos() as u64
    }

    /// Lets the queue pair go on whose deadline this was, if it still waits for it.
    pub(crate) fn expire(self: &Arc<Device>, qpn: u32, token: u64) {
        if qpn == crate::distance::ALL {
            return crate::distance::timed(self);
        }
        let Some(qp) = self.qps.get(qpn) else { return };
        let mut after = After::default();
        qp.expired(token, &mut after);
        after.run();
    }
}

/// The timer's thread. It keeps the device, which is listed for ever, while it
/// waits.
fn run(device: &Weak<Device>, epoch: Instant) {
    let _serving = crate::process::Serving::begin();
    while let Some(device) = device.upgrade() {
        let now = epoch.elapsed().as_nanos() as u64;
        if let Some((qpn, token)) = device.timer.pop_due(now) {
            device.expire(qpn, token);
            continue;
        }
        let mut deadlines = device.timer.deadlines.lock();
        match deadlines.peek() {
            Some(Reverse((at, _, _))) => {
                let until = epoch + Duration::from_nanos(*at);
                device.timer.changed.wait_until(&mut deadlines, until);
            }
            None => device.timer.changed.wait(&mut deadlines),
        }
    }
}
