//! A peer that is killed with its process, at any point of what it sends and receives: over every
//! protocol, each half of the other end gets what had arrived, and a typed error.
//!
//! Shows: death.

#[macro_use]
mod support;

use std::any::Any;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rdma_conn::buffered_write::{Config as BufferedWriteConfig, Tail};
use rdma_conn::direct_write::{Config as DirectWriteConfig, Detection};
use rdma_conn::error::{CloseReason, RecvError, SendError};
use rdma_conn::io::ByteStream;
use rdma_conn::protocol::Served as _;
use rdma_conn::{
    BufferedRead, BufferedWrite, Common, DirectRead, DirectWrite, Listener, Peer, Protocol,
    RecvHalf, SendHalf, SendRecv, SharedWrite, connect,
};
use support::{assert_content, at_once, content, device};

/// Arguments of the peer's process: protocol, address, messages, and the number of its configuration.
const PEER: &str = "RDMA_CONN_TEST_PEER";

over_every_protocol!(
    a_peer_that_is_killed_at_any_point_is_found_by_both_halves,
    a_close_fails_where_only_the_goodbye_is_lost,
    nothing_is_acknowledged_by_a_peer_that_was_reaped,
    a_sender_that_waits_for_nothing_finds_that_its_peer_was_killed,
    a_stream_of_a_peer_that_is_killed_is_reset,
);

fn config<P: Protocol>() -> P::Config {
    let mut config = support::config::<P::Config>();
    let common = Common {
        keepalive: Duration::from_millis(20),
        transport: support::mortal(),
        ..support::common()
    };
    *config.as_mut() = common;
    config
}

/// Kills the peer when a test fails, too.
struct PeerChild(Child);

impl PeerChild {
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for PeerChild {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The default configuration of a protocol and, if there is one, that whose receivers poll their
/// memory: then no message needs the receiver's device to answer.
fn configs<P: Protocol>() -> Vec<P::Config> {
    let mut polls = config::<P>();
    let any: &mut dyn Any = &mut polls;
    if let Some(config) = any.downcast_mut::<BufferedWriteConfig>() {
        config.tail = Tail::Written;
    } else if let Some(config) = any.downcast_mut::<DirectWriteConfig>() {
        config.detection = Detection::Polled;
    } else {
        return vec![polls];
    }
    vec![config::<P>(), polls]
}

fn start<P: Protocol>(address: SocketAddr, messages: u64) -> PeerChild {
    start_with::<P>(address, messages, 0)
}

/// A peer that has the configuration with this number.
fn start_with<P: Protocol>(address: SocketAddr, messages: u64, config: usize) -> PeerChild {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new(own);
    command.args(["the_peer", "--exact", "--nocapture"]);
    // What the harness says there would stand in the middle of what it says here.
    command.stdout(Stdio::null());
    if let Ok(device) = std::env::var(support::OTHER_DEVICE) {
        command.env("RDMA_CONN_DEVICE", device);
    }
    PeerChild(
        command.env(PEER, format!("{}|{address}|{messages}|{config}", P::NAME)).spawn().unwrap(),
    )
}

fn a_peer_that_is_killed_at_any_point_is_found_by_both_halves<P: Protocol>() {
    if !device().crosses_processes() {
        return; // such a device exists in one process only, and so do its peers
    }
    at_once([0, 1, 7, 64], |messages| {
        let device = device();
        let listener = Listener::<P>::bind("127.0.0.1:0").unwrap();
        let mut peer = start::<P>(listener.local_addr(), messages);
        let mut own = listener.next().unwrap().accept(&device, &config::<P>()).unwrap();
        for number in 0..messages {
            let message = own.receiver.recv_timeout(support::PATIENCE).unwrap();
            assert_content(&message, 0, number, 100);
        }
        let address = own.receiver.peer_addr(Peer(0));
        assert!(address.is_some());
        peer.kill();
        let lost = own.receiver.recv_timeout(support::PATIENCE).map(drop).unwrap_err();
        let RecvError::Peer { reason: CloseReason::PeerLost(lost), .. } = lost else {
            panic!("{messages} messages: {lost:?}")
        };
        assert_eq!(lost.peer, address);
        let lost = (0..).find_map(|number| {
            let message = content(1, number, 100);
            own.sender.send_acked_timeout(&message, support::PATIENCE).err()
        });
        assert!(
            matches!(lost, Some(SendError::Ended(CloseReason::PeerLost(_)))),
            "{messages} messages: {lost:?}"
        );
        assert_eq!(own.sender.close().err(), lost, "what was known before the close");
    });
}

/// That a close has succeeded says that the receiver was told of the end.
fn a_close_fails_where_only_the_goodbye_is_lost<P: Protocol>() {
    if !device().crosses_processes() {
        return; // as above
    }
    let configs = configs::<P>().into_iter().enumerate();
    let cases = configs.flat_map(|(number, config)| [0, 1, 7].map(|n| (number, config.clone(), n)));
    at_once(cases, |(number, config, messages)| {
        let device = device();
        let listener = Listener::<P>::bind("127.0.0.1:0").unwrap();
        let mut peer = start_with::<P>(listener.local_addr(), 0, number);
        let mut own = listener.next().unwrap().accept(&device, &config).unwrap();
        for number in 0..messages {
            own.sender.send(&content(1, number, 100)).unwrap();
        }
        own.sender.wait_all_timeout(support::PATIENCE).unwrap();
        peer.kill();
        let closed = own.sender.close_timeout(support::PATIENCE);
        assert!(
            matches!(closed, Err(SendError::Ended(CloseReason::PeerLost(_)))),
            "configuration {number}, {messages} messages: {closed:?}"
        );
    });
}

fn nothing_is_acknowledged_by_a_peer_that_was_reaped<P: Protocol>() {
    let device = device();
    if !device.crosses_processes() {
        return; // as above
    }
    for (number, config) in configs::<P>().iter().enumerate() {
        let listener = Listener::<P>::bind("127.0.0.1:0").unwrap();
        let mut peer = start_with::<P>(listener.local_addr(), 0, number);
        let mut own = listener.next().unwrap().accept(&device, config).unwrap();
        own.sender.send_acked_timeout(&content(1, 0, 100), support::PATIENCE).unwrap();
        peer.kill();
        // Accepting a message needs no peer: only its acknowledgement does.
        let sent = own.sender.send_timeout(&content(1, 1, 100), support::PATIENCE);
        let waited = own.sender.wait_all_timeout(support::PATIENCE);
        let acked = sent.and_then(|ticket| own.sender.is_acked(ticket));
        for lost in [waited.err(), acked.err()] {
            assert!(
                matches!(lost, Some(SendError::Ended(CloseReason::PeerLost(_)))),
                "configuration {number}: {lost:?}"
            );
        }
    }
}

/// No call of the sender waits, and none asks for an acknowledgement.
fn a_sender_that_waits_for_nothing_finds_that_its_peer_was_killed<P: Protocol>() {
    let device = device();
    if !device.crosses_processes() {
        return; // as above
    }
    for (number, config) in configs::<P>().iter().enumerate() {
        let listener = Listener::<P>::bind("127.0.0.1:0").unwrap();
        let mut peer = start_with::<P>(listener.local_addr(), 0, number);
        let mut own = listener.next().unwrap().accept(&device, config).unwrap();
        let address = own.sender.peer_addr();
        assert!(address.is_some());
        peer.kill();
        let lost = loop {
            match own.sender.try_send(&content(1, 0, 100)) {
                Ok(_) | Err(SendError::Full(_)) => {}
                Err(SendError::Ended(lost)) => break lost,
                Err(e) => panic!("configuration {number}: {e:?}"),
            }
        };
        let CloseReason::PeerLost(lost) = &lost else { panic!("configuration {number}: {lost:?}") };
        assert_eq!(lost.peer, address);
    }
}

fn a_stream_of_a_peer_that_is_killed_is_reset<P: Protocol>() {
    let device = device();
    if !device.crosses_processes() {
        return; // as above
    }
    let listener = Listener::<P>::bind("127.0.0.1:0").unwrap();
    let mut peer = start::<P>(listener.local_addr(), 2);
    let own = listener.next().unwrap().accept(&device, &config::<P>()).unwrap();
    let mut stream = ByteStream::<P>::new(own);
    let mut bytes = [0; 200];
    stream.read_exact(&mut bytes).unwrap();
    assert_content(&bytes[100..], 0, 1, 100);
    peer.kill();
    for time in ["first", "second"] {
        // What follows is no end of the stream.
        let reset = stream.read(&mut bytes).unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset, "{time} read: {reset}");
    }
    let broken = (0..).find_map(|_| stream.write_all(&bytes).err()).unwrap();
    assert_eq!(broken.kind(), ErrorKind::ConnectionReset, "{broken}");
}

/// The other process. It does nothing as a test.
#[test]
fn the_peer() {
    let Ok(told) = std::env::var(PEER) else { return };
    let arguments: Vec<_> = told.split('|').collect();
    let [name, address, messages, config] = arguments[..] else { panic!() };
    let (address, messages) = (address.parse().unwrap(), messages.parse().unwrap());
    let config = config.parse().unwrap();
    match name {
        SendRecv::NAME => sends::<SendRecv>(address, messages, config),
        BufferedRead::NAME => sends::<BufferedRead>(address, messages, config),
        BufferedWrite::NAME => sends::<BufferedWrite>(address, messages, config),
        DirectRead::NAME => sends::<DirectRead>(address, messages, config),
        DirectWrite::NAME => sends::<DirectWrite>(address, messages, config),
        SharedWrite::NAME => sends::<SharedWrite>(address, messages, config),
        other => panic!("unknown protocol {other}"),
    }
}

fn sends<P: Protocol>(address: SocketAddr, messages: u64, config: usize) {
    let mut own = connect::<P>(address, &device(), &configs::<P>()[config]).unwrap();
    for number in 0..messages {
        own.sender.send(&content(0, number, 100)).unwrap();
    }
    // Until it is killed.
    while own.receiver.recv_timeout(support::PATIENCE).is_ok() {}
    std::thread::park();
}
