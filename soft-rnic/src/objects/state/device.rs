//! Parts of a device that refer to no object made on it.

use core::sync::atomic::AtomicUsize;
use std::sync::Arc;

use crate::peers::wire::state::RoceWire;
use crate::timing::times::DistanceState;

/// Time at which a device does what is posted.
#[derive(Debug)]
pub(crate) enum ExecutionMode {
    /// Inside the post.
    Synchronous,
    /// In steps, in an order drawn from a seed.
    Simulated(crate::timing::simulation::SimulationState),
    /// At the time when a round trip would be over.
    Distant(DistanceState),
    /// As packets come: the peers are reached over UDP.
    Wired(Box<RoceWire>),
}

/// Numbers of existing objects: those of kinds that have a limit, contexts and channels.
#[derive(Debug, Default)]
pub(crate) struct Population {
    /// Contexts that the program has not closed.
    pub(crate) contexts: AtomicUsize,
    pub(crate) channels: AtomicUsize,
    pub(crate) pds: AtomicUsize,
    pub(crate) cqs: AtomicUsize,
    pub(crate) srqs: AtomicUsize,
    pub(crate) ahs: AtomicUsize,
    pub(crate) xrcds: AtomicUsize,
    /// Bytes of device memory.
    pub(crate) dm_bytes: Arc<AtomicUsize>,
    pub(crate) mws: AtomicUsize,
    pub(crate) mrs: AtomicUsize,
}
