//! What plays of all kinds have in common: contents of messages, and times within which calls return.

use std::time::Duration;

use host::time;
use rdma_conn::device::Device;
use rdma_conn::join;

use crate::case::Case;
use crate::setup::Tuned;

pub(crate) fn join_one<P: Tuned>(
    inbox: &mut P::Receiver,
    (near, far): (&Device, &Device),
    config: &P::Config,
) -> Result<P::Sender, rdma_conn::error::ConnectError> {
    join::<P>(inbox, near, far, config)
}

/// How long a wait may take beyond its time: threads are slow in some worlds.
fn slack(case: &Case) -> Duration {
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
