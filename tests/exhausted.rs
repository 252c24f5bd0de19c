//! A listener when no descriptor is left: it returns an error, serves the clients that it has
//! accepted, and all others when there are descriptors again; waits with a timeout end in time.
//! One test, in a process of its own: the limit is the process's.

mod support;

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use rdma_conn::conn_core::handshake::{Endpoint, Frame, MAX_FRAME, Options, Parameters};
use rdma_conn::multicast::{JoinError, Leader};
use rdma_conn::send_recv::ConnectError;
use rdma_conn::{Listener, SendRecv};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::raw::parameters;
use support::{bounded, device};

/// A Hello whose application says `name`.
fn hello(name: &[u8]) -> Vec<u8> {
    let end = Endpoint { qp_num: 0x123, psn: 5, recv_depth: 16, max_message: 64 };
    let hello = Parameters {
        initiator_to_acceptor: Some(end),
        application: name,
        ..parameters(&device(), Options::NONE)
    };
    let mut bytes = vec![0; MAX_FRAME];
    let length = Frame::Hello(hello).encode(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// Runs `body` with no descriptor left.
fn without_descriptors<T>(body: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Nofile);
    // The lowest free number: all that are lower are taken.
    let free = File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(free), ..before }).unwrap();
    let result = body();
    setrlimit(Resource::Nofile, before).unwrap();
    result
}

#[test]
fn a_listener_without_descriptors_serves_accepted_clients() {
    bounded(|| {
        let [in_time, late] = [b"in time", b"late..."].map(|name| hello(name));
        let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr()).unwrap();
        let mut first = connect();
        assert!(listener.next_timeout(Duration::ZERO).unwrap().is_none(), "it is in, and silent");
        let mut second = connect();
        first.write_all(&in_time).unwrap();
        second.write_all(&late).unwrap();
        without_descriptors(|| {
            // Its Hello may still be under way; until it arrives, `next` returns the error.
            let served = std::iter::repeat_with(|| listener.next()).find_map(Result::ok).unwrap();
            assert_eq!(served.application(), b"in time");
            drop(served);
            // The descriptor of the served client is free: take it.
            let _taken = File::open("/dev/null").unwrap();
            for _ in 0..3 {
                let error = listener.next().unwrap_err();
                assert!(matches!(error, ConnectError::System { .. }), "{error:?}");
            }
        });
        assert_eq!(listener.next().unwrap().application(), b"late...");
        a_leader_without_descriptors_waits_no_longer_than_it_says();
    });
}

fn a_leader_without_descriptors_waits_no_longer_than_it_says() {
    let (device, leader) = (device(), Leader::bind("127.0.0.1:0").unwrap());
    let _waits = TcpStream::connect(leader.local_addr()).unwrap();
    let within = Duration::from_millis(1);
    let gathered =
        without_descriptors(|| leader.gather_within(within, &device, &support::group(), b""));
    assert!(matches!(gathered, Err(JoinError::Missing { came: 0, wanted: 2, .. })));
}
