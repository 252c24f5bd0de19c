use super::*;

fn header(len: u32, message: u16) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&len.to_ne_bytes());
    header[4..6].copy_from_slice(&message.to_ne_bytes());
    header
}

#[test]
fn what_the_kernel_says_of_interfaces_and_addresses_is_a_change() {
    for message in TYPES {
        assert!(is_change(0, &header(32, message), 32), "{message}");
        assert!(!is_change(7, &header(32, message), 32), "of another process");
    }
    assert!(!is_change(0, &header(32, libc::RTM_NEWROUTE), 32));
}

#[test]
fn malformed_messages_are_no_change() {
    for (declared, len) in [(0, 32), (15, 32), (33, 32), (16, 15), (u32::MAX, 32), (0, 0)] {
        assert!(!is_change(0, &header(declared, libc::RTM_NEWLINK), len), "{declared} {len}");
    }
    assert!(is_change(0, &header(16, libc::RTM_NEWLINK), 16));
}

#[test]
fn without_messages_nothing_has_changed() {
    let watch = NetworkWatch::open().unwrap();
    // Others may change something meanwhile.
    while watch.has_changed().unwrap() {}
}
