//! Buffered Read with peers that lie, and with peers that die: each ends with its reason,
//! and the others go on.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rdma_conn::buffered_read::{
    Config, Listener, Receiver, Sender, Transfers, connect_sender_over, join, receiver,
};
use rdma_conn::conn_core::handshake::{
    Decoded, Endpoint, Frame, MAX_APPLICATION, MAX_FRAME, Mtu, Options, Parameters, ProtocolId,
    decode,
};
use rdma_conn::conn_core::ring::offer::{
    CONTROL_BYTES, HEAD_AT, HalfOffer, Offer, Place, RingOffer, TAIL_AT, Tail,
};
use rdma_conn::conn_core::ring::{Geometry, HeadError, Producer, RecordError, TailError};
use rdma_conn::conn_core::seal::seal_of;
use rdma_conn::device::Device;
use rdma_conn::ring::{Layout, RingShape};
use rdma_conn::send_recv::{Ended, RecvError, SendError, Violation};
use rdma_conn::verbs_safe::{
    self, CompletionBatch, CompletionQueue, ConnectAttr, CqConfig, Mapping, QueuePair,
    QueuePairConfig, RemoteAccess, RemoteSpan, SendOp, SharedRegion, SharedRegionConfig,
};
use support::{bounded, device, impatient};

const CAPACITY: u64 = 4096;
/// Where the liar's control block lies, behind its ring.
const BLOCK: usize = CAPACITY as usize;

fn config() -> Config {
    Config {
        ring: RingShape { ring_bytes: CAPACITY, message_bytes: 1000, layout: Layout::Plain },
        keepalive: Duration::from_millis(20),
        transport: impatient(),
        ..Config::default()
    }
}

/// A queue pair whose memory says what it likes.
struct Liar {
    pair: QueuePair,
    cq: CompletionQueue,
    memory: SharedRegion,
    /// Where its ring lies.
    ring_at: usize,
    gid: verbs_safe::Gid,
    psn: u32,
    /// The peer's control block, if it has one.
    block: Option<Place>,
}

impl Liar {
    fn new(device: &Device) -> Liar {
        let cq = device.context().create_cq(CqConfig::new(64)).unwrap();
        let access = RemoteAccess::ALL;
        let config = QueuePairConfig { access, ..QueuePairConfig::new(&cq, &cq) };
        let config = QueuePairConfig { max_send_wr: 16, send_slots: 16, ..config };
        let pair = device.pd().create_qp(&config, ()).unwrap();
        let shared = SharedRegionConfig { access, on_demand: false };
        let mapping = Mapping::new(BLOCK + CONTROL_BYTES as usize).unwrap();
        let memory = device.pd().register_shared(mapping, shared).unwrap();
        let gid = device.context().choose_gid(1, None).unwrap();
        Liar { pair, cq, memory, ring_at: 0, gid, psn: verbs_safe::random_psn(), block: None }
    }

    fn place(&self, at: usize) -> Place {
        let span = self.memory.remote(at, 8).unwrap();
        Place { addr: span.addr, rkey: span.rkey }
    }

    fn parameters<'a>(&self, application: &'a [u8]) -> Parameters<'a> {
        let qp_num = self.pair.control.qp_num();
        let end = Endpoint { qp_num, psn: self.psn, recv_window: 0, max_message: 1000 };
        Parameters {
            protocol: ProtocolId::BUFFERED_READ,
            options: Options::NONE,
            initiator_to_acceptor: Some(end),
            acceptor_to_initiator: None,
            lid: 0,
            gid: self.gid.gid,
            mtu: Mtu::B1024,
            application,
        }
    }

    fn join(&self, peer: &Parameters<'_>) {
        let Endpoint { qp_num, psn, .. } = peer.initiator_to_acceptor.unwrap();
        let remote = verbs_safe::Endpoint { qp_num, psn, lid: peer.lid, gid: peer.gid };
        let attr = ConnectAttr {
            max_rd_atomic: 4,
            max_dest_rd_atomic: 16,
            timeout: 8,
            ..ConnectAttr::new(self.gid.index as u8, self.psn)
        };
        self.pair.control.connect(&remote, &attr).unwrap();
    }

    /// A sender, as one more peer of `receiver`.
    fn as_sender(device: &Device, receiver: &mut Receiver) -> Liar {
        Liar::new(device).send_to(device, receiver, &config())
    }

    fn send_to(self, device: &Device, receiver: &mut Receiver, config: &Config) -> Liar {
        let liar = self;
        let geometry = Geometry::plain(CAPACITY, 1000).unwrap();
        let ring = RingOffer { place: liar.place(liar.ring_at), geometry, tail: Tail::Read };
        let half = HalfOffer { control: Some(liar.place(BLOCK)), ring: Some(ring) };
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
        let mut buffer = [0; MAX_APPLICATION];
        say(&mut stream, |()| Frame::Hello(liar.parameters(offer(half, &mut buffer))));
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                listener.next().unwrap().accept_into(receiver, device, config).unwrap();
            });
            hear(&mut stream, |frame| match frame {
                Frame::Accept(peer) => liar.join(peer),
                other => panic!("{other:?}"),
            });
            say(&mut stream, |()| Frame::Ready);
            accepting.join().unwrap();
        });
        liar
    }

    /// A receiver, and the sender of ours that has connected to it.
    fn as_receiver(device: &Device) -> (Liar, Sender) {
        let mut liar = Liar::new(device);
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let sender = std::thread::scope(|scope| {
            let connecting = scope.spawn(|| {
                let mut stream = TcpStream::connect(address).unwrap();
                connect_sender_over(&mut stream, device, &config(), b"").unwrap()
            });
            let mut stream = tcp.accept().unwrap().0;
            let mut block = None;
            hear(&mut stream, |frame| match frame {
                Frame::Hello(peer) => {
                    liar.join(peer);
                    let offer = Offer::decode(peer.application).unwrap();
                    block = offer.initiator_to_acceptor.unwrap().control;
                }
                other => panic!("{other:?}"),
            });
            liar.block = block;
            let mut buffer = [0; MAX_APPLICATION];
            let half = HalfOffer { control: None, ring: None };
            say(&mut stream, |()| Frame::Accept(liar.parameters(offer(half, &mut buffer))));
            hear(&mut stream, |frame| assert!(matches!(frame, Frame::Ready)));
            connecting.join().unwrap()
        });
        (liar, sender)
    }

    /// Puts a message of that many bytes into its ring, as an honest sender does, and
    /// returns where it begins.
    fn put(&self, ring: &mut Producer, bytes: u32) -> u64 {
        let start = ring.tail();
        let committed = ring.commit(ring.reserve(bytes).unwrap(), bytes).unwrap();
        for header in [Some(committed.header), committed.skip].into_iter().flatten() {
            let at = self.ring_at + header.offset as usize;
            self.memory.store_u64(at, header.word.to_le()).unwrap();
        }
        start
    }

    fn publish(&self, tail: u64) {
        let at = BLOCK + TAIL_AT as usize;
        self.memory.store_u64(at + 8, seal_of(&[tail]).to_le()).unwrap();
        self.memory.publish_tail(at, tail.to_le()).unwrap();
    }

    /// Up to where its receiver says that all has landed.
    fn seen_landed(&self) -> u64 {
        let at = BLOCK + rdma_conn::conn_core::ring::offer::TAKEN_AT as usize;
        u64::from_le(self.memory.observe_arrival(at).unwrap())
    }

    /// Writes both words to the sender.
    fn tell(&mut self, head: u64, landed: u64) {
        let slot = self.pair.send.next_slot().unwrap();
        slot[..8].copy_from_slice(&head.to_le_bytes());
        slot[8..16].copy_from_slice(&landed.to_le_bytes());
        slot[16..24].copy_from_slice(&seal_of(&[head, landed]).to_le_bytes());
        let Place { addr, rkey } = self.block.unwrap();
        let remote = RemoteSpan { addr: addr + HEAD_AT, rkey, len: 24 };
        self.pair.send.stage(SendOp::Write { len: 24, remote }, true).unwrap();
        self.pair.send.post().unwrap();
        let mut batch = CompletionBatch::new(16);
        while self.pair.send.retired_total() < self.pair.send.posted_total() {
            self.cq.poll(&mut batch).unwrap();
            for completion in batch.drain() {
                assert!(completion.is_success());
                self.pair.send.retire(&completion).unwrap();
            }
        }
    }
}

fn offer(half: HalfOffer, buffer: &mut [u8; MAX_APPLICATION]) -> &[u8] {
    let offer = Offer { initiator_to_acceptor: Some(half), acceptor_to_initiator: None, user: b"" };
    let length = offer.encode(buffer).unwrap();
    &buffer[..length]
}

fn say<'a>(stream: &mut impl Write, frame: impl FnOnce(()) -> Frame<'a>) {
    let mut bytes = [0; MAX_FRAME];
    let length = frame(()).encode(&mut bytes).unwrap();
    stream.write_all(&bytes[..length]).unwrap();
}

fn hear(stream: &mut impl Read, then: impl FnOnce(&Frame<'_>)) {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    loop {
        if let Ok(Decoded { frame, .. }) = decode(&bytes) {
            return then(&frame);
        }
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
}

/// What a receiver says of a sender that does `lie`; an honest one goes on beside it.
fn told_of(lie: impl FnOnce(&Liar, &mut Producer) + Send + 'static) -> Ended {
    bounded(move || {
        let device = device();
        let mut all = receiver(&config(), 2).unwrap();
        let liar = Liar::as_sender(&device, &mut all);
        let mut honest = join(&mut all, &device, &device, &config()).unwrap();
        let mut ring = Producer::new(Geometry::plain(CAPACITY, 1000).unwrap());
        lie(&liar, &mut ring);
        let mut ended = None;
        for number in 0..300_u32 {
            honest.send_async(&number.to_le_bytes()).unwrap();
            loop {
                match all.try_recv() {
                    Ok(message) if message.peer().0 == 1 => {
                        break assert_eq!(*message, number.to_le_bytes());
                    }
                    // What the liar has sent before.
                    Ok(_) | Err(RecvError::Empty) => {}
                    Err(RecvError::Peer { peer, ended: why }) => {
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
fn after_one_message() -> (Receiver, Liar, Producer) {
    let mut all = receiver(&config(), 1).unwrap();
    let liar = Liar::as_sender(&device(), &mut all);
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
        let back = Ended::Protocol(Violation::Tail(TailError::Backwards { by: 16 }));
        let told = all.recv().unwrap_err();
        assert!(matches!(&told, RecvError::Peer { ended, .. } if *ended == back), "{told}");
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

/// Of a ring that is shorter than its owner has said, the beginning can be read: what has
/// landed is handed out before the failure is reported, though they became known together.
#[test]
fn what_landed_before_a_failure_is_handed_out_first() {
    bounded(|| {
        const RECORD: usize = 504;
        let config = Config { max_read_bytes: RECORD as u32, gather_bytes: 0, ..config() };
        let mut all = receiver(&config, 1).unwrap();
        let mut liar = Liar::new(&device());
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
        let ended = all.recv().unwrap_err();
        assert!(matches!(&ended, RecvError::Peer { ended: Ended::PeerLost(_), .. }), "{ended}");
        assert_eq!(all.recv().unwrap_err(), RecvError::Closed);
    });
}

#[test]
fn a_tail_beyond_the_capacity_is_refused() {
    for by in [8, 4096, 1 << 40, u64::MAX - CAPACITY - 7] {
        let ended = told_of(move |liar, _| liar.publish(CAPACITY + by));
        let expected = Ended::Protocol(Violation::Tail(TailError::BeyondCapacity { by }));
        assert_eq!(ended, expected);
    }
}

#[test]
fn a_tail_within_a_record_is_refused() {
    let ended = told_of(|liar, _| liar.publish(12));
    assert_eq!(ended, Ended::Protocol(Violation::Tail(TailError::Misaligned)));
}

#[test]
fn what_is_no_record_is_refused() {
    let ended = told_of(|liar, _| liar.publish(64));
    // What lies there is an empty record of the ring's beginning, and behind it nothing.
    let expected = Ended::Protocol(Violation::Record(RecordError::Mark { position: 8 }));
    assert_eq!(ended, expected);
}

#[test]
fn a_record_that_is_longer_than_agreed_is_refused() {
    let ended = told_of(|liar, _| {
        liar.memory.store_u64(0, 1001_u64.to_le()).unwrap();
        liar.publish(64);
    });
    let too_long = RecordError::TooLong { claimed: 1001, most: 1000 };
    assert_eq!(ended, Ended::Protocol(Violation::Record(too_long)));
}

#[test]
fn a_record_that_ends_beyond_the_tail_is_refused() {
    let ended = told_of(|liar, ring| {
        liar.put(ring, 500);
        liar.publish(ring.tail() - 8);
    });
    let expected = Ended::Protocol(Violation::Record(RecordError::BeyondTail { by: 8 }));
    assert_eq!(ended, expected);
}

#[test]
fn a_ring_that_changes_while_it_is_read_does_no_harm() {
    bounded(|| {
        let device = device();
        for seed in 0..20_u64 {
            let mut all = receiver(&config(), 1).unwrap();
            let liar = Liar::as_sender(&device, &mut all);
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
            assert!(matches!(ended, RecvError::Peer { ended: Ended::Protocol(_), .. }), "{ended}");
        }
    });
}

/// What a sender says of a receiver that tells `words`, after a message of 16 bytes.
fn told_of_words(head: u64, landed: u64) -> SendError {
    bounded(move || {
        let (mut liar, mut sender) = Liar::as_receiver(&device());
        sender.send_async(&[1; 16]).unwrap();
        liar.tell(head, landed);
        let ended = sender.wait_all().unwrap_err();
        assert_eq!(sender.try_send(b"more").unwrap_err(), ended);
        ended
    })
}

#[test]
fn words_that_cannot_be_are_refused() {
    let head = |e| SendError::Ended(Ended::Protocol(Violation::Head(e)));
    assert_eq!(told_of_words(32, 24), head(HeadError::BeyondTail { by: 8 }));
    assert_eq!(told_of_words(0, 32), head(HeadError::BeyondTail { by: 8 }));
    assert_eq!(told_of_words(12, 24), head(HeadError::Misaligned));
    assert_eq!(told_of_words(0, 10), head(HeadError::Misaligned));
    assert_eq!(told_of_words(u64::MAX - 7, 0), head(HeadError::BeyondTail { by: u64::MAX - 31 }));
    let early = told_of_words(0, 24 | 1);
    assert!(matches!(early, SendError::Ended(Ended::Protocol(Violation::Words(_)))), "{early}");
}

#[test]
fn a_head_that_goes_back_is_refused() {
    bounded(|| {
        let (mut liar, mut sender) = Liar::as_receiver(&device());
        sender.send_async(&[1; 16]).unwrap();
        liar.tell(24, 24);
        sender.wait_all().unwrap();
        sender.send_async(&[1; 16]).unwrap();
        liar.tell(0, 24);
        let back = HeadError::Backwards { by: 24 };
        let ended = SendError::Ended(Ended::Protocol(Violation::Head(back)));
        assert_eq!(sender.wait_all().unwrap_err(), ended);
    });
}

#[test]
fn a_sender_that_waits_hears_of_a_dead_receiver() {
    bounded(|| {
        let (liar, mut sender) = Liar::as_receiver(&device());
        let ticket = sender.send_async(&[1; 16]).unwrap();
        drop(liar);
        let lost = sender.wait(ticket).unwrap_err();
        assert!(matches!(lost, SendError::Ended(Ended::PeerLost(_))), "{lost}");
    });
}

#[test]
fn a_sender_with_a_full_ring_hears_of_a_dead_receiver() {
    bounded(|| {
        let (liar, mut sender) = Liar::as_receiver(&device());
        drop(liar);
        let lost = loop {
            if let Err(e) = sender.send_async(&[1; 1000]) {
                break e;
            }
        };
        assert!(matches!(lost, SendError::Ended(Ended::PeerLost(_))), "{lost}");
    });
}

#[test]
fn a_receiver_that_waits_hears_of_a_dead_sender_and_hands_out_what_had_landed() {
    bounded(|| {
        let device = device();
        let mut all = receiver(&config(), 1).unwrap();
        let liar = Liar::as_sender(&device, &mut all);
        let mut ring = Producer::new(Geometry::plain(CAPACITY, 1000).unwrap());
        for _ in 0..3 {
            liar.put(&mut ring, 16);
        }
        liar.publish(ring.tail());
        let first = all.recv().unwrap();
        drop(liar);
        assert_eq!((all.recv().unwrap().len(), all.recv().unwrap().len()), (16, 16));
        let lost = all.recv().unwrap_err();
        assert!(matches!(lost, RecvError::Peer { ended: Ended::PeerLost(_), .. }), "{lost}");
        assert_eq!(all.recv().unwrap_err(), RecvError::Closed);
        assert_eq!(first.len(), 16);
    });
}

/// What each of several threads that receive out of one ring is told of a sender that does
/// `act`, and how many messages they have received before, all together.
fn told_to_all(
    has_transfers: bool,
    act: impl FnOnce(Liar, &mut Producer) -> Option<Liar> + Send + 'static,
) -> (usize, Ended) {
    bounded(move || {
        let mut one = receiver(&config(), 1).unwrap();
        let liar = Liar::as_sender(&device(), &mut one);
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
        let RecvError::Peer { ended, .. } = shared.try_recv().unwrap_err() else {
            panic!("the reason is told each time")
        };
        for told in all {
            assert!(matches!(&told, RecvError::Peer { ended: why, .. } if *why == ended), "{told}");
        }
        match transfers.map_or(Err(ended.clone()), Transfers::join) {
            Err(why) => assert_eq!(why, ended),
            // It has brought all that there was, which nobody could make sense of.
            Ok(()) => assert!(matches!(ended, Ended::Protocol(Violation::Record(_))), "{ended}"),
        }
        (count, ended)
    })
}

#[test]
fn all_threads_that_receive_hear_of_a_dead_sender_behind_what_had_landed() {
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
        assert!(count == 3 && matches!(ended, Ended::PeerLost(_)), "{count}, {ended}");
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
        let expected = Ended::Protocol(Violation::Record(RecordError::Mark { position: 24 }));
        assert_eq!((count, ended), (1, expected));

        let (count, ended) = told_to_all(has_transfers, |liar, ring| {
            liar.put(ring, 500);
            liar.publish(ring.tail() - 8);
            Some(liar)
        });
        let beyond = Ended::Protocol(Violation::Record(RecordError::BeyondTail { by: 8 }));
        assert_eq!((count, ended), (0, beyond));

        let (count, ended) = told_to_all(has_transfers, |liar, _| {
            liar.publish(CAPACITY + 8);
            Some(liar)
        });
        let beyond = Ended::Protocol(Violation::Tail(TailError::BeyondCapacity { by: 8 }));
        assert_eq!((count, ended), (0, beyond));
    }
}

#[test]
fn a_ring_that_changes_while_several_threads_receive_does_no_harm() {
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
        assert!(matches!(ended, Ended::Protocol(_)), "{ended}");
    }
}
