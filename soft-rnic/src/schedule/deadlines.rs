//! The timer's thread, and the queue pairs that it lets go on.

use core::cmp::Reverse;
use core::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::deferred_work::DeferredWork;
use crate::objects::state::Device;

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

    /// Lets the queue pair of this deadline go on, if it still waits for it.
    pub(crate) fn expire(self: &Arc<Device>, qpn: u32, token: u64) {
        if qpn == crate::schedule::distance::ALL {
            return crate::schedule::distance::timed(self);
        }
        if qpn == crate::schedule::timed_events::EVENTS {
            return crate::schedule::timed_events::raise(self, token);
        }
        crate::fabric::wire::progress::catch_up(self);
        let Some(qp) = self.qps.get(qpn) else { return };
        let mut deferred = DeferredWork::default();
        qp.expired(token, &mut deferred);
        deferred.run();
    }
}

/// The timer's thread. It keeps the device, which is listed for ever, while it
/// waits.
fn run(device: &Weak<Device>, epoch: Instant) {
    let _serving = crate::fabric::process::serving::Serving::begin();
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
