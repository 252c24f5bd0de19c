//! Settings of a group out of a case's, and the times that follow from them.

use std::time::Duration;

use rdma_conn::multicast::{Config, Policy};
use rdma_conn::raw::Link;

use crate::case::{RETRIES, WorldCase};
use crate::checks::{slack, us};

/// The time within which a member leaves, or gives that up; one that has finished waits as long for
/// its last writes.
pub(super) const GOODBYE: Duration = Duration::from_secs(1);

/// The longest sleep of a thread that drives a member.
pub(super) const IDLE: Duration = Duration::from_millis(1);

/// Settings of the group.
pub(super) fn config(case: &WorldCase) -> Config {
    let settings = &case.settings;
    let senders = case.senders.len() as u8;
    Config {
        members: senders + 1,
        senders,
        window: settings.window,
        message_bytes: settings.message_bytes,
        policy: match (settings.other_way, settings.batch) {
            (true, 1) => Policy::Opportunistic,
            (true, _) => Policy::OpportunisticWithNulls,
            (false, k) => Policy::Every(k),
        },
        health: health(case),
        suspect_after: suspect_after(case),
        link: Link { timeout: settings.timeout, retry_count: RETRIES, ..Link::default() },
        ..Config::default()
    }
}

/// The longest silence of a member that the others put up with. Some processes stop for longer;
/// stalls of threads add up, and never to as much.
pub(super) fn suspect_after(case: &WorldCase) -> Duration {
    match case.stop {
        Some(_) if case.stall_one_in == 0 => Duration::from_millis(200),
        _ => Config::default().suspect_after,
    }
}

/// The longest time until a member that has nothing to say shows that it lives.
fn health(case: &WorldCase) -> Duration {
    Config::default().health.min(suspect_after(case) / 10)
}

/// True if this process stops for longer than the others put up with.
pub(super) fn stops_for_long(case: &WorldCase, process: usize) -> bool {
    let is_long = |for_us: u64| us(for_us) + health(case) >= suspect_after(case);
    case.stop.is_some_and(|stop| stop.process == process && is_long(stop.for_us))
}

/// The longest time from the death of a process until all members that live have cut it off: their
/// next request to it fails, which is a sign of life at the latest.
pub(super) fn death_detection(case: &WorldCase) -> Duration {
    health(case) + case.settings.retry_time() + IDLE + slack(case)
}

/// The longest time from a silence, however it came, until all members that live have cut the
/// silent one off.
pub(super) fn silence_detection(case: &WorldCase) -> Duration {
    suspect_after(case) + IDLE + slack(case)
}

/// The longest time in which members that live agree on the end, deliver up to there, and say
/// goodbye.
///
/// A round is a write, sent again once, that the others find when they wake. One round spreads the
/// suspects and the last counters, another one that all have them. A window of each sender is
/// underway at most: each message takes two rounds, to be repaired or received and acknowledged.
pub(super) fn agreement(case: &WorldCase) -> Duration {
    let settings = &case.settings;
    let messages = case.senders.len() as u32 * settings.window;
    let tried = Duration::from_nanos(4096 << settings.timeout);
    let rounds = (2 + 2 * messages) * (2 * IDLE + tried);
    rounds + us(case.network.partition_us) + GOODBYE + slack(case)
}
