use std::net::{IpAddr, Ipv4Addr};

use rustix::net::{SocketFlags, accept_with};
use rustix::process::getpid;

use super::*;

/// Names that no other test has, nor another run.
fn names(n: u8) -> Names {
    let [.., a, b] = std::process::id().to_be_bytes();
    Names::of_address(IpAddr::V4(Ipv4Addr::new(240 | n, n, a, b)), 8)
}

fn bound(name: &SocketAddrUnix) -> OwnedFd {
    let socket = new_socket().unwrap();
    bind(&socket, name).unwrap();
    socket
}

fn accepted(listener: &OwnedFd) -> OwnedFd {
    accept_with(listener, SocketFlags::CLOEXEC).unwrap()
}

#[test]
fn a_turn_is_waited_for_though_its_holder_does_not_listen_yet() {
    let names = names(1);
    let holder = bound(&names.joining().unwrap());
    let take = |limit| Turn::take(&names, limit).map(drop);
    assert_eq!(take(Duration::ZERO), Err(Silent { pid: None }.into()));
    listen(&holder, BACKLOG).unwrap();
    let pid = Some(Pid::as_raw(Some(getpid())));
    assert_eq!(take(Duration::ZERO), Err(Silent { pid }.into()));
    // The one that has waited in vain.
    accepted(&holder);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| take(Duration::from_secs(60)));
        let waiting = wait_for_another(&holder);
        drop((waiting, holder));
        assert_eq!(other.join().unwrap(), Ok(()));
    });
}

/// The connection of one that begins to wait.
fn wait_for_another(listener: &OwnedFd) -> OwnedFd {
    poll(&mut [PollFd::new(listener, PollFlags::IN)], None).unwrap();
    accepted(listener)
}
