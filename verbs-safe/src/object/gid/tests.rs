use super::*;

fn entry(index: u32, gid: &str, kind: GidKind) -> GidEntry {
    let gid: Ipv6Addr = gid.parse().unwrap();
    GidEntry { index, gid: gid.octets(), kind, interface: 0 }
}

fn chosen(table: &[GidEntry]) -> Option<u32> {
    preferred(table).map(|e| e.index)
}

#[test]
fn roce_v2_over_ipv4_is_best_wherever_it_stands() {
    let table = [
        entry(0, "fe80::1", GidKind::RoceV1),
        entry(1, "fe80::1", GidKind::RoceV2),
        entry(2, "2001:db8::1", GidKind::RoceV2),
        entry(3, "::ffff:10.0.0.1", GidKind::RoceV1),
        entry(4, "::ffff:10.0.0.1", GidKind::RoceV2),
        entry(5, "::ffff:10.0.0.2", GidKind::RoceV2),
    ];
    assert_eq!(chosen(&table), Some(4));
    assert_eq!(chosen(&table[..4]), Some(2), "another routable RoCE v2");
    assert_eq!(chosen(&table[..2]), Some(0), "link-local ones by their index");
    assert_eq!(chosen(&[]), None);
}

#[test]
fn link_local_is_last_in_both_families() {
    let table = [
        entry(0, "fe80::1", GidKind::RoceV2),
        entry(1, "::ffff:169.254.3.4", GidKind::RoceV2),
        entry(2, "::ffff:10.0.0.1", GidKind::RoceV1),
    ];
    assert_eq!(chosen(&table), Some(2));
}

#[test]
fn infiniband_takes_its_first() {
    let table = [entry(0, "fe80::1", GidKind::Ib), entry(1, "fec0::1", GidKind::Ib)];
    assert_eq!(chosen(&table), Some(0));
}

#[test]
fn where_the_kind_is_unknown_an_ipv4_address_decides() {
    let table =
        [entry(0, "fe80::1", GidKind::Unknown), entry(1, "::ffff:192.0.2.1", GidKind::Unknown)];
    assert_eq!(chosen(&table), Some(1));
}
