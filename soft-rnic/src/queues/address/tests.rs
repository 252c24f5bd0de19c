use super::*;

#[test]
fn only_unicast_addresses_are_ports() {
    for (text, is_port, is_group) in [
        ("::ffff:127.0.0.1", true, false),
        ("2001:db8::1", true, false),
        ("fe80::1", true, false),
        ("::", false, false),
        ("::ffff:0.0.0.0", false, false),
        ("::ffff:255.255.255.255", false, false),
        ("::ffff:224.0.0.1", false, true),
        ("::ffff:239.255.255.255", false, true),
        ("ff02::1", false, true),
        ("ff0e::ffff:224.0.0.1", false, true),
    ] {
        let mut ah = ibv_ah_attr { is_global: 1, port_num: 1, ..ibv_ah_attr::default() };
        ah.grh.dgid.raw = text.parse::<Ipv6Addr>().unwrap().octets();
        assert_eq!(is_route_to_port(&ah), is_port, "{text}");
        assert_eq!(is_route(&ah), is_port || is_group, "{text}");
    }
}
