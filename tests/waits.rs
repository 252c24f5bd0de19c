//! Waits that have to end: for foreign tickets, for times beyond the clock, for dead peers,
//! and where the configuration leaves nothing to wait for.
//!
//! Shows: waits.

mod support;

use rdma_conn::Common;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rdma_conn::handshake::HandshakeError;
use rdma_conn::send_recv::{
    CloseReason, Config, ConnectError, Receiver, RecvError, SendError, Sender,
};
use rdma_conn::{
    Listener, RecvHalf, SendHalf, SendRecv, WaitStrategy, connect, connect_sender,
    connect_sender_over, pair, receiver,
};
use support::raw::{self, HandMadeEnd};
use support::{at_once, bounded, device, mortal, small};

const WAYS: [WaitStrategy; 3] = [WaitStrategy::Spin, WaitStrategy::Block, WaitStrategy::Adaptive];

fn connected(config: &Config) -> (Sender, Receiver) {
    let device = device();
    let (left, right) = pair::<SendRecv>(&device, &device, config).unwrap();
    (left.sender, right.receiver)
}

/// Asks after a silent peer soon.
fn vigilant(wait: WaitStrategy) -> Config {
    let keepalive = Duration::from_millis(5);
    Config {
        common: Common { wait, keepalive, transport: mortal(), ..small(4).common },
        ..small(4)
    }
}

#[test]
fn a_ticket_of_another_sender_is_not_waited_for() {
    for pack_bytes in [0, 64] {
        bounded(move || {
            let config = Config { pack_bytes, ..small(4) };
            let (mut busy, mut inbox) = connected(&config);
            let (mut fresh, _other) = connected(&config);
            let first = busy.send(b"one").unwrap();
            let mut ticket = first;
            for _ in 0..3 {
                busy.wait_acked(ticket).unwrap();
                inbox.recv().unwrap();
                ticket = busy.send(b"more").unwrap();
            }
            assert_eq!(fresh.is_acked(ticket), Err(SendError::UnknownTicket));
            assert_eq!(fresh.wait_acked(ticket), Err(SendError::UnknownTicket));
            // What is accepted and not sent yet is known.
            let own = fresh.send(b"own").unwrap();
            fresh.is_acked(own).unwrap();
            fresh.wait_acked(own).unwrap();
            // A number that both have given out, and this one has acknowledged.
            assert_eq!(fresh.is_acked(first), Err(SendError::UnknownTicket));
            assert_eq!(fresh.wait_acked(first), Err(SendError::UnknownTicket));
            busy.wait_acked(first).unwrap();
        });
    }
}

#[test]
fn times_beyond_the_clock_are_for_ever() {
    for wait in WAYS {
        bounded(move || {
            let config = Config {
                common: Common {
                    wait,
                    keepalive: Duration::MAX,
                    linger: Duration::MAX,
                    ..small(2).common
                },
                ..small(2)
            };
            let (mut sender, mut receiver) = connected(&config);
            std::thread::scope(|scope| {
                scope.spawn(|| (0..20).for_each(|_| sender.send_acked(b"message").unwrap()));
                (0..20).for_each(|_| drop(receiver.recv_timeout(Duration::MAX).unwrap()));
            });
            drop(receiver);
            drop(sender);
        });
    }
}

#[test]
fn short_waits_end_in_the_end_of_a_dead_sender() {
    let times = [Duration::ZERO, Duration::from_millis(1)];
    at_once(WAYS.into_iter().flat_map(|wait| times.map(|time| (wait, time))), |(wait, time)| {
        let (config, device) = (vigilant(wait), device());
        let mut victim = receiver::<SendRecv>(&device, &config, 1).unwrap();
        let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr();
        let raw: HandMadeEnd = std::thread::scope(|scope| {
            let raw = scope.spawn(|| raw::sender_to(address, &device, raw::Shape::default()));
            listener.next().unwrap().accept_into(&mut victim, &device, &config).unwrap();
            raw.join().unwrap()
        });
        drop(raw);
        loop {
            match victim.recv_timeout(time).unwrap_err() {
                RecvError::TimedOut => {}
                RecvError::Peer { reason: CloseReason::PeerLost(_), .. } => break,
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn short_waits_end_in_the_end_of_a_dead_receiver() {
    at_once(WAYS, |wait| {
        let (config, device) = (vigilant(wait), device());
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let shape = raw::Shape { claimed_window: 4, ..raw::Shape::default() };
        let (mut victim, raw) = std::thread::scope(|scope| {
            let raw = scope.spawn(|| raw::receiver_for(&mut far, &device, shape));
            let sender =
                connect_sender_over::<SendRecv, _>(&mut near, &device, &config, b"").unwrap();
            (sender, raw.join().unwrap())
        });
        for _ in 0..4 {
            victim.send(b"message").unwrap();
        }
        victim.wait_all().unwrap();
        drop(raw);
        loop {
            match victim.send_timeout(b"more", Duration::from_millis(1)).unwrap_err() {
                SendError::TimedOut { .. } => {}
                SendError::Ended(CloseReason::PeerLost(_)) => break,
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn buffers_too_small_for_a_pack_are_refused() {
    bounded(|| {
        let device = device();
        let tiny = Config { message_bytes: 3, ..small(4) };
        let packing = Config { pack_bytes: 64, ..small(4) };
        let mut inbox = receiver::<SendRecv>(&device, &tiny, 1).unwrap();
        let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr();
        std::thread::scope(|scope| {
            let packs = scope.spawn(|| connect_sender::<SendRecv>(address, &device, &packing));
            listener.next().unwrap().accept_into(&mut inbox, &device, &tiny).unwrap_err();
            let error = packs.join().unwrap().unwrap_err();
            assert!(
                matches!(error, ConnectError::Handshake(HandshakeError::Unfit(_))),
                "{error:?}"
            );
        });
    });
}

#[test]
fn a_receive_only_acceptor_refuses_a_two_way_initiator() {
    bounded(|| {
        let (device, config) = (device(), small(4));
        let mut inbox = receiver::<SendRecv>(&device, &config, 1).unwrap();
        let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr();
        std::thread::scope(|scope| {
            let both_ways = scope.spawn(|| connect::<SendRecv>(address, &device, &config));
            listener.next().unwrap().accept_into(&mut inbox, &device, &config).unwrap_err();
            let refused = both_ways.join().unwrap().unwrap_err();
            let ConnectError::Handshake(HandshakeError::Refused { .. }) = refused else {
                panic!("{refused:?}");
            };
        });
        assert_eq!(inbox.peers(), 0);
    });
}

#[test]
fn a_receiver_without_senders_is_not_waited_for() {
    bounded(|| {
        let device = device();
        let mut inbox = receiver::<SendRecv>(&device, &support::config::<Config>(), 2).unwrap();
        assert_eq!(inbox.try_recv().unwrap_err(), RecvError::Empty, "a peer may join");
        assert_eq!(inbox.recv().unwrap_err(), RecvError::Closed, "no peer can during the wait");
    });
}
