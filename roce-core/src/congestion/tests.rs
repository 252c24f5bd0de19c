use super::*;
use crate::headers::DEFAULT_PKEY;
use crate::{codec, lengths};

/// The bytes of a CNP as the annex has them: 12 of the base transport header, 16 reserved, the
/// ICRC.
#[test]
fn a_cnp_is_what_the_annex_says() {
    let mut bytes = [0xff; lengths::MAX_HEADERS];
    let length = codec::write(&cnp(0x12_3456, DEFAULT_PKEY), &mut bytes).unwrap();
    assert_eq!(length, 28);
    let bth = [0x81, 0x40, 0xff, 0xff, 0x40, 0x12, 0x34, 0x56, 0, 0, 0, 0];
    assert_eq!((&bytes[..12], &bytes[12..28]), (&bth[..], &[0; 16][..]));
}

#[test]
fn classes_keep_their_dscp() {
    for dscp in 0..64_u8 {
        let class = |ecn: u8| dscp << 2 | ecn;
        assert_eq!([0, 1, 2, 3].map(|ecn| is_ce(class(ecn))), [false, false, false, true]);
        assert_eq!([0, 1, 2, 3].map(|ecn| is_ect(class(ecn))), [false, true, true, false]);
        let sent = [0, 1, 2, 3].map(|ecn| with_ect(class(ecn)));
        assert_eq!(sent, [2, 1, 2, 3].map(class), "a class of the program's own stays");
        assert!((0..4).all(|ecn| without_ecn(class(ecn)) == class(0)));
    }
}

#[test]
fn one_congestion_notification_is_sent_per_fifty_microseconds() {
    let mut point = NotificationPoint::new();
    let sent = (0..1_000).filter(|at| point.on_marked(at * 1_000)).count();
    assert_eq!(sent, 20, "in a millisecond");
    assert!(point.on_marked(u64::MAX - 1) && !point.on_marked(u64::MAX - 1));
}
