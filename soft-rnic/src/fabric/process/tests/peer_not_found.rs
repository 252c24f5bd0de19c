//! Processes that this one looks for in vain.

use super::*;

/// Any process can have a socket of that name, so that this one plays the other user's.
#[test]
fn a_process_of_another_user_is_not_met_and_named_until_one_is() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};
    let (device, slot) = (crate::objects::device::default_device(), slot(90));
    let other = rustix::process::geteuid().as_raw() + 1;
    let theirs = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let name = format!("soft-rnic-{other}-{slot}");
    bind(&theirs, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
    assert_eq!(device.meet(slot), Ok(false));
    let why = crate::peer_not_found().unwrap();
    assert!(why.contains(&format!("the peer's process is of user {other}, this one")), "{why}");
    crate::fabric::process::peer_not_found::forget();
    assert_eq!(crate::peer_not_found(), None);
}
