use super::PROBE;
use crate::direct_read::Config;
use crate::half::SendHalf;
use crate::{DirectRead, pair};

#[test]
fn a_stop_that_finds_no_room_is_said_later() {
    let device = crate::device::soft().unwrap();
    let (left, mut right) = pair::<DirectRead>(&device, &device, &Config::default()).unwrap();
    while right.receiver.links[0].control(PROBE) {}
    drop(right.receiver);
    assert_eq!(left.sender.close(), Ok(()));
}
