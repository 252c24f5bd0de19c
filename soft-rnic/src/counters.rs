//! Statistics of a device.

use core::ops::AddAssign;

/// Counts of a device's work so far. They are kept per queue pair, under the lock that an execution
/// holds anyway, and added up on request.
///
/// ```
/// let before = soft_rnic::counters();
/// // … traffic …
/// assert!(soft_rnic::counters().requests >= before.requests);
/// ```
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Send-queue work requests that were executed to their end, failures
    /// included, flushed ones not.
    pub requests: u64,
    /// Payload bytes of those that succeeded.
    pub bytes: u64,
    /// Times a responder had no receive buffer ready (injected ones included).
    pub rnr_naks: u64,
    /// Requests sent again after a time without response, or, on the network, because something was
    /// lost.
    pub retries: u64,
    /// Messages of unreliable transports that no queue pair received: no receive
    /// request was posted or it was too short, the key was wrong, the destination did
    /// not exist, or they were lost on purpose. One to a multicast group is dropped if no
    /// member received it. Messages that reached another process
    /// are not counted here: that process counts them in its `missed`.
    pub dropped: u64,
    /// Messages of unreliable transports that other processes have sent to this one, and
    /// that no queue pair here received.
    pub missed: u64,
    /// Messages to multicast groups that another process did not get because the ring to it was
    /// full, and it had not drained it for a while; one for each such process, whether others got
    /// the message or not.
    pub overflowed: u64,
    /// Those of `dropped` that were lost on purpose.
    pub lost: u64,
    /// Faults that a simulation injected, or a [plan](crate::faults).
    pub faults: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.rnr_naks += other.rnr_naks;
        self.retries += other.retries;
        self.dropped += other.dropped;
        self.missed += other.missed;
        self.overflowed += other.overflowed;
        self.lost += other.lost;
        self.faults += other.faults;
    }
}

/// The packets of a device on the network since it is there. In brackets is what the kernel's
/// soft-RoCE calls the same.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketCounters {
    /// Packets that the system has taken to send them (`sent_pkts`).
    pub sent: u64,
    /// Packets that were received, those that were dropped among them (`rcvd_pkts`).
    pub received: u64,
    /// Request packets that were executed before (`duplicate_request`).
    pub duplicates: u64,
    /// Request packets before which one was missing (`out_of_seq_request`).
    pub out_of_sequence: u64,
    /// Request packets that have met no receive request (`send_rnr_err`).
    pub not_ready: u64,
    /// Dropped: the ICRC did not fit.
    pub bad_icrc: u64,
    /// Dropped: for no queue pair here, of another partition, or not from the queue pair's peer.
    pub strangers: u64,
    /// Dropped: they were no packets of RoCE.
    pub malformed: u64,
    /// The socket had no room for them.
    pub overflowed: u64,
    /// Packets for queue pairs that arrived marked: they had met congestion. (This name, and those
    /// of the next three, are mlx5's.)
    pub np_ecn_marked_packets: u64,
    /// Congestion notifications that were sent, at most one for each queue pair in 50 µs.
    pub np_cnp_sent: u64,
    /// Congestion notifications that arrived for a reliable connection.
    pub rp_cnp_handled: u64,
    /// Congestion notifications that arrived for other queue pairs, or for one that has failed.
    pub rp_cnp_ignored: u64,
}
