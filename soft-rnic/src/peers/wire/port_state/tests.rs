use super::*;

use ibv_event_type as E;

const RUNNING: AddressState =
    AddressState::Present { is_running: true, mtu: Some(9_000), index: Some(2) };
const DOWN: AddressState = AddressState::Present { is_running: false, mtu: None, index: Some(2) };
const ABSENT: AddressState = AddressState::Absent;

/// All pairs of what is known and what a look finds.
#[test]
fn the_events_are_those_of_the_difference() {
    let (gid, err, active) =
        (E::IBV_EVENT_GID_CHANGE, E::IBV_EVENT_PORT_ERR, E::IBV_EVENT_PORT_ACTIVE);
    let (up, down) = (
        AddressPresence::Present { is_running: true },
        AddressPresence::Present { is_running: false },
    );
    for (before, found, after, events) in [
        (AddressPresence::Unlisted, RUNNING, up, [None, None]),
        (AddressPresence::Unlisted, DOWN, down, [None, Some(err)]),
        (AddressPresence::Unlisted, ABSENT, AddressPresence::Unlisted, [None, None]),
        (up, RUNNING, up, [None, None]),
        (up, DOWN, down, [None, Some(err)]),
        (up, ABSENT, AddressPresence::Gone, [Some(gid), Some(err)]),
        (down, RUNNING, up, [None, Some(active)]),
        (down, DOWN, down, [None, None]),
        (down, ABSENT, AddressPresence::Gone, [Some(gid), None]),
        (AddressPresence::Gone, RUNNING, up, [Some(gid), Some(active)]),
        (AddressPresence::Gone, DOWN, down, [Some(gid), None]),
        (AddressPresence::Gone, ABSENT, AddressPresence::Gone, [None, None]),
    ] {
        assert_eq!(before.then(found), after, "{before:?} {found:?}");
        assert_eq!(before.events_until(after), events, "{before:?} {found:?}");
    }
}

#[test]
fn the_path_mtu_follows_the_interface() {
    let ip = "10.0.0.1".parse().unwrap();
    let state = PortState::new(mtu_code_of(ip, 1_500));
    assert_eq!((state.mtu(), state.is_down(), state.has_gid()), (1_024, false, true));
    assert_eq!(state.update(ip, RUNNING), ([None; 2], true));
    assert_eq!(state.update(ip, RUNNING), ([None; 2], false));
    assert_eq!(state.mtu(), 4_096);
    state.update(ip, ABSENT);
    assert_eq!((state.mtu(), state.is_down(), state.has_gid()), (4_096, true, false));
    state.update(ip, DOWN);
    assert_eq!((state.mtu(), state.is_down(), state.has_gid()), (4_096, true, true));
}
