use conn_core::multicast::Policy;

use super::super::{Config, in_process};

#[test]
fn what_is_inhibited_has_happened() {
    let device = crate::device::soft().expect("a device");
    let policy = Policy::Every(100);
    // Nothing is due by time alone.
    let hour = std::time::Duration::from_secs(3600);
    let (deadline, health, suspect_after) = (hour, hour, 2 * hour);
    let base = Config { members: 2, policy, ..Config::default() };
    let config = Config { deadline, health, suspect_after, ..base };
    let mut members = in_process(&device, &config).expect("a group");
    assert!(!members[0].work(|_| {}), "nothing was sent");
    members[0].sender().try_send(b"alone").expect("room");
    assert!(members[0].work(|_| {}), "a message was");
    assert_eq!(members[0].counts().writes(), 0);
    assert!(!members[0].work(|_| {}), "it waits for others");
}
