//! What plays of all kinds have in common: contents of messages, and times within which calls return.

use std::time::Duration;

use host::time;
use rdma_conn::error::CloseReason;

use crate::case::{Case, End};

/// Whether a sender may end for this reason.
pub(crate) fn may_end(case: &Case, at: usize, reason: &CloseReason) -> bool {
    use CloseReason::{Closed, Device, PeerClosed, PeerLost};
    let is_receivers =
        case.receiver_is_dropped && matches!(reason, Closed | PeerClosed { .. } | PeerLost(_));
    let is_devices = case.may_fail() && matches!(reason, PeerLost(_) | Device(_));
    // It tells the sender why.
    let is_of_shortage = case.short_one_in > 0 && matches!(reason, Closed | PeerClosed { .. });
    let is_of_death = case.may_die(at) && matches!(reason, PeerLost(_));
    is_receivers || is_devices || is_of_shortage || is_of_death
}

/// Whether a receiver may hear of the end of a sender otherwise than by its goodbye.
pub(crate) fn may_be_lost(case: &Case, at: usize) -> bool {
    case.may_fail() || case.may_die(at) || case.ends[at] == End::Drop
}

/// Time by which a wait may be late: threads are slow in some worlds.
pub(crate) fn slack(case: &Case) -> Duration {
    Duration::from_millis(50)
        + us(40 * u64::from(case.stall_one_in > 0) * case.stall_us)
        + us(100 * u64::from(case.jump_one_in > 0) * case.jump_us)
}

/// The longest time from the end of a peer to the error at this end: a probe, its retries, and the last one of
/// what went before.
pub(crate) fn detection(case: &Case) -> Duration {
    case.settings.keepalive() + 3 * case.settings.retry_time() + slack(case)
}

/// Calls what has a timeout, and checks that it keeps it.
pub(crate) fn timed<T>(case: &Case, what: &str, timeout: Duration, call: impl FnOnce() -> T) -> T {
    let start = time::now();
    let done = call();
    let took = time::since(start);
    assert!(took <= timeout + slack(case), "{what} took {took:?}, its timeout was {timeout:?}");
    done
}

pub(crate) const fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// The bytes of a message.
pub(crate) fn content(sender: usize, n: u64, length: usize) -> Vec<u8> {
    let first = (sender as u64).wrapping_mul(97) ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..length as u64)
        .map(|at| (first.wrapping_add(at.wrapping_mul(0x0100_0193)) >> 11) as u8)
        .collect()
}
