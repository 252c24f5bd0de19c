use std::net::IpAddr;

use super::*;

/// Addresses of devices within their machine, and of devices at an interface.
const WITHIN: [&str; 3] = ["127.0.0.1", "127.31.9.2", "::1"];
const OUTSIDE: [&str; 4] = ["10.0.0.1", "192.0.2.7", "fe80::7", "2001:db8::7"];

fn gid(address: &str) -> [u8; 16] {
    match address.parse::<IpAddr>().unwrap() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Returns the reason why a device at one address does not reach one at another, if it does not.
fn refusal(is_local: bool, own: &str, peer: &str) -> Option<String> {
    match check_reach(is_local, &Gid { index: 0, gid: gid(own) }, &gid(peer)) {
        Ok(()) => None,
        Err(ConnectError::Handshake(HandshakeError::OutOfReach(why))) => Some(why),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_device_within_its_machine_does_not_reach_an_interface() {
    for within in WITHIN {
        for outside in OUTSIDE {
            for (own, peer) in [(within, outside), (outside, within)] {
                let why = refusal(false, own, peer).unwrap_or_else(|| panic!("{own} to {peer}"));
                assert!(why.starts_with("one has a device within its machine"), "{why}");
            }
        }
    }
    for all in [&WITHIN[..], &OUTSIDE] {
        let pairs = all.iter().flat_map(|own| all.iter().map(move |peer| (own, peer)));
        for (own, peer) in pairs {
            assert_eq!(refusal(false, own, peer), None, "{own} to {peer}");
        }
    }
}

#[test]
fn a_soft_device_reaches_only_those_of_its_own_gid() {
    assert_eq!(refusal(true, "127.0.0.1", "127.0.0.1"), None);
    for peer in ["127.31.9.2", "10.0.0.1"] {
        let why = refusal(true, "127.0.0.1", peer).unwrap_or_else(|| panic!("{peer}"));
        assert!(why.starts_with("soft0 connects the processes of one user"), "{why}");
    }
}
