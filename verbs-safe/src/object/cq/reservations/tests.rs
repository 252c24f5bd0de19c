use super::*;

#[test]
fn what_does_not_fit_is_refused_and_named() {
    let reservations = Reservations::new(10);
    reservations.reserve(7, None).unwrap();
    let error = reservations.reserve(4, None).unwrap_err();
    assert_eq!(error, CqTooSmall { capacity: 10, reserved: 7, wanted: 4, needed: 11 });
    reservations.reserve(3, None).unwrap();
    reservations.release(7, None);
    reservations.reserve(7, None).unwrap();
    assert_eq!(reservations.reserved(), 10);
}

#[test]
fn a_shared_queue_counts_once_until_its_last_user_has_gone() {
    let reservations = Reservations::new(10);
    let (a, b) = (Some(SrqId(1)), Some(SrqId(2)));
    reservations.reserve(6, a).unwrap();
    reservations.reserve(6, a).unwrap();
    assert_eq!(reservations.reserve(6, b).unwrap_err().needed, 12);
    reservations.release(6, a);
    assert_eq!(reservations.reserved(), 6);
    reservations.release(6, a);
    assert_eq!(reservations.reserved(), 0);
    reservations.reserve(6, b).unwrap();
}

#[test]
fn a_sum_beyond_32_bits_is_refused() {
    let reservations = Reservations::new(u32::MAX);
    reservations.reserve(u32::MAX, None).unwrap();
    assert_eq!(reservations.reserve(u32::MAX, None).unwrap_err().needed, 2 * u64::from(u32::MAX));
}
