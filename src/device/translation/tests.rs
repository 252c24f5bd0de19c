use super::*;

fn found(own: &str, here: &str, there: &str, gid: &str) -> Option<bool> {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let at = |text: &str| SocketAddr::new(ip(text), 7);
    Suspicion::find(ip(own), (at(here), at(there)), ip(gid)).map(|suspicion| suspicion.is_likely)
}

#[test]
fn a_peer_whose_stream_has_another_address_is_suspected() {
    // A container behind its host, from outside, and its gateway from inside.
    assert_eq!(found("10.0.0.2", "10.0.0.2", "10.0.0.1", "172.17.0.2"), Some(true));
    assert_eq!(found("fd00::2", "fd00::2", "fd00::1", "fd01::2"), Some(true));
}

#[test]
fn a_separate_handshake_network_causes_no_warning() {
    assert_eq!(found("10.0.0.2", "192.168.0.2", "192.168.0.1", "10.0.0.1"), Some(false));
    assert_eq!(found("127.0.0.2", "127.0.0.1", "127.0.0.1", "127.0.0.3"), None, "one machine");
    assert_eq!(found("10.0.0.2", "10.0.0.2", "10.0.0.1", "10.0.0.1"), None);
    assert_eq!(found("10.0.0.2", "::ffff:10.0.0.2", "::ffff:10.0.0.1", "10.0.0.1"), None);
}

#[test]
fn a_suspicion_is_remembered_for_the_error_that_follows() {
    let gid = |text: &str| text.parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped().octets();
    let ends = Some(("10.7.0.2:1".parse().unwrap(), "10.7.0.1:2".parse().unwrap()));
    look(&gid("10.7.0.2"), ends, &gid("172.17.7.2"));
    let known = about("172.17.7.2".parse().unwrap()).unwrap();
    assert!(known.to_string().contains("address translation"), "{known}");
    assert_eq!(about("10.7.0.1".parse().unwrap()), None);
}
