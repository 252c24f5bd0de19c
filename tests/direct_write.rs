//! Direct Write: buffers, slots, both ways to find messages, peers that lie and peers that die.
//!
//! Shows: one protocol.

mod support;

use std::os::unix::net::UnixStream;
use std::time::Duration;

use rdma_conn::conn_core::direct_write::{ArrivalError, SlotError};
use rdma_conn::device::Device;
use rdma_conn::direct_write::{
    CloseReason, Config, Detection, Full, Peer, ProtocolError, Receiver, RecvError, SendError,
    Sender,
};
use rdma_conn::verbs_safe::WcStatus;
use rdma_conn::{
    Common, Connection, DirectWrite, Incoming, Listener, Protocol, RecvHalf, Room, SendHalf,
    SharedWrite, WaitStrategy, connect_sender_over, join, pair, receiver, shared_write,
};
use support::slots::{RawReceiver, RawSender};
use support::{assert_content, bounded, content, device};

const BOTH: [Detection; 2] = [Detection::Immediate, Detection::Polled];

fn small(detection: Detection) -> Config {
    let common = Common { keepalive: support::NEVER, ..support::common() };
    Config { buffers: 4, message_bytes: 100, detection, common, ..support::config::<Config>() }
}

/// As [`small`], for peers that die: an end that waits asks soon.
fn inquisitive(detection: Detection) -> Config {
    let common = Common {
        keepalive: Duration::from_millis(20),
        transport: support::mortal(),
        ..support::common()
    };
    Config { common, ..small(detection) }
}

fn ends(config: &Config) -> (Connection<DirectWrite>, Connection<DirectWrite>) {
    let device = device();
    pair::<DirectWrite>(&device, &device, config).unwrap()
}

#[test]
fn every_length_arrives_in_every_detection_and_wait_mode() {
    for detection in BOTH {
        for wait in [WaitStrategy::Spin, WaitStrategy::Block, WaitStrategy::Adaptive] {
            bounded(move || {
                let config = small(detection);
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
}

#[test]
fn a_sender_is_ahead_by_at_most_the_number_of_buffers() {
    for detection in BOTH {
        bounded(move || {
            let (mut a, mut b) = ends(&small(detection));
            for number in 0..4 {
                a.sender.send_acked(&content(0, number, 10)).unwrap();
            }
            assert_eq!(a.sender.try_send(b"5").unwrap_err(), SendError::Full(Full::Credits));
            assert_eq!(a.sender.stats().credit_stalls, 1);
            assert_content(&b.receiver.recv().unwrap(), 0, 0, 10);
            for number in 4..100 {
                a.sender.send_timeout(&content(0, number, 10), support::PATIENCE).unwrap();
                assert_content(&b.receiver.recv().unwrap(), 0, number - 3, 10);
            }
        });
    }
}

#[test]
fn a_message_takes_one_request_and_slots_share_theirs() {
    bounded(|| {
        let config = Config { buffers: 64, ..small(Detection::Immediate) };
        let (mut a, mut b) = ends(&config);
        for number in 0..640 {
            a.sender.send(&content(0, number, 50)).unwrap();
            assert_content(&b.receiver.recv().unwrap(), 0, number, 50);
        }
        assert_eq!(a.sender.stats().messages, 640);
        a.sender.wait_all().unwrap();
        // One more for the acknowledgement of the last.
        assert!(a.sender.stats().work_requests <= 641, "{:?}", a.sender.stats());
        let stats = b.receiver.stats();
        assert_eq!((stats.messages, stats.bytes), (640, 640 * 50));
        assert!(stats.slots_told >= 640 - 64 && stats.work_requests <= 640 / 16, "{stats:?}");
    });
}

#[test]
fn a_configured_batch_goes_out_when_complete_or_flushed() {
    bounded(|| {
        let (mut a, mut b) = ends(&Config { batch: 3, ..small(Detection::Polled) });
        a.sender.send(b"1").unwrap();
        a.sender.send(b"2").unwrap();
        assert_eq!(a.sender.unflushed(), 2);
        a.sender.send(b"3").unwrap();
        assert_eq!(a.sender.unflushed(), 0);
        assert_eq!(&*b.receiver.recv().unwrap(), b"1");
        let ticket = a.sender.send(b"4").unwrap();
        a.sender.wait_acked(ticket).unwrap();
        for expected in [b"2", b"3", b"4"] {
            assert_eq!(&*b.receiver.recv().unwrap(), expected);
        }
        a.sender.send(b"5").unwrap();
        a.sender.flush().unwrap();
        assert_eq!(&*b.receiver.recv().unwrap(), b"5");
    });
}

#[test]
fn the_shorter_limit_of_both_ends_holds() {
    for (near_bytes, far_bytes) in [(10, 100), (100, 10)] {
        bounded(move || {
            let device = device();
            let with = |message_bytes| Config { message_bytes, ..small(Detection::Polled) };
            let (mut near, far) = UnixStream::pair().unwrap();
            let mut sender = std::thread::scope(|scope| {
                let accepting = scope.spawn(|| {
                    let incoming = Incoming::<DirectWrite, _>::greet(far).unwrap();
                    incoming.accept_receiver(&device, &with(far_bytes)).unwrap()
                });
                let config = with(near_bytes);
                let sender =
                    connect_sender_over::<DirectWrite, _>(&mut near, &device, &config, b"");
                drop(accepting.join().unwrap());
                sender.unwrap()
            });
            assert_eq!(sender.max_message_bytes(), 10);
            let long = sender.try_send(&[0; 11]).unwrap_err();
            assert_eq!(long, SendError::TooLong { bytes: 11, limit: 10 });
        });
    }
}

#[test]
fn what_was_not_taken_when_a_receiver_stops_is_counted() {
    for detection in BOTH {
        bounded(move || {
            let (mut a, mut b) = ends(&small(detection));
            for number in 0..4 {
                a.sender.send_acked(&content(0, number, 10)).unwrap();
            }
            drop(b.receiver.recv().unwrap());
            drop(b);
            // All four are acknowledged: they lay in its memory. The fifth does not.
            let ended = CloseReason::PeerClosed { unacked: 1 };
            assert_eq!(a.sender.send_acked(b"more").unwrap_err(), SendError::Ended(ended));
        });
    }
}

#[test]
fn a_dead_sender_is_reported_to_the_receiver() {
    for detection in BOTH {
        let lost = verdict(detection, |liar| liar.raw.die());
        assert!(matches!(lost, CloseReason::PeerLost(_)), "{lost:?}");
    }
}

#[test]
fn a_receiver_that_dies_is_found() {
    bounded(|| {
        let (mut victim, liar) = victim_sender(&inquisitive(Detection::Polled), 2).unwrap();
        victim.send_acked(b"1").unwrap();
        drop(liar);
        let lost = victim.send_acked(b"2").unwrap_err();
        assert!(matches!(lost, SendError::Ended(CloseReason::PeerLost(_))), "{lost:?}");
    });
}

#[test]
fn a_goodbye_counts_after_its_sender_has_gone() {
    for detection in BOTH {
        bounded(move || {
            let (device, config) = (device(), inquisitive(detection));
            let (mut victim, honest, mut liar) = victim_receiver(&device, &config);
            drop(honest);
            liar.message(0, 1, b"last words");
            liar.goodbye(1);
            liar.raw.drain();
            drop(liar);
            assert_eq!(&*victim.recv().unwrap(), b"last words");
            assert_eq!(victim.recv().unwrap_err(), RecvError::Closed);
        });
    }
}

#[test]
fn a_busy_sender_does_not_keep_the_others_waiting() {
    for detection in BOTH {
        bounded(move || {
            let (device, config) = (device(), small(detection));
            let mut receiver = receiver::<DirectWrite>(&device, &config, 2).unwrap();
            let mut join =
                || join::<DirectWrite>(&mut receiver, &device, &device, &config).unwrap();
            let (mut busy, mut quiet) = (join(), join());
            let mut fill = || while busy.try_send(b"busy").is_ok() {};
            fill();
            assert_eq!(receiver.recv().unwrap().peer(), Peer(0));
            quiet.send_acked(b"quiet").unwrap();
            let is_served = (0..10_000).any(|_| {
                fill();
                receiver.recv().unwrap().peer() == Peer(1)
            });
            assert!(is_served, "{detection:?}");
        });
    }
}

/// However many messages there are, and however long.
fn turns_are_bounded<P: Protocol>(config: &P::Config) {
    // Messages of 8 bytes, and of a KiB: 64 of them are a turn, or 8 KiB and one more.
    for (bytes, turn) in [(8, 64), (1024, 9)] {
        let device = device();
        let (mut a, mut b) = pair::<P>(&device, &device, config).unwrap();
        let (message, mut left) = (vec![7; bytes], 2 * turn);
        (1..left).for_each(|_| _ = a.sender.send(&message).unwrap());
        a.sender.send_acked(&message).unwrap();
        while left > 0 {
            // On some devices, what has arrived shows in later calls.
            match b.receiver.try_recv_each(|_, _| ()) {
                Err(RecvError::Empty) => {}
                taken => {
                    let taken = taken.unwrap();
                    assert!((1..=turn).contains(&taken), "{taken} of {bytes} bytes");
                    left -= taken;
                }
            }
        }
    }
}

#[test]
fn a_turn_takes_so_much_of_one_sender() {
    for detection in BOTH {
        bounded(move || {
            let config = Config { buffers: 128, message_bytes: 1024, ..small(detection) };
            turns_are_bounded::<DirectWrite>(&config);
        });
    }
    bounded(|| {
        let common = small(Detection::Polled).common;
        let config = shared_write::Config { common, message_bytes: 1024, ..support::config() };
        turns_are_bounded::<SharedWrite>(&config);
    });
}

/// A receiver with an honest peer 0, and a hand-made one, 1.
fn victim_receiver(device: &Device, config: &Config) -> (Receiver, Sender, RawSender) {
    let mut victim = receiver::<DirectWrite>(device, config, 2).unwrap();
    let honest = join::<DirectWrite>(&mut victim, device, device, config).unwrap();
    let listener = Listener::<DirectWrite>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    let raw = std::thread::scope(|scope| {
        let raw = scope.spawn(|| RawSender::to(address, device, 64).expect("accepted"));
        listener.next().unwrap().accept_into(&mut victim, device, config).unwrap();
        raw.join().unwrap()
    });
    (victim, honest, raw)
}

/// Returns the close reason that the liar gets, after one honest message of it, while the honest
/// peer stays connected.
fn verdict(detection: Detection, lie: impl Fn(&mut RawSender) + Send + 'static) -> CloseReason {
    bounded(move || {
        let (device, config) = (device(), inquisitive(detection));
        let (mut victim, mut honest, mut liar) = victim_receiver(&device, &config);
        liar.message(0, 1, b"honest");
        let message = victim.recv().unwrap();
        assert_eq!((message.peer(), &*message), (Peer(1), &b"honest"[..]));
        lie(&mut liar);
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

fn arrival(error: ArrivalError) -> CloseReason {
    CloseReason::Protocol(ProtocolError::Arrival(error))
}

#[test]
fn a_message_that_cannot_be_ends_its_connection_alone() {
    for detection in BOTH {
        let long = verdict(detection, |liar| liar.put(1, b"x", [2, 101]));
        assert_eq!(long, arrival(ArrivalError::TooLong { len: 101 }));
        let longer = verdict(detection, |liar| liar.put(1, b"x", [2, u64::MAX]));
        assert_eq!(longer, arrival(ArrivalError::TooLong { len: u64::MAX }));
        let early = verdict(detection, |liar| liar.put(1, b"x", [3, 1]));
        assert_eq!(early, arrival(ArrivalError::Early { number: 3 }));
        let fewer = verdict(detection, |liar| liar.goodbye(0));
        assert_eq!(fewer, arrival(ArrivalError::Goodbye { total: 0 }));
        let more = verdict(detection, |liar| liar.goodbye(7));
        assert_eq!(more, arrival(ArrivalError::Missing), "six messages are not there");
    }
    let imm = |imm| verdict(Detection::Immediate, move |liar| liar.imm(imm));
    assert_eq!(imm(7), arrival(ArrivalError::Immediate(7)));
    assert_eq!(imm(0), arrival(ArrivalError::Missing), "an immediate without a message");
    let many = |liar: &mut RawSender| {
        (0..4).for_each(|_| liar.imm(0));
        liar.raw.drain();
    };
    let many = verdict(Detection::Immediate, many);
    let expected = [ArrivalError::Immediate(0), ArrivalError::Missing].map(arrival);
    assert!(expected.contains(&many), "{many:?}");
}

#[test]
fn a_trailer_that_is_half_written_is_waited_for() {
    bounded(|| {
        let (device, config) = (device(), small(Detection::Polled));
        let (mut victim, _honest, mut liar) = victim_receiver(&device, &config);
        for byte in [0xff, 1, 0x80] {
            liar.put_trailer(0, &[byte; 24]);
            liar.raw.drain();
            for _ in 0..100 {
                assert_eq!(victim.try_recv().unwrap_err(), RecvError::Empty);
            }
        }
        liar.message(0, 1, b"whole");
        assert_eq!(&*victim.recv().unwrap(), b"whole");
    });
}

#[test]
fn a_buffer_that_changes_under_our_feet_changes_no_message() {
    for detection in BOTH {
        bounded(move || {
            let (device, config) = (device(), small(detection));
            let (mut victim, _honest, mut liar) = victim_receiver(&device, &config);
            let payload = [7; 100];
            for number in 1..=2 {
                liar.message(number as u32 - 1, number, &payload);
            }
            liar.raw.drain();
            let first = victim.recv().unwrap();
            assert_eq!(*first, payload);
            for buffer in 0..2 {
                let words = [u64::from(buffer) + 1, 100];
                let to = liar.layout.payload_at(buffer, 100);
                assert!(to < liar.layout.bytes());
                if detection == Detection::Polled {
                    liar.put(buffer, &[9; 100], words);
                }
            }
            liar.raw.drain();
            assert_eq!(*first, payload);
            assert_eq!(victim.recv().unwrap().len(), 100);
            assert_eq!(*first, payload);
        });
    }
}

/// One that writes as fast as it can, whatever it likes: messages within the bounds, or an error.
#[test]
fn buffers_that_are_scribbled_over_give_messages_or_an_error() {
    bounded(|| {
        let (device, config) = (device(), inquisitive(Detection::Polled));
        let (mut victim, _honest, mut liar) = victim_receiver(&device, &config);
        let scribbling = std::thread::spawn(move || {
            for round in 0..400_u64 {
                let len = (round * 37 % 101) as usize;
                let words = [round / 3, len as u64 + u64::from(round == 390) * 1000];
                liar.put((round % 4) as u32, &vec![round as u8; len], words);
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

#[test]
fn a_sender_with_too_few_slots_is_refused() {
    bounded(|| {
        let (device, config) = (device(), small(Detection::Polled));
        let mut victim = receiver::<DirectWrite>(&device, &config, 1).unwrap();
        let listener = Listener::<DirectWrite>::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr();
        std::thread::scope(|scope| {
            let raw = scope.spawn(|| RawSender::to(address, &device, 3));
            let refused = listener.next().unwrap().accept_into(&mut victim, &device, &config);
            assert!(refused.unwrap_err().to_string().contains("3 slots for 4 buffers"));
            assert!(raw.join().unwrap().is_none());
        });
    });
}

/// A sender of the library, and a hand-made receiver with `buffers` buffers of 100 bytes.
fn victim_sender(config: &Config, buffers: u32) -> Option<(Sender, RawReceiver)> {
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let device = device();
    std::thread::scope(|scope| {
        let raw = scope.spawn(|| RawReceiver::accept(&mut far, &device, buffers));
        let sender = connect_sender_over::<DirectWrite, _>(&mut near, &device, config, b"");
        Some((sender.ok()?, raw.join().unwrap()?))
    })
}

#[test]
fn a_receiver_with_more_buffers_than_there_are_slots_is_refused() {
    bounded(|| {
        let config = Config { max_peer_buffers: 8, ..small(Detection::Polled) };
        assert!(victim_sender(&config, 9).is_none());
        assert!(victim_sender(&config, 8).is_some());
    });
}

#[test]
fn a_slot_that_cannot_be_ends_the_sender() {
    let slot = |words: [u64; 2]| {
        bounded(move || {
            let (mut victim, mut liar) = victim_sender(&small(Detection::Polled), 2).unwrap();
            victim.send_acked(b"1").unwrap();
            victim.send_acked(b"2").unwrap();
            assert_eq!(victim.try_send(b"3").unwrap_err(), SendError::Full(Full::Credits));
            liar.slot(2, words);
            match victim.send_timeout(b"3", support::PATIENCE) {
                Ok(_) => None,
                Err(SendError::Ended(CloseReason::Protocol(ProtocolError::Slot(e)))) => Some(e),
                Err(other) => panic!("{other:?}"),
            }
        })
    };
    assert_eq!(slot([2, 1]), None);
    assert_eq!(slot([2, 2]), Some(SlotError::Buffer { buffer: 2 }));
    assert_eq!(slot([2, u64::MAX]), Some(SlotError::Buffer { buffer: u64::MAX }));
    assert_eq!(slot([3, 0]), Some(SlotError::Early { number: 3 }));
}

#[test]
fn a_stop_says_what_was_taken_and_one_that_cannot_be_is_a_lie() {
    let stop = |taken: u64| {
        bounded(move || {
            let (mut victim, mut liar) = victim_sender(&small(Detection::Polled), 2).unwrap();
            victim.send(b"1").unwrap();
            victim.send(b"2").unwrap();
            liar.stop(taken);
            victim.wait_for_room_timeout(1, support::PATIENCE).unwrap_err()
        })
    };
    assert_eq!(stop(2), SendError::Ended(CloseReason::Closed));
    let lie = SlotError::Taken { taken: 3 };
    assert_eq!(stop(3), SendError::Ended(CloseReason::Protocol(ProtocolError::Slot(lie))));
}

#[test]
fn room_is_where_the_message_is_sent_from() {
    bounded(|| {
        let (mut a, mut b) = ends(&small(Detection::Immediate));
        let mut room = a.sender.reserve(30).unwrap();
        room.write(0, b"first, ").unwrap();
        room.write(7, b"second").unwrap();
        assert!(matches!(room.write(25, b"too long"), Err(SendError::TooLong { .. })));
        room.commit(13).unwrap();
        assert_eq!(&*b.receiver.recv().unwrap(), b"first, second");
        drop(a.sender.reserve(5).unwrap());
        a.sender.send(b"next").unwrap();
        assert_eq!(&*b.receiver.recv().unwrap(), b"next", "what was dropped is not sent");
    });
}
