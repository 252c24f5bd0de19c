//! The device's thread, which takes packets while no thread of the program polls, and what it does
//! for a process that exits.

use core::sync::atomic::{AtomicU32, Ordering};
use host::sync::OnceLock;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::progress::{AWAY, LONGEST_AWAY, LookScope, progress};
use crate::clock;
use crate::objects::state::Device;
use crate::peers::wire::state::{PacketCounts, RoceWire};

/// Longest time that it waits for packets before it looks around.
const WAIT: Duration = Duration::from_secs(1);
/// Time for which a process that exits answers repeated requests after its last acknowledgement: a
/// peer that has not had it asks again after two round trips, and once more after twice as long.
const LINGER_NS: u64 = 20_000_000;
/// The same where the network loses packets. The kernel's soft-RoCE asks again only after its
/// timeout, which is 67 ms in rdma-core's programs, and with 7 retries it asks for ever.
const LINGER_LOSSY_NS: u64 = 200_000_000;
/// Longest time that an exit takes for that, and time between two looks whether it is done.
const LONGEST: Duration = Duration::from_millis(500);
const GLANCE: Duration = Duration::from_micros(100);

impl Device {
    /// Starts the device's thread, once.
    pub(crate) fn start_wire_thread(self: &Arc<Device>) {
        let Some(wire) = self.wire() else { return };
        wire.thread.get_or_init(|| {
            // A world's device goes with its world.
            if !wire.port.is_in_world() {
                settle_at_exit(self);
            }
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
            let device = Arc::downgrade(self);
            // Without a thread, packets are taken by those that poll.
            host::thread::spawn("soft-rnic-wire", move || run(&device)).ok().and(wake)
        });
    }
}

impl RoceWire {
    /// Something is left to be done that no packet will be a reason for: the device's thread is to
    /// look, unless it does so soon anyway.
    #[cold]
    pub(super) fn leave(&self) {
        // Relaxed: it is true while the thread is about to look.
        if !self.is_watched.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    pub(super) fn wake(&self) {
        if let Some(Some(wake)) = self.thread.get() {
            let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
        }
    }
}

fn run(device: &Weak<Device>) {
    let (mut seen, mut away) = (0, AWAY);
    while let Some(device) = device.upgrade() {
        let Some(wire) = device.wire() else { return };
        // Acquire: of a thread that exits.
        if wire.exit.is_asked.load(Ordering::Acquire) {
            linger(&device, wire);
            wire.exit.is_done.store(true, Ordering::Release);
        }
        // Relaxed: as in `look`.
        let polls = wire.polls.load(Ordering::Relaxed);
        // A thread that polls takes packets itself: it must not find the lock taken.
        let Some(rx) = (polls == seen).then(|| wire.rx.try_lock()).flatten() else {
            seen = polls;
            // Relaxed, as below: only this thread sets it, and clears it under the lock.
            wire.is_watched.store(true, Ordering::Relaxed);
            host::time::sleep(away);
            away = LONGEST_AWAY.min(2 * away);
            continue;
        };
        away = AWAY;
        wire.is_watched.store(false, Ordering::Relaxed);
        // It is there once the thread that has started this one has said so: soon.
        let wake = wire.thread.wait().as_ref();
        // What is left from here on asks again.
        wake.map(|wake| rustix::io::read(wake, &mut [0; 8]));
        let rx = rx.give_way();
        let has_more = progress(&device, wire, rx, LookScope::Whole { may_defer: false });
        let full = wire.full_port(&wire.tx.lock());
        if full.is_some() || !has_more {
            // One that is made after this wakes.
            let groups = wire.memberships.ready.get();
            let _ = wire.port.wait_or(full, [wake, groups], WAIT);
        }
    }
}

/// Returns the time without an answer after which a process may exit.
fn quiet_ns(counts: &PacketCounts) -> u64 {
    if counts.tell_of_loss() { LINGER_LOSSY_NS } else { LINGER_NS }
}

/// Takes received packets until nothing has been answered for a while.
fn linger(device: &Arc<Device>, wire: &RoceWire) {
    let begun = clock::now();
    loop {
        progress(device, wire, wire.rx.lock(), LookScope::Own);
        // Relaxed: this thread has stored it, or one before it.
        let answered = wire.answered_ns.load(Ordering::Relaxed);
        let now = clock::now();
        let is_over = now.saturating_sub(begun) > LONGEST.as_nanos() as u64;
        if now >= answered.saturating_add(quiet_ns(&wire.counts)) || is_over {
            return;
        }
        let _ = wire.port.wait(None, Duration::from_millis(1));
    }
}

/// The process with the threads that take packets.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// A device with a thread. A process that exits finds it without a lock; devices on the network
/// stay until then.
#[derive(Debug)]
struct Threaded {
    device: Arc<Device>,
    /// The process that the thread is of.
    process: u32,
    next: OnceLock<Box<Threaded>>,
}

/// All of them, in the order in which they were started.
static THREADED: OnceLock<Box<Threaded>> = OnceLock::new();

/// Has this process settle what the device owes when it exits; a child of fork owes nothing.
fn settle_at_exit(device: &Arc<Device>) {
    let process = std::process::id();
    let device = Arc::clone(device);
    let (mut last, mut entry) =
        (&THREADED, Box::new(Threaded { device, process, next: OnceLock::new() }));
    while let Err(refused) = last.set(entry) {
        entry = refused;
        last = last.get().map_or(last, |it| &it.next);
    }
    // Relaxed: a number.
    if PROCESS.swap(process, Ordering::Relaxed) == 0 {
        // SAFETY: the function stays: the library is never unloaded.
        let _ = unsafe { libc::atexit(at_exit) };
    }
}

extern "C" fn at_exit() {
    let process = std::process::id();
    if PROCESS.load(Ordering::Relaxed) == process {
        settle_all(|threaded| threaded.process == process);
    }
}

/// Asks the threads of these devices, and waits for them, but not for ever: the thread that exits
/// may have been interrupted by a signal while it held any lock, so it takes none itself.
fn settle_all(is_asked: impl Fn(&Threaded) -> bool) {
    let all = core::iter::successors(THREADED.get(), |it| it.next.get());
    let wires = all.filter(|it| is_asked(it)).filter_map(|it| it.device.wire());
    let wires = wires.filter(|wire| matches!(wire.thread.get(), Some(Some(_))));
    for wire in wires.clone() {
        wire.exit.is_asked.store(true, Ordering::Release);
        wire.wake();
    }
    let is_done = || wires.clone().all(|wire| wire.exit.is_done.load(Ordering::Acquire));
    let mut waited = Duration::ZERO;
    while !is_done() && waited < LONGEST {
        host::time::sleep(GLANCE);
        waited += GLANCE;
    }
}

#[cfg(test)]
mod tests;
