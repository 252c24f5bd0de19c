//! Seeded mode: posts only queue, and one work request executes at a time, in an
//! order drawn from a seed.
//!
//! A simulated device is a device like any other, with three differences. A post
//! queues; [`Simulation::step`] executes one request of one queue pair. Time is
//! virtual: it advances with the steps, and jumps to the next deadline when
//! nothing else can happen. Faults are drawn from the seed, too.
//!
//! Polling a completion queue runs a few steps first, and waiting for an event
//! runs as many as it takes, so that the polling loops of a program make progress
//! without further calls, in one thread, and the same way for the same seed.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use rustix::io::Errno;

use crate::counters::Counters;
use crate::engine::execution::Execution;
use crate::engine::responder::ResponderSession;
use crate::errno;
use crate::event::EventQueue;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::device::DEVICES;
use crate::objects::state::{Device, ExecutionMode, Qp, Sq};
use crate::queues::outcome::WqeOutcome;
use crate::queues::pending::PendingWqes;
use crate::queues::qp_state::QueuePairState;
use crate::queues::wqe::SqOp;
use crate::reason::Cause;
use crate::timing::simulation::{Faults, SimulationState};

/// Time that a thread which drives a device sleeps where nothing can happen: at least, and at most.
#[cfg(feature = "simulation")]
const SHORTEST_IDLE_NS: u64 = 5_000;
#[cfg(feature = "simulation")]
const LONGEST_IDLE_NS: u64 = 1_000_000;

/// A simulated device, listed by [`table`](crate::table) while this value lives.
/// Contexts that are open stay usable after it is dropped.
///
/// ```
/// use soft_rnic::{Faults, Simulation};
///
/// let simulation = Simulation::new(42, Faults::default());
/// assert!(simulation.name().starts_with("sim-"));
/// assert!(!simulation.step()); // nothing was posted
/// ```
#[derive(Debug)]
pub struct Simulation {
    name: String,
    device: Arc<Device>,
}

impl Simulation {
    /// A device of its own, whose schedule and faults follow from `seed`.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Simulation {
        static ORDINAL: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only has to be unique.
        let ordinal = ORDINAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("sim-{ordinal}");
        let device = Device::new(
            &name,
            ordinal,
            ExecutionMode::Simulated(SimulationState::new(seed, faults)),
        );
        device.network.set(seed, faults.network);
        DEVICES.lock().push(Arc::clone(&device));
        Simulation { name, device }
    }

    /// The name by which the device is listed; unique in the process.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Lets one event happen: a work request is tried, or a deadline passes. False if nothing can
    /// happen until something is posted.
    pub fn step(&self) -> bool {
        step(&self.device)
    }

    /// Makes steps until `is_over`, in a thread of a world: at once where something can happen, at
    /// the next deadline, or after a while where something may have been posted.
    #[cfg(feature = "simulation")]
    pub fn drive(&self, is_over: &core::sync::atomic::AtomicBool) {
        let mut idle_ns = SHORTEST_IDLE_NS;
        // Relaxed: a flag that guards no memory.
        while !is_over.load(Ordering::Relaxed) {
            if self.step() {
                idle_ns = SHORTEST_IDLE_NS;
                continue;
            }
            let left = self.device.timer.next().map(|at| at.saturating_sub(self.now_ns()));
            host::time::sleep(core::time::Duration::from_nanos(
                left.unwrap_or(idle_ns).min(idle_ns),
            ));
            idle_ns = LONGEST_IDLE_NS.min(2 * idle_ns);
        }
    }

    /// Objects that exist on the device, by kind: none when all of its users have ended.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn left(&self) -> Vec<(&'static str, usize)> {
        self.device.left()
    }

    /// Virtual nanoseconds since the simulation began.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.device.sim().map_or(0, SimulationState::now)
    }

    /// Statistics of the device.
    #[must_use]
    pub fn stats(&self) -> Counters {
        self.device.counters()
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        DEVICES.lock().retain(|device| !Arc::ptr_eq(device, &self.device));
    }
}

/// Up to three steps of a simulated device, as a poll takes its time.
#[cold]
pub(crate) fn steps_before_poll(device: &Arc<Device>) {
    let Some(sim) = device.sim() else { return };
    // In a world, a thread of its own drives the device.
    if host::is_in_world() {
        return;
    }
    for _ in 0..sim.below(4) {
        step(device);
    }
}

/// Before an event is taken. On a simulated device a descriptor that blocks makes
/// steps until the event is there, or fails with `EAGAIN` when it cannot happen, because nothing is
/// left to happen; one that does not block makes as many as a poll. On other devices the kernel
/// waits.
pub(crate) fn steps_before_event<T>(
    device: &Arc<Device>,
    events: &EventQueue<T>,
) -> Result<(), Errno> {
    if device.sim().is_some() && events.is_nonblocking() {
        steps_before_poll(device);
        return Ok(());
    }
    while device.sim().is_some() && !host::is_in_world() && events.is_empty() {
        if !step(device) {
            return Err(errno::EAGAIN);
        }
    }
    Ok(())
}

fn step(device: &Arc<Device>) -> bool {
    let Some(sim) = device.sim() else { return false };
    let _one_at_a_time = sim.stepping.lock();
    let now = sim.advance();
    while let Some((qpn, token)) = device.timer.pop_due(now) {
        device.expire(qpn, token);
    }
    let runnable: Vec<_> = device.qps.all().into_iter().filter(|qp| qp.is_runnable()).collect();
    if runnable.is_empty() {
        return next_deadline(device, sim);
    }
    let qp = &runnable[sim.below(runnable.len() as u64) as usize];
    let mut deferred = DeferredWork::default();
    qp.step(sim, &mut deferred);
    deferred.run();
    true
}

/// Nothing can run: time jumps to the next deadline, if there is one.
fn next_deadline(device: &Arc<Device>, sim: &SimulationState) -> bool {
    let Some(at) = device.timer.next() else { return false };
    // In a world, time passes for all of its threads.
    if host::is_in_world() {
        return false;
    }
    sim.now.fetch_max(at, Ordering::Relaxed);
    if let Some((qpn, token)) = device.timer.pop_due(sim.now()) {
        device.expire(qpn, token);
    }
    true
}

impl Qp {
    /// Reports whether the request at the head can be tried.
    fn is_runnable(&self) -> bool {
        let sq = self.sq.lock();
        let state = self.state();
        let runs =
            state == QueuePairState::Rts || (state == QueuePairState::Sqd && sq.requester.started);
        runs && !sq.pending.is_empty() && sq.requester.waits.is_none()
    }

    fn step(self: &Arc<Qp>, sim: &SimulationState, deferred: &mut DeferredWork) {
        let mut sq = self.sq.lock();
        if sim.strikes(sim.faults.qp_death) {
            sq.counters.faults += 1;
            return self.die(Cause::DEVICE, deferred);
        }
        // Without this fault, nothing is drawn: schedules stay what they were.
        if sim.faults.late_read > 0.0 && sim.strikes(sim.faults.late_read) {
            sq.counters.faults += u64::from(self.overtake(&mut sq, deferred));
            return;
        }
        self.run_pending(&mut sq, deferred, true);
    }

    /// Executes the request that may overtake the READs at the head; returns true if there was
    /// such a request, and it succeeded. Where it did not, it will be tried in its turn.
    fn overtake(self: &Arc<Qp>, sq: &mut Sq, deferred: &mut DeferredWork) -> bool {
        let reads = u32::from(sq.requester.max_rd_atomic);
        let Some(n) = overtaker(&sq.pending, reads) else { return false };
        if !self.transport.is_reliable() || sq.remote.is_some() {
            return false;
        }
        self.resolve_peer(sq);
        let Sq { requester, pending, peer, scratch, .. } = sq;
        let Some(request) = pending.nth(n) else { return false };
        let (mut session, mut execution) =
            (peer.as_ref().map(ResponderSession::open), Execution::new());
        let before = (requester.started, requester.rnr_left);
        let outcome = self.execute_any(requester, &mut session, &mut execution, scratch, &request);
        (requester.started, requester.rnr_left) = before;
        deferred.append(execution.finish());
        if outcome == WqeOutcome::Done {
            pending.mark_ahead(n);
        }
        outcome == WqeOutcome::Done
    }
}

/// The first request that is neither a READ nor executed, if it has only READs before it
/// that are in flight, and no fence.
fn overtaker(pending: &PendingWqes, reads: u32) -> Option<u32> {
    let mut overtaken = 0;
    for n in 0..pending.len() {
        let wqe = pending.nth(n)?.wqe;
        match wqe {
            _ if wqe.ahead => {}
            _ if wqe.op == SqOp::Read && overtaken < reads => overtaken += 1,
            // The key that one invalidates may be that of the READs.
            _ if wqe.op.is_local() || wqe.invalidates => return None,
            _ if wqe.op.is_response() || wqe.fence || overtaken == 0 => return None,
            _ => return Some(n),
        }
    }
    None
}
