//! Cost of a multicast, as the device has counted it: soft0 counts work requests, rxe packets, of
//! which each write here has one and one that acknowledges it.
//!
//! Not on wired: the last requests count once acknowledged, after their messages are delivered.

mod support;

use std::time::{Duration, Instant};

use rdma_conn::device::Device;
use rdma_conn::multicast::{Config, Group, Policy, in_process, writes_per_multicast};
use rdma_conn::raw::Link;
use support::{PATIENCE, can_count, device, settled_counters};

/// Writes for each message of one sender, `at_a_time` at a time: as counted by the device, and as
/// claimed by the members.
fn writes_per_message(device: &Device, config: &Config, messages: u64, at_a_time: u64) -> [f64; 2] {
    let mut members = in_process(device, config).unwrap();
    let before = settled_counters(device);
    let (sender, mut sent) = (members[0].sender(), 0u64);
    while sent < messages {
        for _ in 0..at_a_time {
            sender.try_send(&sent.to_le_bytes()).unwrap();
            sent += 1;
        }
        drive(&mut members, at_a_time);
    }
    // What the last ones have acknowledged may be on its way.
    (0..3).for_each(|_| members.iter_mut().for_each(|member| member.progress(Instant::now())));
    let seen = settled_counters(device).since(&before);
    let claimed: u64 = members.iter().map(|member| member.counts().writes()).sum();
    println!("{} members, {}: {seen:?}", config.members, config.policy);
    let executed = seen.work_requests.or(seen.sent_packets.map(|packets| packets / 2));
    [executed.unwrap(), claimed].map(|writes| writes as f64 / messages as f64)
}

/// Drives the group until all members have delivered `messages` messages more.
fn drive(members: &mut [Group], messages: u64) {
    let deadline = Instant::now() + PATIENCE;
    let mut delivered = vec![0; members.len()];
    while delivered.iter().any(|delivered| *delivered < messages) {
        for (member, delivered) in members.iter_mut().zip(&mut delivered) {
            *delivered += member.poll(Instant::now(), |_| {}) as u64;
        }
        assert!(Instant::now() < deadline, "{delivered:?} of {messages}: {members:?}");
    }
}

/// One test, for the counters are the device's.
#[test]
fn the_device_counts_what_the_formula_says() {
    let device = device();
    if !can_count(&device, "the writes of a multicast") {
        return;
    }
    for members in [2, 3, 5] {
        let config = |policy| Config {
            members,
            policy,
            health: Duration::from_secs(3600),
            suspect_after: Duration::from_secs(7200),
            // About retries: what is only late, by up to 8.6 s, is not repeated and counted.
            link: Link { timeout: 21, ..Link::default() },
            ..support::group()
        };
        let formula = f64::from(writes_per_multicast(members));
        let each = writes_per_message(&device, &config(Policy::Every(1)), 300, 10);
        assert_eq!(each, [formula; 2], "{members} members, a push for each");
        let shared = writes_per_message(&device, &config(Policy::Every(25)), 2000, 25);
        assert_eq!(shared, [formula / 25.0; 2], "{members} members, a push for 25");
        let [executed, claimed] =
            writes_per_message(&device, &config(Policy::Opportunistic), 5000, 250);
        assert!(executed <= 1.1 * formula / 250.0, "{members} members, executed: {executed}");
        assert_eq!(executed, claimed, "{members} members, executed");
    }
}
