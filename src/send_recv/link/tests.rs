use super::*;
use crate::send_recv::{Config, SendError, pair};

/// Until a completion makes room, nothing can be posted: not even the goodbye.
#[test]
fn a_goodbye_that_finds_no_room_is_said_later() {
    let (device, config) = (crate::device::soft().unwrap(), Config::default());
    let (left, mut right) = pair(&device, &device, &config).unwrap();
    let link = right.receiver.links.get_mut(0).unwrap();
    while link.post_control(PROBE, false) == Posted::Yes {}
    link.stop(Control::Stop);
    assert!(link.is_saying_goodbye());
    drop(right.receiver);
    let mut sender = left.sender;
    let stopped = loop {
        if let Err(e) = sender.send(b"anybody there?") {
            break e;
        }
    };
    assert_eq!(stopped, SendError::Ended(Ended::PeerStopped));
}
