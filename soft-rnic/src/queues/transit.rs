//! Messages that have left their queue pair, and that others overtake.

use crate::queues::address::DatagramAddress;
use crate::queues::wqe::Wqe;

/// A queue pair's messages that have met a faulty network.
#[derive(Debug, Default)]
pub(crate) struct FaultyTransit {
    /// All of them.
    pub(crate) sent: u64,
    /// Those that are still under way, in the order of their posts.
    pub(crate) late: Vec<OvertakenMessage>,
}

/// A message that others overtake.
#[derive(Debug)]
pub(crate) struct OvertakenMessage {
    pub(crate) wqe: Wqe,
    pub(crate) to: Option<(DatagramAddress, u32)>,
    pub(crate) psn: u32,
    pub(crate) payload: Box<[u8]>,
    /// Messages that still go before it.
    pub(crate) overtakers: u32,
    /// Names the deadline at which it arrives anyway.
    pub(crate) token: u64,
}
