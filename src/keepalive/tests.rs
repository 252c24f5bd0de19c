use super::*;

#[test]
fn a_silent_peer_is_asked_after_within_the_keepalive_interval() {
    let (keepalive, began) = (Duration::from_millis(100), host::time::now());
    let mut rounds = ProbeRounds::default();
    let mut due =
        (0..300).filter(|ms| rounds.is_due(began + Duration::from_millis(*ms), keepalive));
    assert!(due.by_ref().eq([50, 100, 150, 200, 250]));
}
