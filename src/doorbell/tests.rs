use super::*;

#[test]
fn a_device_without_room_is_waited_for_and_not_for_ever() {
    let mut timeout = BackpressureTimeout::default();
    assert!(!timeout.is_over());
    let until = timeout.0.unwrap();
    assert!(until.has_passed(host::time::now() + BACKPRESSURE_LIMIT));
    timeout.0 = Some(Deadline::after(Duration::ZERO));
    assert!(timeout.is_over());
}
