use super::*;

const REMEMBERED: u32 = 128;

#[test]
fn a_packet_that_is_sent_again_with_other_bytes_differs() {
    let mut packets = Packets::new(100);
    let last = REMEMBERED - 1;
    for number in 0..=last {
        assert!(!packets.differs(number, (7, 1024 * number), &[1; 1024]));
    }
    assert!(!packets.differs(last, (7, 1024 * last), &[1; 1024]));
    assert!(packets.differs(0, (7, 0), &[2; 1024]));
    // It is what was sent last that counts.
    assert!(!packets.differs(0, (7, 0), &[2; 1024]));
}

#[test]
fn packets_of_other_requests_are_others() {
    let mut packets = Packets::new(100);
    assert!(!packets.differs(5, (7, 0), &[1]));
    assert!(!packets.differs(5 + REMEMBERED, (8, 0), &[2]));
    assert!(!packets.differs(5, (8, 1024), &[3]));
}
