use super::*;

#[test]
fn the_loopback_interface_is_among_them() {
    let all = local_addresses().unwrap();
    let found = address_of(&all, "lo").unwrap();
    assert_eq!((found.ip, found.mtu), ("127.0.0.1".parse().unwrap(), 65_536));
    assert_eq!(address_of(&all, "no-such-if"), None);
}

#[test]
fn addresses_that_others_reach_come_first_and_ipv4_before_ipv6() {
    let on = |interface: &str, ip: &str| LocalAddress {
        interface: interface.into(),
        ip: ip.parse().unwrap(),
        mtu: 1_500,
    };
    let all = [
        on("a", "169.254.0.1"),
        on("a", "fd00::1"),
        on("a", "10.0.0.1"),
        on("a", "10.0.0.2"),
        on("b", "169.254.0.2"),
        on("b", "fd00::2"),
    ];
    let chosen = |name| address_of(&all, name).map(|address| address.ip.to_string());
    assert_eq!(chosen("a").as_deref(), Some("10.0.0.1"));
    assert_eq!(chosen("b").as_deref(), Some("fd00::2"));
}
