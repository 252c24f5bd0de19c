//! Processes that this one looks for and does not find.

use super::*;

/// Any process can have a socket of that name, so that this one plays the other user's.
#[test]
fn a_process_of_another_user_is_not_met_and_named_until_one_is() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};
    let device = crate::objects::device::default_device();
    let other = rustix::process::geteuid().as_raw() + 1;
    let says = format!("the peer's process is of user {other}, this one");
    let is_named = || crate::peer_not_found().is_some_and(|why| why.contains(&says));
    let is_named_at = |slot: u32| {
        let theirs = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let name = format!("soft-rnic-{other}-{slot}");
        bind(&theirs, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        assert_eq!(device.meet(slot), Ok(false));
        is_named()
    };
    // Another test of this process may meet one meanwhile, and have it forgotten.
    assert!((120..130).map(slot).any(is_named_at), "{:?}", crate::peer_not_found());
    crate::peers::process::peer_not_found::forget();
    assert!(!is_named());
}
