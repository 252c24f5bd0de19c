use super::*;

#[test]
fn a_leader_that_asks_for_what_cannot_be_is_an_error() {
    let fine = GroupTraffic {
        size: 100,
        seconds: 1.0,
        messages: None,
        rate: Some(1000.0),
        slow: None,
        lone_us: None,
        burst: None,
        flush_every: None,
        verify: true,
    };
    let config = Config { message_bytes: 100, ..Config::default() };
    fine.check(&config).unwrap();
    for bad in [
        GroupTraffic { size: 101, ..fine.clone() },
        GroupTraffic { seconds: -1.0, ..fine.clone() },
        GroupTraffic { seconds: 1e300, ..fine.clone() },
        GroupTraffic { rate: Some(0.0), ..fine.clone() },
        GroupTraffic { slow: Some(-3.0), ..fine.clone() },
        GroupTraffic { burst: Some(0), ..fine.clone() },
    ] {
        assert!(bad.check(&config).is_err(), "{bad:?}");
    }
}
