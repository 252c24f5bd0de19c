use super::super::directory::SLOTS;
use super::*;

#[test]
fn a_marker_is_seen_from_the_time_on_when_it_is_shown() {
    // No slot has this number, and no other run of this test.
    let slot = SLOTS + std::process::id();
    let (names, mut probe) = (SocketNames::default(), MarkerProbe::new().unwrap());
    assert_eq!(probe.sees(&names, slot), Ok(false));
    let marker = Marker::bind(&names, slot).unwrap();
    assert_eq!(Marker::bind(&names, slot).err(), Some(Errno::ADDRINUSE));
    assert_eq!(probe.sees(&names, slot), Ok(false));
    marker.show().unwrap();
    // However many have looked.
    for _ in 0..10 {
        assert_eq!(probe.sees(&names, slot), Ok(true));
    }
    drop(marker);
    assert_eq!(probe.sees(&names, slot), Ok(false));
}
