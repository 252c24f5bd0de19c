//! The state of a send queue with a peer in another process.

use std::sync::Arc;

use crate::peers::process::pair::ProcessPair;
use crate::peers::process::regions::Regions;

/// The state of a send queue with a peer in another process.
#[derive(Debug)]
pub(crate) struct RemotePeer {
    pub(crate) slot: u32,
    pub(crate) pair: Option<Arc<ProcessPair>>,
    /// The peer's, as we have seen it; 0 is "not looked yet".
    pub(crate) generation: u32,
    /// The one that has carried out something for this connection, which then uses no other: it
    /// would not be at the next PSN.
    pub(crate) bound: u32,
    /// Number of times that this queue pair has been connected.
    pub(crate) incarnation: u8,
    /// The PSN of the first request.
    pub(crate) psn: u32,
    /// The number of the next message.
    pub(crate) next: u32,
    /// Requests from the head of the queue on that were sent.
    pub(crate) sent: u32,
    /// The peer's regions that were named.
    pub(crate) regions: Regions,
}
