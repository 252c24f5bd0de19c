//! Two ends with devices that do not reach each other: both get the reason from the handshake, at once.
//!
//! Only on soft0: it opens the devices that it needs.

#[macro_use]
mod support;

use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use rdma_conn::conn_core::handshake::{Frame, Options, Parameters, Reason, decode};
use rdma_conn::device::{self, Device};
use rdma_conn::error::ConnectError;
use rdma_conn::handshake::HandshakeError;
use rdma_conn::multicast::{self, JoinError, Leader};
use rdma_conn::raw::{self, Offer, RawEnd};
use rdma_conn::verbs_safe::{CqConfig, QueuePairConfig, Transport};
use rdma_conn::{Incoming, Listener, Protocol, connect_over};
use support::raw::{Shape, parameters, read_frame, write_frame};

over_every_protocol!(a_device_of_another_kind_is_refused, a_process_elsewhere_is_refused);

fn device_named(name: &str) -> Device {
    device::open(Some(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Devices of which no two reach each other.
fn strangers() -> [Device; 3] {
    ["soft0", "soft0@5us", "roce:127.0.0.71"].map(device_named)
}

fn each_pair(mut of: impl FnMut(&Device, &Device)) {
    let all = strangers();
    for (i, one) in all.iter().enumerate() {
        all.iter().enumerate().filter(|(j, _)| i != *j).for_each(|(_, other)| of(one, other));
    }
}

/// One end has found out, and the other one was told.
fn assert_out_of_reach<A, B>(one: Result<A, ConnectError>, other: Result<B, ConnectError>) {
    let errors = [one.err(), other.err()].map(|error| match error {
        Some(ConnectError::Handshake(error)) => error,
        other => panic!("{other:?}"),
    });
    match &errors {
        [HandshakeError::OutOfReach(why), HandshakeError::Refused { reason, text }]
        | [HandshakeError::Refused { reason, text }, HandshakeError::OutOfReach(why)] => {
            assert_eq!(*reason, Reason::UNREACHABLE);
            assert!(text.contains(why.as_str()), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

fn a_device_of_another_kind_is_refused<P: Protocol>() {
    each_pair(|one, other| {
        let (mut near, far) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| {
                let incoming = Incoming::<P, _>::greet(far)?;
                // About retries: nothing is sent.
                incoming.accept(other, &P::Config::default())
            });
            // About retries: nothing is sent.
            let connected = connect_over::<P, _>(&mut near, one, &P::Config::default(), b"");
            assert_out_of_reach(accepted.join().unwrap(), connected);
        });
    });
}

/// As of another user, in another network namespace, or on another machine: the device's GID says it.
fn a_process_elsewhere_is_refused<P: Protocol>() {
    let device = device_named("soft0");
    for changed in [0, 13, 15] {
        let listener = Listener::<P>::bind("127.0.0.1:0").unwrap();
        let end = support::raw::HandMadeEnd::new(&device, Shape::default());
        let both = Some(end.endpoint());
        let mut hello = Parameters {
            protocol: P::ID,
            initiator_to_acceptor: both,
            acceptor_to_initiator: both,
            ..parameters(&device, Options::NONE)
        };
        hello.gid[changed] ^= 1;
        let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
        write_frame(&mut stream, &Frame::Hello(hello));
        // About retries: nothing is sent.
        let refused = listener.next().unwrap().accept(&device, &P::Config::default());
        let ConnectError::Handshake(HandshakeError::OutOfReach(_)) = refused.unwrap_err() else {
            panic!("byte {changed}")
        };
        let heard = read_frame(&mut stream).expect("an answer");
        let Frame::Refuse(refusal) = decode(&heard).unwrap().frame else {
            panic!("byte {changed}")
        };
        assert_eq!(refusal.reason, Reason::UNREACHABLE);
    }
}

#[test]
fn raw_queue_pairs_out_of_reach_are_refused() {
    support::bounded(|| {
        for transport in [Transport::Rc, Transport::Uc, Transport::Ud { qkey: 7 }] {
            each_pair(|one, other| {
                let end = |device: &Device| {
                    let cq = device.context().create_cq(CqConfig::new(256)).unwrap();
                    let config = QueuePairConfig { transport, ..QueuePairConfig::new(&cq, &cq) };
                    // About retries: nothing is sent.
                    RawEnd::new(device, &config, raw::Link::default()).unwrap()
                };
                let (mut near, mut far) = UnixStream::pair().unwrap();
                let (mut one, mut other) = (end(one), end(other));
                std::thread::scope(|scope| {
                    let accepted = scope.spawn(|| {
                        raw::Incoming::greet(&mut far)?.accept(&mut other, &Offer::default())
                    });
                    let connected = one.connect(&mut near, &Offer::default());
                    assert_out_of_reach(accepted.join().unwrap(), connected);
                });
            });
        }
    });
}

#[test]
fn a_group_whose_members_are_out_of_reach_is_refused() {
    support::bounded(|| {
        let [one, other, _] = strangers();
        // About retries: nothing is sent.
        let config = multicast::Config { members: 2, ..multicast::Config::default() };
        let leader = Leader::bind("127.0.0.1:0").unwrap();
        let address = leader.local_addr();
        std::thread::scope(|scope| {
            let joined = scope.spawn(|| multicast::join(address, &other, &config).map(drop));
            let gathered = leader.gather(&one, &config, b"").map(drop);
            for refused in [gathered, joined.join().unwrap()] {
                match refused.unwrap_err() {
                    JoinError::Connect(ConnectError::Handshake(HandshakeError::OutOfReach(_))) => {}
                    other => panic!("{other:?}"),
                }
            }
        });
    });
}
