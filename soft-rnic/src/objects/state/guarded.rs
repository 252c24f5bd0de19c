//! State of queues that their locks guard, and that refers to no other object.

use crate::memory::mws::BindingEnd;
use crate::peers::process::outside::Insiders;
use crate::peers::wire::state::WireRq;
use crate::queues::recv_ring::RecvConsumer;

/// The responder's side of a queue pair, under its lock.
#[derive(Debug, Default)]
pub(crate) struct ResponderState {
    pub(crate) dest_qpn: u32,
    /// The peer's GID is this device's.
    pub(crate) peer_is_here: bool,
    /// The PSN expected next.
    pub(crate) psn: u32,
    pub(crate) access: u32,
    pub(crate) min_rnr_timer: u8,
    pub(crate) max_dest_rd_atomic: u8,
    /// The Q_Key that datagrams have to carry.
    pub(crate) qkey: u32,
    /// Changes whenever the queue pair is connected anew.
    pub(crate) generation: u32,
    /// The number of the next message from another process.
    pub(crate) number: u32,
    /// The receive queue's consuming side (unused with a shared one).
    pub(crate) consumer: RecvConsumer,
    /// Present if the other end is reached over UDP.
    pub(crate) wire: Option<Box<WireRq>>,
}

/// Accesses under the key of a window whose binding has ended.
#[derive(Debug)]
pub(crate) struct Settling {
    pub(crate) ending: BindingEnd,
    pub(crate) insiders: Option<Insiders>,
    /// Number of times that they were looked at.
    pub(crate) looks: u32,
}
