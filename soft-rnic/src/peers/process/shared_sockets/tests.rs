use std::net::{IpAddr, Ipv4Addr};

use rustix::net::{SocketFlags, accept_with};
use rustix::process::getpid;

use super::*;

/// Names that no other test has, nor another run.
fn names(n: u8) -> SocketNames {
    let [.., a, b] = std::process::id().to_be_bytes();
    SocketNames::of_address(IpAddr::V4(Ipv4Addr::new(240 | n, n, a, b)), 8)
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
    let take = |limit| JoinTurn::take(&names, limit).map(drop);
    assert_eq!(take(Duration::ZERO), Err(Silent { pid: None }.into()));
    listen(&holder, BACKLOG).unwrap();
    let pid = Some(Pid::as_raw(Some(getpid())));
    assert_eq!(take(Duration::ZERO), Err(Silent { pid }.into()));
    // The one whose wait has timed out.
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
    host::fd::poll(&mut [PollFd::new(listener, PollFlags::IN)], None).unwrap();
    accepted(listener)
}

/// The first four are stopped, and so are most of the others.
#[test]
fn of_many_members_one_that_answers_suffices() {
    let names = names(3);
    let members: Vec<OwnedFd> = (0..8)
        .map(|slot| {
            let member = bound(&names.slot(slot).unwrap());
            listen(&member, BACKLOG).unwrap();
            member
        })
        .collect();
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| ask(&names, 0).unwrap().map(|found| found.len()));
        // None of the first four answers before all of them were asked.
        let asked: Vec<OwnedFd> = members[1..5].iter().map(wait_for_another).collect();
        drop(asked);
        let one = wait_for_another(&members[7]);
        let copies: Vec<OwnedFd> = (0..3).map(|_| new_socket().unwrap()).collect();
        SharedDescriptors(copies).answer(&one);
        assert_eq!(asks.join().unwrap(), Some(3));
    });
    assert!(accept_with(&members[0], SocketFlags::CLOEXEC).is_err(), "it does not ask itself");
}
