//! Shared Write: extents, tickets, senders that sleep, lie and die.
//!
//! Shows: one protocol.

mod support;

use std::os::unix::net::UnixStream;
use std::time::Duration;

use rdma_conn::conn_core::shared_write::{ClaimError, ExtentError, entry_word};
use rdma_conn::device::Device;
use rdma_conn::shared_write::{
    CloseReason, Config, Full, Peer, ProtocolError, Receiver, RecvError, SendError, Sender,
};
use rdma_conn::verbs_safe::WcStatus;
use rdma_conn::{
    Common, Connection, Listener, RecvHalf, SendHalf, SharedWrite, WaitStrategy,
    connect_sender_over, join, pair, receiver,
};
use support::extents::{END, RawReceiver, RawSender};
use support::{PATIENCE, assert_content, bounded, content, device, repeated};

/// Extents with room for five messages of 100 bytes.
const EXTENT_BYTES: u32 = 704;
const PER_EXTENT: u64 = 5;
const EXTENTS: u64 = 6;

fn small() -> Config {
    let common = Common { keepalive: support::NEVER, ..support::common() };
    Config {
        extents: EXTENTS as u32,
        extent_bytes: EXTENT_BYTES,
        message_bytes: 100,
        common,
        ..support::config::<Config>()
    }
}

/// As [`small`], for peers that die: an end that waits asks soon.
fn inquisitive() -> Config {
    let common = Common {
        keepalive: Duration::from_millis(20),
        transport: support::mortal(),
        ..support::common()
    };
    Config { common, ..small() }
}

fn ends(config: &Config) -> (Connection<SharedWrite>, Connection<SharedWrite>) {
    let device = device();
    pair::<SharedWrite>(&device, &device, config).unwrap()
}

/// A receiver for `peers` senders, and `senders` of them.
fn many(config: &Config, peers: u32, senders: usize) -> (Receiver, Vec<Sender>) {
    let device = device();
    let mut receiver = receiver::<SharedWrite>(&device, config, peers).unwrap();
    let mut join = || join::<SharedWrite>(&mut receiver, &device, &device, config).unwrap();
    let senders = (0..senders).map(|_| join()).collect();
    (receiver, senders)
}

/// Sends as many messages as there is room for; returns their number.
fn fill(sender: &mut Sender) -> u64 {
    let mut sent = 0;
    // On a device with a way of its own, a ticket takes some calls.
    for _ in 0..2000 {
        while sender.try_send(&[7; 100]).is_ok() {
            sent += 1;
        }
        std::thread::yield_now();
    }
    sent
}

/// As [`fill`], until `least` were sent: at a distance, a sender learns later what is free. The receiver
/// takes none of them, and finds the extents of senders that have gone.
fn fill_with(sender: &mut Sender, receiver: &mut Receiver, least: u64) -> u64 {
    let mut sent = fill(sender);
    while sent < least {
        assert!(receiver.arm().is_ok());
        sent += fill(sender);
    }
    sent
}

#[test]
fn every_length_arrives_whichever_way_it_is_waited_for() {
    for wait in [WaitStrategy::Spin, WaitStrategy::Block, WaitStrategy::Adaptive] {
        bounded(move || {
            let config = small();
            let config = Config { common: Common { wait, ..config.common }, ..config };
            let (mut a, mut b) = ends(&config);
            let sending = std::thread::spawn(move || {
                for number in 0..3 * 101 {
                    a.sender.send(&content(0, number, number as usize % 101)).unwrap();
                }
                a.sender.close().unwrap();
            });
            for number in 0..3 * 101 {
                let message = b.receiver.recv().unwrap();
                assert_content(&message, 0, number, number as usize % 101);
            }
            assert_eq!(b.receiver.recv().unwrap_err(), RecvError::Closed);
            sending.join().unwrap();
        });
    }
}

#[test]
fn one_sender_can_use_the_whole_ring() {
    bounded(|| {
        let (mut a, mut b) = ends(&small());
        for round in 0..10 {
            // A full extent belongs to the sender until it continues in the next one.
            let own = u64::from(round > 0);
            let most = (EXTENTS - own) * PER_EXTENT;
            let sent = fill_with(&mut a.sender, &mut b.receiver, most);
            assert_eq!(sent, most);
            assert_eq!(a.sender.try_send(&[7; 100]).unwrap_err(), SendError::Full(Full::Extents));
            for _ in 0..sent {
                b.receiver.recv_timeout(PATIENCE).unwrap();
            }
            assert_eq!(b.receiver.try_recv().map(drop), Err(RecvError::Empty));
        }
        assert!(a.sender.stats().credit_stalls >= 10);
    });
}

#[test]
fn a_message_takes_one_request_and_a_ticket_is_for_many() {
    bounded(|| {
        let (mut a, mut b) = ends(&support::config::<Config>());
        for number in 0..2000 {
            a.sender.send(&content(0, number, 50)).unwrap();
            assert_content(&b.receiver.recv().unwrap(), 0, number, 50);
        }
        a.sender.wait_all().unwrap();
        let stats = a.sender.stats();
        // 80 bytes each, in extents of 36 KiB or so.
        assert!(stats.messages == 2000 && stats.tickets <= 8, "{stats:?}");
        let is_apart = stats.work_requests > 3000;
        let data = if is_apart { 4000 } else { 2000 };
        assert!(stats.work_requests <= data + 16 * stats.tickets + 8, "{stats:?}");
        assert_eq!(b.receiver.stats().work_requests, 0, "nothing goes back");
    });
}

#[test]
fn the_ring_does_not_grow_with_its_senders() {
    let bytes = |peers| many(&support::config::<Config>(), peers, 1).0.registered_bytes();
    let (one, more) = (bytes(1), bytes(65));
    assert_eq!(more - one, 64 * 128, "a link has two cache lines");
}

#[test]
fn a_sender_that_sleeps_keeps_no_other_one_waiting() {
    bounded(|| {
        let (mut receiver, mut senders) = many(&small(), 2, 2);
        senders[0].send_acked(b"it goes to sleep").unwrap();
        assert_eq!(&*receiver.recv().unwrap(), b"it goes to sleep");
        for number in 0..50 * PER_EXTENT {
            senders[1].send_timeout(&content(1, number, 100), support::PATIENCE).unwrap();
            let message = receiver.recv_timeout(support::PATIENCE).unwrap();
            assert_eq!(message.peer(), Peer(1));
            assert_content(&message, 1, number, 100);
        }
        senders[0].send_acked(b"it is awake").unwrap();
        assert_eq!(&*receiver.recv().unwrap(), b"it is awake");
    });
}

#[test]
fn sixteen_senders_share_the_ring_and_each_is_in_order() {
    bounded(|| {
        let config = Config { extents: 32, ..small() };
        let (mut receiver, senders) = many(&config, 16, 16);
        std::thread::scope(|scope| {
            for (stream, mut sender) in (0..).zip(senders) {
                scope.spawn(move || {
                    for number in 0..200 {
                        sender.send(&content(stream, number, (number % 101) as usize)).unwrap();
                    }
                    sender.close().unwrap();
                });
            }
            let mut next = [0; 16];
            loop {
                match receiver.recv() {
                    Ok(message) => {
                        let Peer(peer) = message.peer();
                        let number = std::mem::replace(&mut next[peer as usize], 0);
                        let len = (number % 101) as usize;
                        assert_content(&message, peer.into(), number, len);
                        next[peer as usize] = number + 1;
                    }
                    Err(RecvError::Closed) => break,
                    Err(other) => panic!("{other:?}"),
                }
            }
            assert_eq!(next, [200; 16]);
        });
    });
}

#[test]
fn a_sender_that_has_closed_gives_back_what_it_had() {
    bounded(|| {
        let config = small();
        let device = device();
        let mut receiver = receiver::<SharedWrite>(&device, &config, 3).unwrap();
        let mut stays = join::<SharedWrite>(&mut receiver, &device, &device, &config).unwrap();
        for round in 0..40 {
            let mut goes = join::<SharedWrite>(&mut receiver, &device, &device, &config).unwrap();
            // It leaves with an extent half full, and maybe with another one ahead.
            for _ in 0..round % 4 {
                goes.send_timeout(&[1; 100], support::PATIENCE).unwrap();
            }
            let closing = std::thread::spawn(move || goes.close());
            for _ in 0..round % 4 {
                assert_eq!(receiver.recv().unwrap().len(), 100);
            }
            closing.join().unwrap().unwrap();
            assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
        }
        while receiver.peers() > 1 {
            assert_eq!(receiver.try_recv().unwrap_err(), RecvError::Empty);
        }
        let all = EXTENTS * PER_EXTENT;
        let sent = fill_with(&mut stays, &mut receiver, all);
        assert_eq!(sent, all, "the whole ring is its own");
    });
}

/// A receiver with an honest peer 0 and room for two more.
fn victim(device: &Device, config: &Config) -> (Receiver, Sender) {
    let mut victim = receiver::<SharedWrite>(device, config, 3).unwrap();
    let honest = join::<SharedWrite>(&mut victim, device, device, config).unwrap();
    (victim, honest)
}

/// A hand-made peer of a receiver.
fn liar(device: &Device, victim: &mut Receiver, config: &Config) -> RawSender {
    let listener = Listener::<SharedWrite>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let raw = scope.spawn(|| RawSender::to(address, device));
        listener.next().unwrap().accept_into(victim, device, config).unwrap();
        raw.join().unwrap()
    })
}

#[test]
fn extents_of_senders_that_die_at_any_step_come_back() {
    bounded(|| {
        let (device, config) = (device(), inquisitive());
        let (mut victim, mut honest) = victim(&device, &config);
        for round in 0..repeated(20) {
            let mut dies = liar(&device, &mut victim, &config);
            dies.claim(round as usize % 5);
            dies.raw.drain();
            dies.raw.die();
            let lost = victim.recv().unwrap_err();
            let RecvError::Peer { reason: CloseReason::PeerLost(_), .. } = lost else {
                panic!("{lost:?}");
            };
            honest.send_acked(&[1; 100]).unwrap();
            assert_eq!(victim.recv().unwrap().len(), 100);
        }
        // Calls of both: on a device at a distance, requests progress in the calls of their owner.
        for _ in 0..PER_EXTENT {
            honest.send_acked(&[1; 100]).unwrap();
            assert_eq!(victim.recv().unwrap().len(), 100);
            assert_eq!(victim.try_recv().unwrap_err(), RecvError::Empty);
        }
        // All but what is left of its own extent is free.
        let sent = fill_with(&mut honest, &mut victim, (EXTENTS - 1) * PER_EXTENT);
        assert!(sent <= EXTENTS * PER_EXTENT, "{sent}");
    });
}

/// Writes that follow a goodbye would meet the words of the sender that has the link next.
#[test]
fn a_sender_that_closes_takes_no_ticket() {
    bounded(|| {
        let (device, config) = (device(), inquisitive());
        let (mut victim, honest) = victim(&device, &config);
        honest.close().unwrap();
        assert_eq!(liar(&device, &mut victim, &config).read_tail(), Some(1));
    });
}

/// Returns the close reason that the liar gets, after one honest message of it, while the honest
/// peer stays connected.
fn verdict(lie: impl Fn(&mut RawSender, u64) + Send + 'static) -> CloseReason {
    bounded(move || {
        let (device, config) = (device(), inquisitive());
        let (mut victim, mut honest) = victim(&device, &config);
        let mut liar = liar(&device, &mut victim, &config);
        let ticket = liar.claim(4).unwrap();
        liar.message(ticket, 0, b"honest");
        let message = victim.recv().unwrap();
        assert_eq!((message.peer(), &*message), (Peer(1), &b"honest"[..]));
        lie(&mut liar, ticket);
        let reason = match victim.recv().unwrap_err() {
            RecvError::Peer { peer: Peer(1), reason } => reason,
            other => panic!("{other:?}"),
        };
        for number in 0..20 {
            honest.send_acked(&content(1, number, 100)).unwrap();
            assert_content(&victim.recv().unwrap(), 1, number, 100);
        }
        assert_eq!(victim.try_recv().unwrap_err(), RecvError::Empty, "it is reported once");
        drop(honest);
        assert_eq!(victim.recv().unwrap_err(), RecvError::Closed);
        reason
    })
}

fn extent(error: ExtentError) -> CloseReason {
    CloseReason::Protocol(ProtocolError::Extent(error))
}

/// The words of a trailer behind the first message.
fn second(ticket: u64, len: u32) -> [u64; 2] {
    [ticket, 32 << 32 | u64::from(len)]
}

#[test]
fn a_message_that_cannot_be_ends_its_connection_alone() {
    let put = |words: fn(u64) -> [u64; 2]| {
        verdict(move |liar, ticket| liar.put(ticket as u32 - 1, 32, b"x", words(ticket)))
    };
    assert_eq!(put(|ticket| second(ticket, 101)), extent(ExtentError::TooLong { len: 101 }));
    let longest = END - 1;
    let found = put(|ticket| second(ticket, END - 1));
    assert_eq!(found, extent(ExtentError::TooLong { len: longest }));
    let stray = put(|_| second(99, 1));
    assert_eq!(stray, extent(ExtentError::Stray { ticket: 99 }));
    assert!(matches!(
        put(|ticket| [ticket, 1]),
        CloseReason::Protocol(ProtocolError::Extent(ExtentError::Stray { .. }))
    ));
    let unknown = put(|_| second(99, END));
    assert_eq!(unknown, extent(ExtentError::Ticket { ticket: 99 }));
    let back = put(|_| second(0, END));
    assert_eq!(back, extent(ExtentError::Ticket { ticket: 0 }));
    let fewer = verdict(|liar, _| liar.goodbye(0));
    assert_eq!(fewer, extent(ExtentError::Goodbye { total: 0 }));
    let more = verdict(|liar, _| liar.goodbye(7));
    assert_eq!(more, extent(ExtentError::Missing));
}

#[test]
fn a_dead_sender_is_reported_to_the_receiver() {
    let lost = verdict(|liar, _| liar.raw.die());
    assert!(matches!(lost, CloseReason::PeerLost(_)), "{lost:?}");
}

#[test]
fn a_goodbye_counts_after_its_sender_has_gone() {
    bounded(|| {
        let (device, config) = (device(), inquisitive());
        let (mut victim, honest) = victim(&device, &config);
        let mut liar = liar(&device, &mut victim, &config);
        drop(honest);
        let ticket = liar.claim(4).unwrap();
        liar.message(ticket, 0, b"last words");
        liar.goodbye(1);
        liar.raw.drain();
        drop(liar);
        assert_eq!(&*victim.recv().unwrap(), b"last words");
        assert_eq!(victim.recv().unwrap_err(), RecvError::Closed);
    });
}

#[test]
fn a_tail_that_is_too_far_ends_all_connections() {
    bounded(|| {
        let (device, config) = (device(), inquisitive());
        let (mut victim, mut honest) = victim(&device, &config);
        honest.send_acked(b"before").unwrap();
        assert_eq!(&*victim.recv().unwrap(), b"before");
        let mut liar = liar(&device, &mut victim, &config);
        liar.tail(1 << 60);
        for _ in 0..2 {
            let ended = victim.recv().unwrap_err();
            let RecvError::Peer { reason, .. } = ended else { panic!("{ended:?}") };
            let CloseReason::Protocol(ProtocolError::Extent(ExtentError::Tail { .. })) = reason
            else {
                panic!("{reason:?}");
            };
        }
        assert_eq!(victim.recv().unwrap_err(), RecvError::Closed);
    });
}

/// One that writes as fast as it can, whatever it likes: messages within the bounds, or an error.
#[test]
fn an_extent_that_is_scribbled_over_gives_messages_or_an_error() {
    bounded(|| {
        let (device, config) = (device(), inquisitive());
        let (mut victim, _honest) = victim(&device, &config);
        let mut liar = liar(&device, &mut victim, &config);
        let ticket = liar.claim(4).unwrap();
        let scribbling = std::thread::spawn(move || {
            let mut used = 0;
            for round in 0..400_u64 {
                let len = (round * 37 % 101) as u32;
                let record = len.next_multiple_of(8) + 24;
                let is_over = used + record + 24 > EXTENT_BYTES;
                let to = if is_over { 0 } else { used };
                let words = [ticket, u64::from(used) << 32 | u64::from(len)];
                liar.put(ticket as u32 - 1, to, &vec![round as u8; len as usize], words);
                used = if is_over { used } else { used + record };
                if liar.raw.drain().iter().any(|status| *status != WcStatus::SUCCESS) {
                    break;
                }
            }
            liar
        });
        loop {
            // What was written until then is seen.
            let is_over = scribbling.is_finished();
            match victim.try_recv() {
                Ok(message) => assert!(message.len() <= 100),
                Err(RecvError::Empty) if !is_over => std::thread::yield_now(),
                Err(
                    RecvError::Peer { reason: CloseReason::Protocol(_), .. } | RecvError::Empty,
                ) => break,
                Err(other) => panic!("{other:?}"),
            }
        }
        drop(scribbling.join().unwrap());
    });
}

/// A sender of the library, and a hand-made receiver with this tail.
fn victim_sender(config: &Config, tail: u64) -> (Sender, RawReceiver) {
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let device = device();
    std::thread::scope(|scope| {
        let raw = scope.spawn(|| RawReceiver::accept(&mut far, &device, tail));
        let sender = connect_sender_over::<SharedWrite, _>(&mut near, &device, config, b"");
        (sender.unwrap(), raw.join().unwrap())
    })
}

#[test]
fn a_ticket_that_was_passed_over_is_taken_again() {
    bounded(|| {
        let (mut victim, liar) = victim_sender(&small(), 1);
        liar.entry(2, entry_word(2, 1), 3); // tickets 1 and 2 are decided
        victim.send_timeout(b"1", support::PATIENCE).unwrap();
        assert!(victim.stats().tickets > 1, "{:?}", victim.stats());
    });
}

#[test]
fn words_that_cannot_be_end_the_sender() {
    let verdict = |tail: u64, word: u64| {
        bounded(move || {
            let (mut victim, liar) = victim_sender(&small(), tail);
            liar.entry(tail, word, 1);
            match victim.send_timeout(b"1", PATIENCE) {
                Err(SendError::Ended(CloseReason::Protocol(ProtocolError::Claim(e)))) => Some(e),
                Ok(_) => None,
                Err(other) => panic!("{other:?}"),
            }
        })
    };
    assert_eq!(verdict(1, entry_word(1, 1)), None);
    assert_eq!(verdict(1, entry_word(1, 2)), Some(ClaimError::Extent { extent: 2 }));
    assert_eq!(verdict(0, 0), Some(ClaimError::Ticket { ticket: 0 }));
    let far = 1 << 48;
    assert_eq!(verdict(far, 0), Some(ClaimError::Ticket { ticket: far }));
}

/// It stays there until the one of the ticket is stored.
#[test]
fn an_entry_of_another_ticket_is_read_again() {
    bounded(|| {
        let (mut victim, liar) = victim_sender(&small(), 1);
        liar.entry(1, entry_word(2, 7), 1);
        // A ticket takes four requests, and a look two: it has had the results of two looks.
        while victim.stats().work_requests < 4 + 3 * 2 {
            assert_eq!(victim.try_send(b"1"), Err(SendError::Full(Full::Extents)));
        }
        liar.entry(1, entry_word(1, 1), 2);
        victim.send_timeout(b"1", PATIENCE).unwrap();
    });
}

#[test]
fn a_stop_says_what_was_taken_and_one_that_cannot_be_is_a_lie() {
    let stop = |taken: u64| {
        bounded(move || {
            let (mut victim, mut liar) = victim_sender(&small(), 1);
            liar.entry(1, entry_word(1, 0), 2);
            victim.send_acked(b"1").unwrap();
            victim.send_acked(b"2").unwrap();
            liar.stop(taken);
            liar.raw.drain();
            // What goes out before the stop is seen lies in the receiver's memory, too.
            let mut send = || victim.send_acked_timeout(b"3", support::PATIENCE).err();
            (0..10).find_map(|_| send()).unwrap()
        })
    };
    let stopped = stop(2);
    assert!(
        matches!(&stopped, SendError::Ended(reason) if reason.is_close()),
        "the third may not have arrived: {stopped:?}"
    );
    let lie = ClaimError::Taken { taken: 99 };
    assert_eq!(stop(99), SendError::Ended(CloseReason::Protocol(ProtocolError::Claim(lie))));
}

#[test]
fn a_receiver_that_dies_is_found() {
    bounded(|| {
        let (mut victim, liar) = victim_sender(&inquisitive(), 1);
        liar.entry(1, entry_word(1, 0), 2);
        victim.send_acked(b"1").unwrap();
        drop(liar);
        let lost = victim.send_acked(b"2").unwrap_err();
        assert!(matches!(lost, SendError::Ended(CloseReason::PeerLost(_))), "{lost:?}");
    });
}

#[test]
fn a_trailer_inside_of_a_message_is_no_trailer() {
    bounded(|| {
        use rdma_conn::conn_core::checksum::checksum_of;
        let (mut a, mut b) = ends(&Config { extents: 2, ..small() });
        // The payload of the second message lies where the trailer of a message lies in a later
        // lap that follows one of 100 bytes; it has all words that such a trailer has.
        for lap in 1..40_u64 {
            a.sender.send_timeout(&[1; 100], support::PATIENCE).unwrap();
            assert_eq!(b.receiver.recv().unwrap().len(), 100);
            let mut forged = Vec::new();
            for at in (0..96).step_by(24) {
                let words = [lap + 1, (128 + at) << 32 | 8];
                let words = [words[0], words[1], checksum_of(&words)];
                forged.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            }
            a.sender.send_timeout(&forged, support::PATIENCE).unwrap();
            assert_eq!(*b.receiver.recv().unwrap(), forged);
            assert_eq!(b.receiver.try_recv().unwrap_err(), RecvError::Empty);
        }
    });
}
