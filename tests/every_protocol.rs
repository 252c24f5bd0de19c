//! One program, over every message protocol: what the common API promises.

#[macro_use]
mod support;

use host::sync::SetOnDrop;
use rdma_conn::Common;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rdma_conn::conn_core::handshake::{Frame, Options, Parameters, decode};
use rdma_conn::error::{CloseReason, ConnectError, RecvError, SendError};
use rdma_conn::protocol::Served as _;
use rdma_conn::{
    Arm, BufferedRead, BufferedWrite, DirectRead, DirectWrite, FromPeer, Listener, Peer, Protocol,
    RecvHalf, Room, SendHalf, SendRecv, SharedWrite, Ticket, connect, connect_sender, join, pair,
    receiver,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use support::raw::{HandMadeEnd, Shape, parameters, read_frame, write_frame};
use support::{assert_content, content, devices};

over_every_protocol!(
    messages_go_both_ways_in_order,
    messages_of_every_boundary_size_arrive_once,
    an_end_that_closes_at_any_point_is_seen_by_the_other,
    a_receiver_closes_while_its_sender_goes_on,
    a_hello_that_cannot_be_is_refused_and_takes_no_place,
    without_room_a_send_waits_as_long_as_it_is_told,
    a_ticket_is_acknowledged_without_further_sends,
    one_receiver_takes_from_many_senders,
    a_sender_joins_in_the_place_that_another_has_just_left,
    two_ends_meet_over_tcp,
    each_half_knows_the_addresses_of_its_stream,
    both_ends_see_a_close,
    a_ticket_of_another_sender_is_unknown,
    a_message_is_filled_in_place_and_sent_when_it_is_committed,
    room_that_is_not_there_is_waited_for,
    what_is_sent_through_a_batch_arrives_when_it_is_dropped,
    a_batch_posts_what_it_has_when_there_is_no_room,
    a_message_that_another_thread_frees_makes_room,
    calls_after_the_end_know_what_was_acknowledged,
    messages_that_are_there_are_received_in_one_call,
    an_event_loop_of_ones_own_drives_both_halves,
    what_comes_while_a_sender_joins_wakes_an_event_loop,
    a_message_that_is_held_stalls_no_others,
    an_armed_half_is_readable_for_news_and_after_a_keepalive_interval_only,
);

/// A protocol that is not the library's. It has no room for a second message, so that a batch of it
/// gathers nothing.
#[path = "../examples/own_protocol.rs"]
#[allow(dead_code, reason = "its main is not run here")]
mod own_protocol;

over_every_protocol! {
    @ stop_and_wait crate::own_protocol::StopAndWait,
    messages_go_both_ways_in_order
    messages_of_every_boundary_size_arrive_once
    an_end_that_closes_at_any_point_is_seen_by_the_other
    a_receiver_closes_while_its_sender_goes_on
    a_hello_that_cannot_be_is_refused_and_takes_no_place
    without_room_a_send_waits_as_long_as_it_is_told
    a_ticket_is_acknowledged_without_further_sends
    one_receiver_takes_from_many_senders
    a_sender_joins_in_the_place_that_another_has_just_left
    two_ends_meet_over_tcp
    both_ends_see_a_close
    a_ticket_of_another_sender_is_unknown
    a_message_is_filled_in_place_and_sent_when_it_is_committed
    room_that_is_not_there_is_waited_for
    a_batch_posts_what_it_has_when_there_is_no_room
    a_message_that_another_thread_frees_makes_room
    calls_after_the_end_know_what_was_acknowledged
    messages_that_are_there_are_received_in_one_call
    an_event_loop_of_ones_own_drives_both_halves
    what_comes_while_a_sender_joins_wakes_an_event_loop
    an_armed_half_is_readable_for_news_and_after_a_keepalive_interval_only
}

/// A protocol, and its settings here.
trait TestedProtocol: Protocol {
    /// A held message stalls the messages that are a ring's length behind it: "Non-blocking" in
    /// docs/protocols/README.md.
    const STALLS: bool = false;

    /// Most messages of a test: few where each takes a round trip, and so waits for both threads to
    /// have a processor.
    const MOST: u64 = u64::MAX;

    /// Without a keepalive, which would hide a lost wake-up.
    fn quiet() -> Self::Config;
}

macro_rules! case {
    ($($protocol:ty => $module:ident $(, $stalls:literal)?);+) => {
        $(impl TestedProtocol for $protocol {
            $(const STALLS: bool = $stalls;)?

            fn quiet() -> Self::Config {
                rdma_conn::$module::Config { common: Common { keepalive: support::NEVER, ..support::common() }, ..Default::default()  }
            }
        })+
    };
}

case!(
    SendRecv => send_recv;
    BufferedRead => buffered_read, true;
    BufferedWrite => buffered_write;
    DirectRead => direct_read;
    DirectWrite => direct_write;
    SharedWrite => shared_write
);

impl TestedProtocol for own_protocol::StopAndWait {
    const MOST: u64 = 300;

    fn quiet() -> own_protocol::Config {
        let common = Common { keepalive: support::NEVER, ..support::common() };
        own_protocol::Config { common, ..Default::default() }
    }
}

const SIZES: [usize; 6] = [0, 1, 8, 100, 1000, 3];

fn messages_go_both_ways_in_order<P: TestedProtocol>() {
    let [one, other] = devices();
    let (left, right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    std::thread::scope(|scope| {
        for (stream, end) in (0..).zip([left, right]) {
            let (mut sender, mut receiver) = (end.sender, end.receiver);
            scope.spawn(move || {
                let mut last: Option<Ticket> = None;
                for number in 0..600 {
                    let bytes = SIZES[number as usize % SIZES.len()];
                    let ticket = sender.send(&content(stream, number, bytes)).unwrap();
                    assert!(last.is_none_or(|last| last < ticket), "tickets grow");
                    last = Some(ticket);
                }
                sender.close().unwrap();
            });
            scope.spawn(move || {
                for number in 0..600 {
                    let message = receiver.recv().unwrap();
                    let bytes = SIZES[number as usize % SIZES.len()];
                    assert_content(&message, 1 - stream, number, bytes);
                    match number % 2 {
                        0 => receiver.free(message),
                        _ => drop(message),
                    }
                }
                assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
            });
        }
    });
}

fn messages_of_every_boundary_size_arrive_once<P: TestedProtocol>() {
    let [one, other] = devices();
    let (mut left, mut right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    let longest = left.sender.max_message_bytes();
    let around = (0..=20).flat_map(|power| {
        let bytes = 1_usize << power;
        [bytes - 1, bytes, bytes + 1]
    });
    let sizes = around.chain([longest.saturating_sub(1), longest]).filter(|n| *n <= longest);
    for (number, bytes) in (0..).zip(sizes) {
        left.sender.send(&content(0, number, bytes)).unwrap();
        assert_content(&right.receiver.recv().unwrap(), 0, number, bytes);
        assert_eq!(right.receiver.try_recv().map(drop), Err(RecvError::Empty), "{bytes} bytes");
    }
}

fn an_end_that_closes_at_any_point_is_seen_by_the_other<P: TestedProtocol>() {
    let [one, other] = devices();
    for sent in [0, 1, 2, 3, 5, 17, 64] {
        // The sender closes: all messages that it has sent arrive before its end.
        let (left, mut right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
        std::thread::scope(|scope| {
            let mut sender = left.sender;
            scope.spawn(move || {
                (0..sent).for_each(|number| {
                    sender.send(&content(0, number, 50)).unwrap();
                });
                sender.close().unwrap();
            });
            for number in 0..sent {
                assert_content(&right.receiver.recv().unwrap(), 0, number, 50);
            }
            assert_eq!(right.receiver.recv().map(drop), Err(RecvError::Closed), "after {sent}");
        });
        // The receiver closes: the sender hears of a close, whatever it does.
        std::thread::scope(|scope| {
            let mut receiver = left.receiver;
            scope.spawn(move || {
                for number in 0..sent {
                    assert_content(&receiver.recv().unwrap(), 1, number, 50);
                }
                receiver.close();
            });
            let ended = (0..).find_map(|number| right.sender.send(&content(1, number, 50)).err());
            let ended = ended.unwrap();
            assert!(matches!(&ended, SendError::Ended(why) if why.is_close()), "{sent} {ended:?}");
        });
    }
}

fn a_receiver_closes_while_its_sender_goes_on<P: TestedProtocol>() {
    let [one, other] = devices();
    let mut config = P::quiet();
    config.as_mut().linger = Duration::from_millis(100);
    for _ in 0..5 {
        let (left, mut right) = pair::<P>(&one, &other, &config).unwrap();
        std::thread::scope(|scope| {
            let mut sender = left.sender;
            scope.spawn(move || while sender.send(b"on and on").is_ok() {});
            (0..100).for_each(|_| drop(right.receiver.recv().unwrap()));
            right.receiver.close();
        });
    }
}

fn a_hello_that_cannot_be_is_refused_and_takes_no_place<P: TestedProtocol>() {
    let ([one, other], config) = (devices(), P::quiet());
    let mut receiver = receiver::<P>(&one, &config, 1).unwrap();
    let listener = Listener::<P>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    let end = HandMadeEnd::new(&other, Shape::default());
    let hello = Parameters {
        protocol: P::ID,
        initiator_to_acceptor: Some(end.endpoint()),
        ..parameters(&other, Options::NONE)
    };
    let mut hellos = vec![Parameters { options: Options(0x40), ..hello }];
    if size_of::<P::Terms>() > 0 {
        // Otherwise all that a sender says there is its user's.
        let junk: [&[u8]; 4] = [&[], &[0; 7], &[0; 200], &[0xff; 200]];
        hellos.extend(junk.map(|application| Parameters { application, ..hello }));
    }
    for hello in hellos {
        std::thread::scope(|scope| {
            let heard = scope.spawn(|| {
                let mut stream = TcpStream::connect(address).unwrap();
                write_frame(&mut stream, &Frame::Hello(hello));
                read_frame(&mut stream).expect("an answer")
            });
            let incoming = listener.next();
            let refused =
                incoming.map(|incoming| incoming.accept_into(&mut receiver, &one, &config));
            assert!(!matches!(refused, Ok(Ok(_))), "{hello:?}");
            let heard = heard.join().unwrap();
            assert!(matches!(decode(&heard).unwrap().frame, Frame::Refuse(_)), "{hello:?}");
        });
    }
    let mut honest = join::<P>(&mut receiver, &one, &other, &config).unwrap();
    honest.send(b"the place is free").unwrap();
    assert_eq!(&*receiver.recv().unwrap(), b"the place is free");
}

fn without_room_a_send_waits_as_long_as_it_is_told<P: TestedProtocol>() {
    const BYTES: usize = 1000;
    let [one, other] = devices();
    let (mut left, mut right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    let too_long = vec![0; left.sender.max_message_bytes() + 1];
    assert!(matches!(left.sender.try_send(&too_long), Err(SendError::TooLong { .. })));
    // Until there is no room, and none becomes free: nothing is received.
    let mut accepted = 0_u64;
    let refused = loop {
        let message = content(0, accepted, BYTES);
        match left.sender.send_timeout(&message, Duration::from_millis(20)) {
            Ok(_) => accepted += 1,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, SendError::TimedOut { .. }), "{refused:?}");
    // A send that waits continues when the receiver frees messages.
    let more = 2 * accepted;
    std::thread::scope(|scope| {
        let mut sender = left.sender;
        scope.spawn(move || {
            for number in accepted..more {
                sender.send(&content(0, number, BYTES)).unwrap();
            }
            sender.close().unwrap();
        });
        // Accepted messages arrive once and in order, and refused ones never.
        let mut number = 0;
        loop {
            match right.receiver.recv_timeout(support::PATIENCE) {
                Ok(message) => assert_content(&message, 0, number, BYTES),
                Err(end) => break assert_eq!((end, number), (RecvError::Closed, more)),
            }
            number += 1;
        }
    });
    let none = left.receiver.recv_timeout(Duration::from_millis(1));
    assert_eq!(none.map(drop), Err(RecvError::TimedOut));
}

/// Ten times what the receiver has memory for passes the message (twice, where that takes long), or
/// the sender is out of room for good.
fn a_message_that_is_held_stalls_no_others<P: TestedProtocol>() {
    /// Looks at both halves after which nothing more arrives, where something would stall.
    const LOOKS: u32 = 10_000;
    /// Bytes of the message: more than a [`Message`](rdma_conn::direct_write::Message) has in itself,
    /// so that it holds the copy or the buffer that it lies in.
    const HELD: usize = 100;
    let [one, other] = devices();
    let (mut left, mut right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    left.sender.send(&content(0, 0, HELD)).unwrap();
    let held = right.receiver.recv().unwrap();
    let message = vec![7; left.sender.max_message_bytes().min(16 << 10)];
    let rings = if one.copies_on_processor() { 10 } else { 2 };
    let wanted = rings * right.receiver.registered_bytes() / message.len() as u64;
    let (mut sent, mut received, mut looks) = (0, 0, 0);
    while received < wanted && !(P::STALLS && looks == LOOKS) {
        looks += 1;
        match left.sender.try_send(&message) {
            Ok(_) => (sent, looks) = (sent + 1, 0),
            Err(SendError::Full(_)) => {}
            Err(e) => panic!("{e}"),
        }
        match right.receiver.try_recv() {
            Ok(next) => {
                assert!(*next == *message);
                (received, looks) = (received + 1, 0);
            }
            Err(RecvError::Empty) => {}
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(received < wanted, P::STALLS, "{received} of {sent}");
    assert_content(&held, 0, 0, HELD);
}

fn a_ticket_is_acknowledged_without_further_sends<P: TestedProtocol>() {
    let [one, other] = devices();
    let (mut left, mut right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    let ticket = left.sender.send(b"only this one").unwrap();
    // A Buffered Read receiver acknowledges in the calls that receive.
    let message = right.receiver.recv().unwrap();
    while !left.sender.is_acked(ticket).unwrap() {
        assert_eq!(right.receiver.try_recv().map(drop), Err(RecvError::Empty));
    }
    left.sender.wait_acked_timeout(ticket, Duration::ZERO).unwrap();
    assert_eq!(&*message, b"only this one");
    // Waits that have to wait: for the receiver's thread.
    std::thread::scope(|scope| {
        let mut receiver = right.receiver;
        scope.spawn(move || {
            for number in 0..4 {
                assert_content(&receiver.recv().unwrap(), 0, number, 50);
            }
            assert_eq!(receiver.recv().map(drop), Err(RecvError::Closed));
        });
        let ticket = left.sender.send(&content(0, 0, 50)).unwrap();
        left.sender.wait_acked(ticket).unwrap();
        left.sender.send_acked(&content(0, 1, 50)).unwrap();
        left.sender.send_acked_timeout(&content(0, 2, 50), support::PATIENCE).unwrap();
        left.sender.send_timeout(&content(0, 3, 50), support::PATIENCE).unwrap();
        left.sender.flush_timeout(support::PATIENCE).unwrap();
        left.sender.wait_all_timeout(support::PATIENCE).unwrap();
        left.sender.close_timeout(support::PATIENCE).unwrap();
    });
}

/// A message is kept by its type alone, and dropped on any thread.
fn keep<R: RecvHalf>(receiver: &mut R, kept: &mut Vec<R::Message>) {
    kept.push(receiver.recv().unwrap());
}

fn one_receiver_takes_from_many_senders<P: TestedProtocol>() {
    let ([one, other], config) = (devices(), P::quiet());
    let none = receiver::<P>(&one, &config, 0).map(drop).unwrap_err();
    assert!(matches!(&none, ConnectError::Config(e) if e.field == "max_peers"), "{none:?}");
    let mut all = receiver::<P>(&one, &config, 4).unwrap();
    assert_eq!(all.try_recv().map(drop), Err(RecvError::Empty), "none has joined");
    assert_eq!(all.recv().map(drop), Err(RecvError::Closed), "none can join meanwhile");
    let senders: Vec<P::Sender> =
        (0..4).map(|_| join::<P>(&mut all, &one, &other, &config).unwrap()).collect();
    let fifth = join::<P>(&mut all, &one, &other, &config).map(drop);
    assert!(matches!(fifth, Err(ConnectError::TooManyPeers(4))), "{fifth:?}");
    assert!(all.peers() == 4 && all.registered_bytes() > 0);
    std::thread::scope(|scope| {
        for (stream, mut sender) in (0..).zip(senders) {
            scope.spawn(move || {
                for number in 0..100 {
                    sender.send(&content(stream, number, 40)).unwrap();
                }
                sender.close().unwrap();
            });
        }
        let (mut next, mut kept) = ([0; 4], Vec::new());
        for _ in 0..400 {
            keep(&mut all, &mut kept);
            let message = &kept[kept.len() - 1];
            let Peer(peer) = message.peer();
            assert_content(message, peer.into(), next[peer as usize], 40);
            next[peer as usize] += 1;
            if kept.len() == 8 {
                let kept = std::mem::take(&mut kept);
                scope.spawn(|| drop(kept));
            }
        }
        assert_eq!(all.recv().map(drop), Err(RecvError::Closed));
    });
    // Their places are free again.
    let mut next = join::<P>(&mut all, &one, &other, &config).unwrap();
    next.send(b"in a place that was left").unwrap();
    let message = all.recv().unwrap();
    assert_eq!((&*message, message.peer()), (&b"in a place that was left"[..], Peer(4)));
    // A receiver that is dropped first is not waited for.
    drop(message);
    drop(all);
}

/// The device has work of the sender that has closed for two milliseconds more.
fn a_sender_joins_in_the_place_that_another_has_just_left<P: TestedProtocol>() {
    let device = rdma_conn::device::open(Some("soft0@2000us")).unwrap();
    let config = P::quiet();
    let mut all = receiver::<P>(&device, &config, 1).unwrap();
    for number in 0..5 {
        let mut sender = join::<P>(&mut all, &device, &device, &config).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                sender.send(&content(0, number, 40)).unwrap();
                sender.close().unwrap();
            });
            let message = all.recv().unwrap();
            assert_content(&message, 0, number, 40);
            assert_eq!(all.recv().map(drop), Err(RecvError::Closed));
            scope.spawn(move || drop(message));
        });
    }
}

fn two_ends_meet_over_tcp<P: TestedProtocol>() {
    let ([one, other], config) = (devices(), P::quiet());
    let listener = Listener::<P>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut near = connect::<P>(address, &other, &config).unwrap();
            near.sender.send(b"ping").unwrap();
            assert_eq!(&*near.receiver.recv().unwrap(), b"pong");
            near.sender.close().unwrap();
            let mut only = connect_sender::<P>(address, &other, &config).unwrap();
            only.send(b"one way").unwrap();
            only.close().unwrap();
            // Each way is refused where the other one is served.
            assert!(connect_sender::<P>(address, &other, &config).is_err());
            assert!(connect::<P>(address, &other, &config).is_err());
        });
        let mut far = listener.next().unwrap().accept(&one, &config).unwrap();
        assert_eq!(&*far.receiver.recv().unwrap(), b"ping");
        far.sender.send(b"pong").unwrap();
        assert_eq!(far.receiver.recv().map(drop), Err(RecvError::Closed));
        let mut all = receiver::<P>(&one, &config, 1).unwrap();
        let incoming = listener.next().unwrap();
        assert!(incoming.is_one_way());
        let peer = incoming.accept_into(&mut all, &one, &config).unwrap();
        let message = all.recv().unwrap();
        assert_eq!((&*message, message.peer()), (&b"one way"[..], peer));
        assert_eq!(all.recv().map(drop), Err(RecvError::Closed));
        let one_way = listener.next().unwrap().accept(&one, &config).map(drop);
        assert!(matches!(one_way, Err(ConnectError::Handshake(_))), "{one_way:?}");
        let both_ways = listener.next().unwrap().accept_into(&mut all, &one, &config);
        assert!(matches!(both_ways, Err(ConnectError::Handshake(_))), "{both_ways:?}");
    });
}

fn each_half_knows_the_addresses_of_its_stream<P: TestedProtocol>() {
    let ([one, other], config) = (devices(), P::quiet());
    let listener = Listener::<P>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    let (near, far) = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| connect::<P>(address, &other, &config).unwrap());
        let far = listener.next().unwrap().accept(&one, &config).unwrap();
        (connecting.join().unwrap(), far)
    });
    let own = near.sender.local_addr();
    assert!(own.is_some_and(|own| own.ip().is_loopback() && own != address), "{own:?}");
    assert_eq!(near.sender.peer_addr(), Some(address));
    assert_eq!(near.receiver.peer_addr(Peer(0)), Some(address));
    assert_eq!((far.sender.local_addr(), far.sender.peer_addr()), (Some(address), own));
    assert_eq!((far.receiver.peer_addr(Peer(0)), far.receiver.peer_addr(Peer(1))), (own, None));
    near.abort();
    far.abort();
    // Within a process there is no network.
    let (left, right) = pair::<P>(&one, &other, &config).unwrap();
    for end in [left, right] {
        assert_eq!((end.sender.local_addr(), end.sender.peer_addr()), (None, None));
        assert_eq!(end.receiver.peer_addr(Peer(0)), None);
        end.abort();
    }
}

fn both_ends_see_a_close<P: TestedProtocol>() {
    let [one, other] = devices();
    let (mut left, right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    right.receiver.close();
    let ended = loop {
        match left.sender.send(b"to an end that has closed") {
            Ok(_) => {}
            Err(ended) => break ended,
        }
    };
    let SendError::Ended(reason) = ended else { panic!("{ended:?}") };
    assert!(matches!(reason, CloseReason::Closed | CloseReason::PeerClosed { unacked: 1.. }));
    // A Buffered Read receiver has to look for the end that is waited for.
    std::thread::scope(|scope| {
        scope.spawn(|| right.sender.close().unwrap());
        assert_eq!(left.receiver.recv().map(drop), Err(RecvError::Closed));
    });
    // Nothing was sent: the close is one.
    let (left, right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    right.receiver.close();
    let closed = left.sender.close();
    assert_eq!(closed, Ok(()));
}

fn a_ticket_of_another_sender_is_unknown<P: TestedProtocol>() {
    let [one, other] = devices();
    let (mut left, mut right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    let ticket = left.sender.send(b"left").unwrap();
    for _ in 0..3 {
        right.sender.send(b"a ticket of the same number").unwrap();
        drop(left.receiver.recv().unwrap());
    }
    assert_eq!(right.sender.is_acked(ticket), Err(SendError::UnknownTicket));
    assert_eq!(right.sender.wait_acked(ticket), Err(SendError::UnknownTicket));
}

fn a_message_is_filled_in_place_and_sent_when_it_is_committed<P: TestedProtocol>() {
    let [one, other] = devices();
    let (mut left, mut right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    let sender = &mut left.sender;
    let too_long = sender.max_message_bytes() + 1;
    assert!(matches!(sender.reserve(too_long).map(drop), Err(SendError::TooLong { .. })));
    for number in 0..100_u64 {
        // What is dropped, also with bytes in it, is never sent.
        sender.reserve(100).unwrap().write(0, b"never sent").unwrap();
        let mut room = sender.try_reserve(40).unwrap();
        assert_eq!(room.capacity(), 40);
        let beyond = room.write(39, b"12").unwrap_err();
        assert_eq!(beyond, SendError::TooLong { bytes: 41, limit: 40 });
        assert!(room.write(usize::MAX, b"1").is_err());
        // Back to front, and less than was reserved.
        let message = content(0, number, 30);
        room.write(20, &message[20..]).unwrap();
        room.write(0, &message[..20]).unwrap();
        let ticket = room.commit(30).unwrap();
        assert_content(&right.receiver.recv().unwrap(), 0, number, 30);
        while !sender.is_acked(ticket).unwrap() {
            // A Buffered Read receiver acknowledges in the calls that receive.
            assert_eq!(right.receiver.try_recv().map(drop), Err(RecvError::Empty));
        }
        let refused = sender.reserve(4).unwrap().commit(5);
        assert_eq!(refused, Err(SendError::TooLong { bytes: 5, limit: 4 }));
    }
    // Nothing at all is a message, too.
    sender.reserve(0).unwrap().commit(0).unwrap();
    assert_eq!(right.receiver.recv().unwrap().len(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| left.sender.close().unwrap());
        assert_eq!(right.receiver.recv().map(drop), Err(RecvError::Closed));
    });
}

fn room_that_is_not_there_is_waited_for<P: TestedProtocol>() {
    const BYTES: usize = 1000;
    let [one, other] = devices();
    let (mut left, mut right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    let soon = Duration::from_millis(20);
    let mut sent = 0;
    // That there is no room is reported again, unless some has become free late.
    loop {
        match left.sender.reserve_timeout(BYTES, soon).map(|mut room| {
            room.write(0, &content(0, sent, BYTES)).unwrap();
            room.commit(BYTES).unwrap();
        }) {
            Ok(()) => sent += 1,
            Err(refused) => {
                assert!(matches!(refused, SendError::TimedOut { .. }), "{refused:?}");
                let full = left.sender.try_reserve(BYTES).map(drop);
                let waited = left.sender.wait_for_room_timeout(BYTES, soon);
                if let (Err(SendError::Full(_)), Err(SendError::TimedOut { .. })) = (full, waited) {
                    break;
                }
            }
        }
    }
    std::thread::scope(|scope| {
        let mut sender = left.sender;
        scope.spawn(move || {
            for number in sent..2 * sent {
                sender.wait_for_room(BYTES).unwrap();
                let mut room = sender.try_reserve(BYTES).unwrap();
                room.write(0, &content(0, number, BYTES)).unwrap();
                room.commit(BYTES).unwrap();
            }
            sender.close().unwrap();
        });
        for number in 0..2 * sent {
            assert_content(&right.receiver.recv().unwrap(), 0, number, BYTES);
        }
        assert_eq!(right.receiver.recv().map(drop), Err(RecvError::Closed));
    });
}

fn what_is_sent_through_a_batch_arrives_when_it_is_dropped<P: TestedProtocol>() {
    let [one, other] = devices();
    let (mut left, mut right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    for round in 0..20 {
        let mut batch = left.sender.batch();
        for number in 0..5 {
            batch.send(&content(0, 5 * round + number, 60)).unwrap();
        }
        if P::NAME != BufferedRead::NAME {
            assert_eq!(right.receiver.try_recv().map(drop), Err(RecvError::Empty));
        }
        drop(batch);
        for number in 0..5 {
            assert_content(&right.receiver.recv().unwrap(), 0, 5 * round + number, 60);
        }
        // Not any more.
        left.sender.send(&content(1, round, 60)).unwrap();
        assert_content(&right.receiver.recv().unwrap(), 1, round, 60);
    }
    // Waiting for a message sends it, and what fails is reported by the next call.
    let mut batch = left.sender.batch();
    let ticket = batch.send(b"awaited").unwrap();
    let is_acked = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiver = &mut right.receiver;
        scope.spawn(|| {
            assert_eq!(&*receiver.recv().unwrap(), b"awaited");
            // A Buffered Read receiver acknowledges in the calls that receive.
            while !is_acked.load(Ordering::Acquire) {
                assert_eq!(receiver.try_recv().map(drop), Err(RecvError::Empty));
            }
        });
        let _acked = SetOnDrop(&is_acked);
        batch.wait_acked_timeout(ticket, support::PATIENCE).unwrap();
    });
    // Flushing sends what has gathered; the batch stays open.
    batch.send(b"flushed").unwrap();
    batch.flush_timeout(support::PATIENCE).unwrap();
    assert_eq!(&*right.receiver.recv().unwrap(), b"flushed");
    let mut inner = batch.batch();
    inner.send(b"of both").unwrap();
    drop(inner);
    if P::NAME != BufferedRead::NAME {
        assert_eq!(right.receiver.try_recv().map(drop), Err(RecvError::Empty));
    }
    right.receiver.close();
    batch.send(b"gathered, and never received").ok();
    drop(batch);
    let ended = loop {
        match left.sender.send_acked_timeout(b"to an end that has closed", support::PATIENCE) {
            Ok(()) => {}
            Err(ended) => break ended,
        }
    };
    assert!(matches!(&ended, SendError::Ended(reason) if reason.is_close()), "{ended:?}");
}

fn a_batch_posts_what_it_has_when_there_is_no_room<P: TestedProtocol>() {
    let [one, other] = devices();
    let (mut left, mut right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut batch = left.sender.batch();
            for number in 0..5000 {
                batch.send_timeout(&content(0, number, 600), support::PATIENCE).unwrap();
            }
            drop(batch);
            left.sender.close().unwrap();
        });
        for number in 0..5000 {
            assert_content(&right.receiver.recv().unwrap(), 0, number, 600);
        }
        assert_eq!(right.receiver.recv().map(drop), Err(RecvError::Closed));
    });
}

/// A receiver that waits because its program holds all its buffers continues when another thread
/// frees one.
fn a_message_that_another_thread_frees_makes_room<P: TestedProtocol>() {
    const BYTES: usize = 1000;
    /// Looks of the receiver that find nothing: as much is held as may be.
    const LOOKS: u64 = 10_000;
    let [one, other] = devices();
    let (left, mut right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    let mut sender = left.sender;
    let (send_kept, kept) = std::sync::mpsc::channel();
    let is_full = &AtomicBool::new(false);
    // Looks since the last message was sent or received.
    let looks = &AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut number = 0;
            // Until the receiver has all that it can hold. (A Buffered Write receiver copies, and
            // holds any number.)
            while number < support::repeated(20_000).min(P::MOST) {
                match sender.send_timeout(&content(0, number, BYTES), Duration::ZERO) {
                    Ok(_) => {
                        number += 1;
                        looks.store(0, Ordering::Relaxed);
                    }
                    Err(refused) => {
                        assert!(matches!(refused, SendError::TimedOut { .. }), "{refused:?}");
                        if looks.load(Ordering::Relaxed) >= LOOKS {
                            break;
                        }
                        std::thread::yield_now();
                    }
                }
            }
            assert!(number > 0, "nothing is held");
            is_full.store(true, Ordering::Relaxed);
            drop(kept.iter().collect::<Vec<<P::Receiver as RecvHalf>::Message>>());
            for more in 0..number {
                sender.send(&content(0, number + more, BYTES)).unwrap();
            }
            sender.close().unwrap();
        });
        let mut number = 0;
        let mut keep = Some(send_kept);
        loop {
            let message = match right.receiver.try_recv() {
                Err(RecvError::Empty) if is_full.load(Ordering::Relaxed) => {
                    keep = None;
                    right.receiver.recv()
                }
                received => received,
            };
            match message {
                Ok(message) => {
                    assert_content(&message, 0, number, BYTES);
                    number += 1;
                    looks.store(0, Ordering::Relaxed);
                    if let Some(keep) = &keep {
                        keep.send(message).unwrap();
                    }
                }
                Err(RecvError::Empty) => {
                    looks.fetch_add(1, Ordering::Relaxed);
                    std::thread::yield_now();
                }
                Err(end) => break assert_eq!(end, RecvError::Closed),
            }
        }
    });
}

fn calls_after_the_end_know_what_was_acknowledged<P: TestedProtocol>() {
    let [one, other] = devices();
    let (mut left, mut right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    let first = left.sender.send(b"taken").unwrap();
    assert_eq!(&*right.receiver.recv().unwrap(), b"taken");
    while !left.sender.is_acked(first).unwrap() {
        assert_eq!(right.receiver.try_recv().map(drop), Err(RecvError::Empty));
    }
    right.receiver.close();
    let ended = loop {
        match left.sender.send_acked_timeout(b"never taken", support::PATIENCE) {
            Ok(()) => {}
            Err(ended) => break ended,
        }
    };
    assert!(matches!(&ended, SendError::Ended(reason) if reason.is_close()), "{ended:?}");
    assert_eq!(left.sender.flush(), Err(ended.clone()));
    assert_eq!(left.sender.try_send(b"more"), Err(ended.clone()));
    // Calls that look after the peer, which are some of those after a tick of the clock, and others.
    let (mut tick, mut ticks) = (host::time::tick(), 0);
    while ticks < 8 {
        assert_eq!(left.sender.try_reserve(4).map(drop), Err(ended.clone()));
        let now = host::time::tick();
        (tick, ticks) = (now, ticks + u32::from(now != tick));
    }
    assert_eq!(left.sender.is_acked(first), Ok(true));
    assert_eq!(left.sender.wait_acked(first), Ok(()));
}

/// Waits as an event loop does for what the answer of `arm` says. A descriptor that is not readable
/// in time is a lost wake-up.
fn messages_that_are_there_are_received_in_one_call<P: TestedProtocol>() {
    let [one, other] = devices();
    let (mut left, mut right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    assert_eq!(right.receiver.try_recv_each(|_, _| ()), Err(RecvError::Empty));
    let mut next = 0;
    for number in 0..50 {
        left.sender.send(&content(0, number, 60)).unwrap();
        while next <= number {
            let received = right.receiver.try_recv_each(|peer, message| {
                assert_eq!(peer, Peer(0));
                assert_content(message, 0, next, 60);
                next += 1;
            });
            assert!(matches!(received, Ok(1..) | Err(RecvError::Empty)), "{received:?}");
        }
        assert_eq!(right.receiver.try_recv_each(|_, _| ()), Err(RecvError::Empty));
    }
    std::thread::scope(|scope| {
        // A Buffered Read sender waits until its end is read.
        scope.spawn(|| left.sender.close().unwrap());
        let ended = loop {
            match right.receiver.try_recv_each(|_, message| panic!("{} bytes", message.len())) {
                Err(RecvError::Empty) => {}
                ended => break ended,
            }
        };
        assert_eq!(ended, Err(RecvError::Closed));
    });
}

fn wait_for(arm: Arm<'_>) {
    match arm {
        Arm::Ready => {}
        Arm::Poll(after) => std::thread::sleep(after),
        Arm::Fd(descriptor) => {
            let mut fds = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
            let limit = Timespec::try_from(support::PATIENCE / 4).unwrap();
            let polled = poll(&mut fds, Some(&limit));
            assert!(matches!(polled, Ok(1) | Err(Errno::INTR)), "nothing wakes the loop");
        }
    }
}

fn an_event_loop_of_ones_own_drives_both_halves<P: TestedProtocol>() {
    const BYTES: usize = 500;
    let count = support::repeated(8000).min(P::MOST);
    let [one, other] = devices();
    let (left, mut right) = pair::<P>(&one, &other, &P::quiet()).unwrap();
    std::thread::scope(|scope| {
        let mut sender = left.sender;
        scope.spawn(move || {
            for number in 0..count {
                let message = content(0, number, BYTES);
                let ticket = loop {
                    match sender.try_send(&message) {
                        Ok(ticket) => break ticket,
                        Err(SendError::Full(_)) => wait_for(sender.arm().unwrap()),
                        Err(end) => panic!("{end}"),
                    }
                };
                // Both ends sleep now and then.
                if number % 1000 == 999 {
                    while !sender.is_acked(ticket).unwrap() {
                        wait_for(sender.arm().unwrap());
                    }
                }
            }
            sender.close().unwrap();
        });
        let (give, given) = std::sync::mpsc::sync_channel(16);
        scope.spawn(move || given.iter().for_each(drop::<<P::Receiver as RecvHalf>::Message>));
        let mut number = 0;
        let end = loop {
            match right.receiver.try_recv() {
                Ok(message) => {
                    assert_content(&message, 0, number, BYTES);
                    number += 1;
                    // Every other one is freed by another thread, which gives its room back.
                    if number % 2 == 0 {
                        give.send(message).unwrap();
                    } else {
                        right.receiver.free(message);
                    }
                }
                Err(RecvError::Empty) => wait_for(right.receiver.arm().unwrap()),
                Err(end) => break end,
            }
        };
        assert_eq!((end, number), (RecvError::Closed, count));
    });
}

/// Reports whether the descriptor is readable within this time; `None` if there is none.
fn is_readable(arm: &Arm<'_>, within: Duration) -> Option<bool> {
    let Arm::Fd(descriptor) = arm else { return None };
    let mut fds = [PollFd::from_borrowed_fd(*descriptor, PollFlags::IN)];
    let limit = Timespec::try_from(within).unwrap();
    loop {
        match poll(&mut fds, Some(&limit)) {
            Err(Errno::INTR) => {}
            polled => break Some(polled.unwrap() > 0),
        }
    }
}

fn an_armed_half_is_readable_for_news_and_after_a_keepalive_interval_only<P: TestedProtocol>() {
    let [one, other] = devices();
    for keepalive in [support::NEVER, Duration::from_millis(20)] {
        let mut config = P::quiet();
        config.as_mut().keepalive = keepalive;
        let (mut left, mut right) = pair::<P>(&one, &other, &config).unwrap();
        for number in 0..3 {
            let ticket = left.sender.send(&content(0, number, 40)).unwrap();
            let message = right.receiver.recv().unwrap();
            assert_content(&message, 0, number, 40);
            drop(message);
            while !left.sender.is_acked(ticket).unwrap() {
                assert_eq!(right.receiver.try_recv().map(drop), Err(RecvError::Empty));
            }
            // What the device still has to say of that is no news for long.
            let mut is_quiet = || {
                while matches!(right.receiver.arm().unwrap(), Arm::Ready) {
                    assert_eq!(right.receiver.try_recv().map(drop), Err(RecvError::Empty));
                }
                while matches!(left.sender.arm().unwrap(), Arm::Ready) {}
                if keepalive != support::NEVER {
                    return true;
                }
                let arms = [left.sender.arm().unwrap(), right.receiver.arm().unwrap()];
                // A Buffered Read receiver is readable after `max_sleep`, a millisecond.
                let of = if P::NAME == BufferedRead::NAME { &arms[..1] } else { &arms };
                of.iter().all(|arm| is_readable(arm, Duration::ZERO) != Some(true))
            };
            let end = Instant::now() + support::PATIENCE;
            while !is_quiet() {
                assert!(Instant::now() < end, "always readable");
            }
            if keepalive != support::NEVER {
                for arm in [left.sender.arm().unwrap(), right.receiver.arm().unwrap()] {
                    assert_ne!(is_readable(&arm, support::PATIENCE / 4), Some(false), "{arm:?}");
                }
            }
        }
    }
}

fn what_comes_while_a_sender_joins_wakes_an_event_loop<P: TestedProtocol>() {
    let ([one, other], config) = (devices(), P::quiet());
    let mut all = receiver::<P>(&one, &config, 1).unwrap();
    for number in 0..20 {
        let mut sender = join::<P>(&mut all, &one, &other, &config).unwrap();
        assert_eq!(all.try_recv().map(drop), Err(RecvError::Empty));
        wait_for(match all.arm().unwrap() {
            // Nothing has arrived: it is not waited for.
            Arm::Fd(_) => Arm::Ready,
            other => other,
        });
        sender.send(&content(0, number, 40)).unwrap();
        // There is no place for another one: what has completed is looked at to see that.
        assert!(join::<P>(&mut all, &one, &other, &config).is_err());
        std::thread::scope(|scope| {
            scope.spawn(|| sender.close().unwrap());
            let mut got = 0;
            loop {
                wait_for(all.arm().unwrap());
                match all.try_recv() {
                    Ok(message) => {
                        assert_content(&message, 0, number, 40);
                        got += 1;
                    }
                    Err(RecvError::Empty) => {}
                    Err(end) => break assert_eq!((end, got), (RecvError::Closed, 1)),
                }
            }
        });
    }
}
