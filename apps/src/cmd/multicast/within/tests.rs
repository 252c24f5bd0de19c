use rdma_conn::multicast::Policy;

use super::*;

/// A group in which each of `senders` has sent the messages of `traffic`; only messages and the
/// deadline make anything due.
fn ran(senders: u8, policy: Policy, deadline: Duration, traffic: &GroupTraffic) -> GroupRun {
    let (health, suspect_after) = (Duration::from_secs(3600), Duration::from_secs(86_400));
    let config = Config { senders, policy, deadline, health, suspect_after, ..Config::default() };
    let members = members(&rdma_conn::device::soft().unwrap(), &config).unwrap();
    let mut run = GroupRun::new(members, traffic, &config, Instant::now()).unwrap();
    run.send(traffic, Instant::now()).unwrap();
    run.settle().unwrap();
    assert_eq!(run.in_time(), vec![traffic.messages.unwrap(); senders.into()]);
    run
}

const TRAFFIC: GroupTraffic = GroupTraffic {
    size: 100,
    seconds: 60.0,
    messages: Some(100),
    rate: None,
    slow: None,
    lone_us: None,
    burst: None,
    flush_every: None,
    verify: true,
};

/// Writes of all members for 100 messages of each of `senders`.
fn writes(senders: u8, policy: Policy, burst: u64) -> u64 {
    let traffic = GroupTraffic { burst: Some(burst), ..TRAFFIC };
    ran(senders, policy, Duration::from_secs(3600), &traffic).count(Counts::writes)
}

#[test]
fn a_flush_follows_its_message() {
    let traffic =
        GroupTraffic { messages: Some(2), lone_us: Some(0), flush_every: Some(1), ..TRAFFIC };
    let run = ran(1, Policy::Every(25), Duration::from_secs(10), &traffic);
    assert_eq!(run.count(|counts| counts.forced), 0, "a message has waited for its deadline");
}

#[test]
fn of_messages_that_come_one_by_one_k_share_their_pushes() {
    for (k, shared) in [(1, 1000), (5, 200), (25, 40)] {
        assert_eq!(writes(1, Policy::Every(k), 1), shared, "every:{k}");
    }
    // What gathers in a pass is pushed together, whatever the policy, but for k = 1.
    assert_eq!(writes(1, Policy::Every(1), 50), 1000);
    assert_eq!(writes(1, Policy::Every(5), 50), 20);
    assert_eq!(writes(1, Policy::Opportunistic, 1), 1000);
    // Several senders wait for each other's turns, and not for ever.
    assert!(writes(3, Policy::Every(5), 3) > 0);
}
