//! Buffered Read with peers that lie, and with peers that die: each ends with its reason,
//! and the others stay connected.
//!
//! Shows: hostile peers.

mod support;

use rdma_conn::buffered_read::{Config, Receiver, Transfers};
use rdma_conn::conn_core::ring::offer::TAIL_AT;
use rdma_conn::conn_core::ring::{Geometry, HeadError, Producer, RecordError, TailError};
use rdma_conn::send_recv::{CloseReason, ProtocolError, RecvError, SendError};
use rdma_conn::{BufferedRead, RecvHalf, SendHalf, join, receiver};
use support::read_liar::{BLOCK, CAPACITY, ReadLiar, config};
use support::{bounded, device};

/// Returns the close reason that a receiver reports after a sender does `lie`; an honest one goes
/// on beside it.
fn told_of(lie: impl FnOnce(&ReadLiar, &mut Producer) + Send + 'static) -> CloseReason {
    bounded(move || {
        let device = device();
        let mut all = receiver::<BufferedRead>(&device, &config(), 2).unwrap();
        let liar = ReadLiar::as_sender(&device, &mut all);
        let mut honest = join::<BufferedRead>(&mut all, &device, &device, &config()).unwrap();
        let mut ring = Producer::new(Geometry::plain(CAPACITY, 1000).unwrap());
        lie(&liar, &mut ring);
        let mut ended = None;
        for number in 0..300_u32 {
            honest.send(&number.to_le_bytes()).unwrap();
            loop {
                match all.try_recv() {
                    Ok(message) if message.peer().0 == 1 => {
                        break assert_eq!(*message, number.to_le_bytes());
                    }
                    // What the liar has sent before.
                    Ok(_) | Err(RecvError::Empty) => {}
                    Err(RecvError::Peer { peer, reason: why }) => {
                        assert!(peer.0 == 0 && ended.replace(why).is_none());
                    }
                    Err(e) => panic!("{e}"),
                }
            }
        }
        assert_eq!(all.peers(), 1);
        ended.expect("the lie was believed")
    })
}

/// A receiver that has had one honest message of 16 bytes from a liar.
fn after_one_message() -> (Receiver, ReadLiar, Producer) {
    let mut all = receiver::<BufferedRead>(&device(), &config(), 1).unwrap();
    let liar = ReadLiar::as_sender(&device(), &mut all);
    let mut ring = Producer::new(Geometry::plain(CAPACITY, 1000).unwrap());
    liar.put(&mut ring, 16);
    liar.publish(ring.tail());
    assert_eq!(all.recv().unwrap().len(), 16);
    (all, liar, ring)
}

#[test]
fn a_tail_that_goes_back_is_refused() {
    bounded(|| {
        let (mut all, liar, _) = after_one_message();
        liar.publish(8);
        let back = CloseReason::Protocol(ProtocolError::Tail(TailError::Backwards { by: 16 }));
        let told = all.recv().unwrap_err();
        assert!(matches!(&told, RecvError::Peer { reason: ended, .. } if *ended == back), "{told}");
    });
}

/// A device that copies byte by byte reads half a tail: it is no lie, and nothing is new yet.
#[test]
fn a_tail_that_is_half_written_is_read_again() {
    bounded(|| {
        let (mut all, liar, mut ring) = after_one_message();
        for half in [8, 0, u64::MAX] {
            liar.memory.publish_tail(BLOCK + TAIL_AT as usize, half.to_le()).unwrap();
            // Until it was read after that.
            let looks = all.stats().tail_reads;
            while all.stats().tail_reads < looks + 3 {
                assert!(matches!(all.try_recv(), Err(RecvError::Empty)), "{half}");
            }
        }
        liar.put(&mut ring, 16);
        liar.publish(ring.tail());
        assert_eq!(all.recv().unwrap().len(), 16);
    });
}

/// The beginning of a ring that is shorter than its owner has said can be read: what has landed is
/// handed out before the failure is reported, though they became known together.
#[test]
fn what_landed_before_a_failure_is_handed_out_first() {
    bounded(|| {
        const RECORD: usize = 504;
        let config = Config { max_read_bytes: RECORD as u32, gather_bytes: 0, ..config() };
        let mut all = receiver::<BufferedRead>(&device(), &config, 1).unwrap();
        let mut liar = ReadLiar::new(&device());
        // Two records lie within its memory.
        liar.ring_at = (liar.memory.len() - 2 * RECORD) & !7;
        let liar = liar.send_to(&device(), &mut all, &config);
        let mut ring = Producer::new(Geometry::plain(CAPACITY, 1000).unwrap());
        for _ in 0..2 {
            liar.put(&mut ring, RECORD as u32 - 8);
        }
        liar.publish(ring.tail() + RECORD as u64);
        for _ in 0..2 {
            assert_eq!(all.recv().map(|message| message.len()), Ok(RECORD - 8));
        }
        assert_lost(&mut all);
    });
}

#[test]
fn a_tail_beyond_the_capacity_is_refused() {
    for by in [8, 4096, 1 << 40, u64::MAX - CAPACITY - 7] {
        let ended = told_of(move |liar, _| liar.publish(CAPACITY + by));
        let expected = CloseReason::Protocol(ProtocolError::Tail(TailError::BeyondCapacity { by }));
        assert_eq!(ended, expected);
    }
}

#[test]
fn a_tail_within_a_record_is_refused() {
    let ended = told_of(|liar, _| liar.publish(12));
    assert_eq!(ended, CloseReason::Protocol(ProtocolError::Tail(TailError::Misaligned)));
}

#[test]
fn what_is_no_record_is_refused() {
    let ended = told_of(|liar, _| liar.publish(64));
    // What lies there is an empty record of the ring's beginning, and behind it nothing.
    let expected = CloseReason::Protocol(ProtocolError::Record(RecordError::Mark { position: 8 }));
    assert_eq!(ended, expected);
}

#[test]
fn a_record_that_is_longer_than_agreed_is_refused() {
    let ended = told_of(|liar, _| {
        liar.memory.store_u64(0, 1001_u64.to_le()).unwrap();
        liar.publish(64);
    });
    let too_long = RecordError::TooLong { claimed: 1001, most: 1000 };
    assert_eq!(ended, CloseReason::Protocol(ProtocolError::Record(too_long)));
}

#[test]
fn a_record_that_ends_beyond_the_tail_is_refused() {
    let ended = told_of(|liar, ring| {
        liar.put(ring, 500);
        liar.publish(ring.tail() - 8);
    });
    let expected = CloseReason::Protocol(ProtocolError::Record(RecordError::BeyondTail { by: 8 }));
    assert_eq!(ended, expected);
}

#[test]
fn a_ring_that_changes_while_it_is_read_does_no_harm() {
    bounded(|| {
        let device = device();
        for seed in 0..20_u64 {
            let mut all = receiver::<BufferedRead>(&device, &config(), 1).unwrap();
            let liar = ReadLiar::as_sender(&device, &mut all);
            let mut random = support::Random::new(seed);
            let mut tail = 0;
            let ended = loop {
                for _ in 0..50 {
                    let at = random.below(CAPACITY / 8) as usize * 8;
                    let word = match random.below(3) {
                        0 => random.next(),
                        1 => random.below(1100),
                        // A header of this place, of this lap.
                        _ => {
                            let lap = tail & !(CAPACITY - 1);
                            ((lap + at as u64) / 8) << 32 | random.below(64)
                        }
                    };
                    liar.memory.store_u64(at, word.to_le()).unwrap();
                }
                tail += random.below(5) * 8;
                liar.publish(tail);
                match all.try_recv() {
                    Ok(message) => drop(message.to_vec()),
                    Err(RecvError::Empty) => {}
                    Err(e) => break e,
                }
            };
            assert!(
                matches!(ended, RecvError::Peer { reason: CloseReason::Protocol(_), .. }),
                "{ended}"
            );
        }
    });
}

/// Returns the error of a sender to which a receiver tells these words, after a message of 16
/// bytes.
fn told_of_words(head: u64, landed: u64) -> SendError {
    bounded(move || {
        let (mut liar, mut sender) = ReadLiar::as_receiver(&device());
        sender.send(&[1; 16]).unwrap();
        liar.tell(head, landed);
        let ended = sender.wait_all().unwrap_err();
        assert_eq!(sender.try_send(b"more").unwrap_err(), ended);
        ended
    })
}

#[test]
fn words_that_cannot_be_are_refused() {
    let head = |e| SendError::Ended(CloseReason::Protocol(ProtocolError::Head(e)));
    assert_eq!(told_of_words(32, 24), head(HeadError::BeyondTail { by: 8 }));
    assert_eq!(told_of_words(0, 32), head(HeadError::BeyondTail { by: 8 }));
    assert_eq!(told_of_words(12, 24), head(HeadError::Misaligned));
    assert_eq!(told_of_words(0, 10), head(HeadError::Misaligned));
    assert_eq!(told_of_words(u64::MAX - 7, 0), head(HeadError::BeyondTail { by: u64::MAX - 31 }));
    let early = told_of_words(0, 24 | 1);
    assert!(
        matches!(early, SendError::Ended(CloseReason::Protocol(ProtocolError::Words(_)))),
        "{early}"
    );
}

#[test]
fn a_head_that_goes_back_is_refused() {
    bounded(|| {
        let (mut liar, mut sender) = ReadLiar::as_receiver(&device());
        sender.send(&[1; 16]).unwrap();
        liar.tell(24, 24);
        sender.wait_all().unwrap();
        sender.send(&[1; 16]).unwrap();
        liar.tell(0, 24);
        let back = HeadError::Backwards { by: 24 };
        let ended = SendError::Ended(CloseReason::Protocol(ProtocolError::Head(back)));
        assert_eq!(sender.wait_all().unwrap_err(), ended);
    });
}

#[test]
fn a_sender_that_waits_hears_of_a_dead_receiver() {
    bounded(|| {
        let (liar, mut sender) = ReadLiar::as_receiver(&device());
        let ticket = sender.send(&[1; 16]).unwrap();
        drop(liar);
        let lost = sender.wait_acked(ticket).unwrap_err();
        assert!(matches!(lost, SendError::Ended(CloseReason::PeerLost(_))), "{lost}");
    });
}

#[test]
fn a_sender_with_a_full_ring_hears_of_a_dead_receiver() {
    bounded(|| {
        let (liar, mut sender) = ReadLiar::as_receiver(&device());
        drop(liar);
        let lost = loop {
            if let Err(e) = sender.send(&[1; 1000]) {
                break e;
            }
        };
        assert!(matches!(lost, SendError::Ended(CloseReason::PeerLost(_))), "{lost}");
    });
}

#[test]
fn a_receiver_hands_out_landed_messages_of_a_dead_sender() {
    bounded(|| {
        let device = device();
        let mut all = receiver::<BufferedRead>(&device, &config(), 1).unwrap();
        let liar = ReadLiar::as_sender(&device, &mut all);
        let mut ring = Producer::new(Geometry::plain(CAPACITY, 1000).unwrap());
        for _ in 0..3 {
            liar.put(&mut ring, 16);
        }
        liar.publish(ring.tail());
        let first = all.recv().unwrap();
        drop(liar);
        assert_eq!((all.recv().unwrap().len(), all.recv().unwrap().len()), (16, 16));
        assert_lost(&mut all);
        assert_eq!(first.len(), 16);
    });
}

/// The error that all of several threads get that receive out of one ring, whose sender does
/// `act`, and how many messages they have received before, all together.
fn told_to_all(
    has_transfers: bool,
    act: impl FnOnce(ReadLiar, &mut Producer) -> Option<ReadLiar> + Send + 'static,
) -> (usize, CloseReason) {
    bounded(move || {
        let mut one = receiver::<BufferedRead>(&device(), &config(), 1).unwrap();
        let liar = ReadLiar::as_sender(&device(), &mut one);
        let shared = one.into_shared().unwrap();
        let transfers = has_transfers.then(|| shared.spawn_transfers().unwrap());
        let mut ring = Producer::new(Geometry::plain(CAPACITY, 1000).unwrap());
        let (count, all) = std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| {
                let shared = shared.clone();
                scope.spawn(move || {
                    let mut count = 0;
                    loop {
                        match shared.recv() {
                            Ok(_) => count += 1,
                            Err(e) => return (count, e),
                        }
                    }
                })
            });
            let _liar = act(liar, &mut ring);
            let told = threads.map(|thread| thread.join().unwrap());
            (told.iter().map(|(count, _)| count).sum(), told.map(|(_, e)| e))
        });
        let RecvError::Peer { reason: ended, .. } = shared.try_recv().unwrap_err() else {
            panic!("the reason is told each time")
        };
        for told in all {
            assert!(
                matches!(&told, RecvError::Peer { reason: why, .. } if *why == ended),
                "{told}"
            );
        }
        match transfers.map_or(Err(ended.clone()), Transfers::join) {
            Err(why) => assert_eq!(why, ended),
            // It has transferred all that there was, in which the receivers found no record.
            Ok(()) => {
                assert!(matches!(ended, CloseReason::Protocol(ProtocolError::Record(_))), "{ended}")
            }
        }
        (count, ended)
    })
}

#[test]
fn all_threads_report_a_dead_sender_after_its_messages() {
    for has_transfers in [false, true] {
        let (count, ended) = told_to_all(has_transfers, |liar, ring| {
            for _ in 0..3 {
                liar.put(ring, 16);
            }
            liar.publish(ring.tail());
            // All three have landed, and are claimed, or can be.
            while liar.seen_landed() < ring.tail() {
                std::thread::yield_now();
            }
            None
        });
        assert!(count == 3 && matches!(ended, CloseReason::PeerLost(_)), "{count}, {ended}");
    }
}

#[test]
fn all_threads_that_receive_hear_of_a_lie_behind_what_was_true() {
    for has_transfers in [false, true] {
        let (count, ended) = told_to_all(has_transfers, |liar, ring| {
            liar.put(ring, 16);
            let start = liar.put(ring, 16);
            liar.memory.store_u64(start as usize, u64::MAX).unwrap();
            liar.publish(ring.tail());
            Some(liar)
        });
        let expected =
            CloseReason::Protocol(ProtocolError::Record(RecordError::Mark { position: 24 }));
        assert_eq!((count, ended), (1, expected));

        let (count, ended) = told_to_all(has_transfers, |liar, ring| {
            liar.put(ring, 500);
            liar.publish(ring.tail() - 8);
            Some(liar)
        });
        let beyond =
            CloseReason::Protocol(ProtocolError::Record(RecordError::BeyondTail { by: 8 }));
        assert_eq!((count, ended), (0, beyond));

        let (count, ended) = told_to_all(has_transfers, |liar, _| {
            liar.publish(CAPACITY + 8);
            Some(liar)
        });
        let beyond =
            CloseReason::Protocol(ProtocolError::Tail(TailError::BeyondCapacity { by: 8 }));
        assert_eq!((count, ended), (0, beyond));
    }
}

#[test]
fn a_hostile_ring_does_no_harm_to_several_receiving_threads() {
    for seed in 0..10_u64 {
        let (_, ended) = told_to_all(seed % 2 == 0, move |liar, _| {
            let (mut random, mut tail) = (support::Random::new(seed), 0);
            for _ in 0..20 {
                for at in (0..CAPACITY).step_by(8) {
                    let lap = tail & !(CAPACITY - 1);
                    let is_header = random.below(3) > 0;
                    let header = ((lap + at) / 8) << 32 | random.below(64);
                    let word = if is_header { header } else { random.next() };
                    liar.memory.store_u64(at as usize, word.to_le()).unwrap();
                }
                tail += random.below(50) * 8;
                liar.publish(tail);
            }
            liar.publish(tail | 1);
            Some(liar)
        });
        assert!(matches!(ended, CloseReason::Protocol(_)), "{ended}");
    }
}

/// The only peer is lost, and that stays the reason.
fn assert_lost(receiver: &mut Receiver) {
    let lost = receiver.recv().unwrap_err();
    let RecvError::Peer { reason: reason @ CloseReason::PeerLost(_), .. } = lost else {
        panic!("{lost:?}");
    };
    assert_eq!(receiver.recv().unwrap_err(), RecvError::Ended(reason));
}
