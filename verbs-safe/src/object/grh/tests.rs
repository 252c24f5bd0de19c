use super::*;

fn v4() -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[20..]
        .copy_from_slice(&[0x45, 3, 0, 84, 0, 0, 0x40, 0, 63, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
    let sum = !checksum(&bytes[20..]);
    bytes[30..32].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn v6() -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[..8].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45, 0, 9, 0x1b, 64]);
    bytes[8..24].copy_from_slice(&[1; 16]);
    bytes[24..].copy_from_slice(&[2; 16]);
    bytes
}

#[test]
fn an_ipv4_header_at_the_end_gives_mapped_addresses() {
    let grh = Grh::parse(&v4()).unwrap();
    assert_eq!(grh.source, mapped([10, 9, 0, 1]));
    assert_eq!(grh.destination, mapped([10, 9, 0, 2]));
    assert_eq!((grh.traffic_class, grh.hop_limit, grh.is_v4), (3, 63, true));
}

#[test]
fn an_ipv6_header_is_read_field_by_field() {
    let grh = Grh::parse(&v6()).unwrap();
    assert_eq!((grh.source, grh.destination), ([1; 16], [2; 16]));
    assert_eq!((grh.traffic_class, grh.flow_label), (0xab, 0x1_2345));
    assert_eq!((grh.hop_limit, grh.is_v4), (64, false));
}

#[test]
fn where_both_could_be_the_checksum_decides() {
    let mut bytes = v4();
    bytes[0] = 0x60; // left from something else
    assert!(Grh::parse(&bytes).unwrap().is_v4);
    let mut bytes = v6();
    bytes[20] = 0x45; // within the sender's GID
    assert!(!Grh::parse(&bytes).unwrap().is_v4);
}

#[test]
fn what_is_no_header_is_none() {
    assert_eq!(Grh::parse(&[0; 40]), None);
    assert_eq!(Grh::parse(&[0xff; 40]), None);
}

#[test]
fn groups_are_known_in_both_families() {
    let mut bytes = v4();
    assert!(!Grh::parse(&bytes).unwrap().is_multicast());
    bytes[36] = 239;
    assert!(Grh::parse(&bytes).unwrap().is_multicast());
    let mut bytes = v6();
    bytes[24] = 0xff;
    assert!(Grh::parse(&bytes).unwrap().is_multicast());
}
