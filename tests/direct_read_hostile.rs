//! Direct Read with peers that lie, and with schedules in which a READ is late.
//!
//! Shows: hostile peers.

mod support;

use rdma_conn::Common;
use rdma_conn::WaitStrategy;
use rdma_conn::conn_core::checksum::checksum_of;
use rdma_conn::conn_core::direct_read::{
    AckMode, Notice, Place, ReadRequest, Refusal, SignalAt, TERMS_LEN, Terms,
};
use rdma_conn::conn_core::handshake::{
    Decoded, Endpoint, Frame, MAX_FRAME, Mtu, Options, Parameters, ProtocolId, decode,
};
use rdma_conn::device::{self, Device};
use rdma_conn::direct_read::{
    Buffer, BufferConfig, CloseReason, Config, Incoming, Outcome, ProtocolError, ReadError,
    Receiver, RecvError, SendError, Sender, connect_over, join, pair, receiver, receiver_shared,
};
use rdma_conn::verbs_safe::{
    self, CompletionBatch, CompletionQueue, ConnectAttr, CqConfig, Mapping, QueuePair,
    QueuePairConfig, RecvSide, RemoteAccess, SendOp, SharedRegion, SharedRegionConfig, WcStatus,
};
use rdma_conn::{OfferedMessage, ZeroCopyRecv, ZeroCopySend};
use rdma_conn::{Peer, RecvHalf, SendHalf};
use soft_rnic::{Faults, Simulation};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use support::{NEVER, bounded, content, device};

fn readable(device: &Device, bytes: usize) -> Buffer {
    device.pd().register_buffer(bytes, BufferConfig { peers_read: true, signal: true }).unwrap()
}

fn plain(device: &Device, bytes: usize) -> Buffer {
    device.pd().register_buffer(bytes, BufferConfig::default()).unwrap()
}

/// A queue pair that says what it likes.
struct Liar {
    pair: QueuePair,
    cq: CompletionQueue,
    memory: SharedRegion,
    gid: verbs_safe::Gid,
    psn: u32,
}

impl Liar {
    fn new(device: &Device) -> Liar {
        let cq = device.context().create_cq(CqConfig::new(256)).unwrap();
        let recv = RecvSide::Own { slots: 64, slot_bytes: 512 };
        let config = QueuePairConfig {
            recv,
            access: RemoteAccess::ALL,
            max_send_wr: 64,
            send_slots: 64,
            send_slot_bytes: 512,
            ..QueuePairConfig::new(&cq, &cq)
        };
        let mut pair = device.pd().create_qp(&config, ()).unwrap();
        let all: Vec<u32> = (0..64).collect();
        pair.recv.as_mut().unwrap().post(&all).unwrap();
        let access = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
        let memory = device.pd().register_shared(Mapping::new(4096).unwrap(), access).unwrap();
        let gid = device.context().choose_gid(1, None).unwrap();
        Liar { pair, cq, memory, gid, psn: verbs_safe::random_psn() }
    }

    fn place(&self, at: usize) -> Place {
        let span = self.memory.remote(at, 8).unwrap();
        Place { addr: span.addr, rkey: span.rkey }
    }

    fn parameters<'a>(&self, application: &'a [u8]) -> Parameters<'a> {
        let qp_num = self.pair.control.qp_num();
        let end = Endpoint { qp_num, psn: self.psn, recv_depth: 8, max_message: 512 };
        Parameters {
            protocol: ProtocolId::DIRECT_READ,
            options: Options::NONE,
            initiator_to_acceptor: Some(end),
            acceptor_to_initiator: None,
            lid: 0,
            gid: self.gid.gid,
            mtu: Mtu::B1024,
            application,
        }
    }

    fn terms(&self, ack: AckMode) -> [u8; TERMS_LEN] {
        let counts = Some(self.place(0));
        Terms { ack, signal: SignalAt::Separate, reads: 4, counts, max_message: 0 }.encode()
    }

    fn join(&self, peer: &Endpoint, gid: [u8; 16]) {
        let remote = verbs_safe::Endpoint { qp_num: peer.qp_num, psn: peer.psn, lid: 0, gid };
        // Its peer may end the connection.
        let budget = support::budget::mortal();
        let attr = ConnectAttr {
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            timeout: budget.timeout,
            retry_cnt: budget.retry_count,
            ..ConnectAttr::new(self.gid.index as u8, self.psn)
        };
        self.pair.control.connect(&remote, &attr).unwrap();
    }

    /// A sender that a receiver of ours accepts.
    fn as_sender(device: &Device, receiver: &mut Receiver, ack: AckMode) -> Liar {
        let liar = Liar::new(device);
        let (mut near, far) = UnixStream::pair().unwrap();
        let common = Common { transport: support::mortal(), ..support::common() };
        let config = Config { common, ..support::config::<Config>() };
        let application = liar.terms(ack);
        write(&mut near, &Frame::Hello(liar.parameters(&application)));
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                Incoming::greet(far).unwrap().accept_into(receiver, device, &config).unwrap();
            });
            read(&mut near, |frame| match frame {
                Frame::Accept(peer) => {
                    liar.join(&peer.initiator_to_acceptor.unwrap(), peer.gid);
                }
                other => panic!("{other:?}"),
            });
            write(&mut near, &Frame::Ready);
            accepting.join().unwrap();
        });
        liar
    }

    /// A receiver that a sender of ours has connected to.
    fn as_receiver(device: &Device, config: &Config) -> (Liar, Sender) {
        let liar = Liar::new(device);
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let application = liar.terms(config.ack);
        let sender = std::thread::scope(|scope| {
            let connecting = scope.spawn(|| connect_over(&mut far, device, config, b"").unwrap());
            read(&mut near, |frame| match frame {
                Frame::Hello(peer) => liar.join(&peer.initiator_to_acceptor.unwrap(), peer.gid),
                other => panic!("{other:?}"),
            });
            write(&mut near, &Frame::Accept(liar.parameters(&application)));
            read(&mut near, |frame| assert_eq!(*frame, Frame::Ready));
            connecting.join().unwrap()
        });
        (liar, sender)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.pair.send.next_slot().unwrap()[..bytes.len()].copy_from_slice(bytes);
        self.post(SendOp::Send { len: bytes.len() as u32 });
    }

    fn say(&mut self, imm: u32) {
        self.post(SendOp::SendImm { len: 0, imm });
    }

    fn post(&mut self, op: SendOp) {
        self.pair.send.stage(op, true).unwrap();
        self.pair.send.post().unwrap();
    }

    fn request(&mut self, number: u32, len: u64, memory: Place, signal: Place) {
        let request = ReadRequest { number, len, memory, signal: Some(signal), app: b"" };
        let mut bytes = [0; 64];
        let len = request.encode(&mut bytes).unwrap();
        self.send(&bytes[..len]);
    }

    /// Reports whether all that was posted lies at the other end, or has failed.
    fn is_settled(&mut self) -> bool {
        let mut batch = CompletionBatch::new(1);
        self.cq.poll(&mut batch).unwrap();
        for completion in batch.drain() {
            self.pair.send.retire(&completion).unwrap();
        }
        self.pair.send.retired_total() == self.pair.send.posted_total()
    }

    /// Waits for the next completion of what was posted.
    fn status(&mut self) -> WcStatus {
        let mut batch = CompletionBatch::new(1);
        while self.cq.poll(&mut batch).unwrap() == 0 {
            std::thread::yield_now();
        }
        let completion = batch.pop().unwrap();
        self.pair.send.retire(&completion).unwrap();
        completion.status()
    }

    /// Waits for the next message from the other end.
    fn receive(&mut self) -> Vec<u8> {
        let mut batch = CompletionBatch::new(1);
        loop {
            self.cq.poll(&mut batch).unwrap();
            for completion in batch.drain() {
                let recv = self.pair.recv.as_mut().unwrap();
                if completion.queue_id() == recv.queue_id() {
                    return recv.take(completion).unwrap().to_vec();
                }
            }
            std::thread::yield_now();
        }
    }
}

fn write(stream: &mut UnixStream, frame: &Frame<'_>) {
    let mut bytes = [0; MAX_FRAME];
    let len = frame.encode(&mut bytes).unwrap();
    stream.write_all(&bytes[..len]).unwrap();
}

fn read(stream: &mut UnixStream, take: impl FnOnce(&Frame<'_>)) {
    let mut bytes = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
        if let Ok(Decoded { frame, .. }) = decode(&bytes) {
            return take(&frame);
        }
    }
}

/// Returns the close reason that a receiver reports after a sender does `lie`.
fn verdict(
    ack: AckMode,
    lie: impl FnOnce(&Device, &mut Liar) + Send + 'static,
) -> (CloseReason, Buffer) {
    bounded(move || {
        let device = device();
        let config = Config {
            window: 4,
            common: Common { keepalive: NEVER, ..support::common() },
            ..support::config::<Config>()
        };
        let mut end = receiver(&device, &config, 1).unwrap();
        let mut liar = Liar::as_sender(&device, &mut end, ack);
        lie(&device, &mut liar);
        // Requests after a goodbye are looked at together with it, or not at all.
        while !liar.is_settled() {
            std::thread::yield_now();
        }
        let mut place = plain(&device, 4096);
        place.fill(0x77);
        loop {
            match end.next_request() {
                Ok(request) => {
                    let reading = match request.read_into(place) {
                        Ok(reading) => reading,
                        Err(not_read) => panic!("{}", not_read.error),
                    };
                    match end.wait(reading) {
                        Ok(message) => place = message.into_buffer(),
                        Err(ReadError::Unread { buffer, reason: ended, .. }) => {
                            break (ended, buffer);
                        }
                        Err(e) => panic!("{e}"),
                    }
                }
                Err(RecvError::Peer { reason: ended, .. }) => break (ended, place),
                Err(e) => panic!("{e}"),
            }
        }
    })
}

#[test]
fn memory_the_sender_may_not_offer_is_a_bad_offer() {
    let cases: [fn(&Device, &mut Liar); 4] = [
        // A key of no region.
        |_, liar| {
            let bad = Place { addr: liar.place(0).addr, rkey: 0xdead_beef };
            liar.request(1, 64, bad, liar.place(8));
        },
        // Beyond the end of the region.
        |_, liar| {
            let at = liar.place(4088);
            liar.request(1, 64, at, liar.place(8));
        },
        // Taken back meanwhile.
        |device, liar| {
            let gone = readable(device, 64);
            let span = gone.remote(0, 64).unwrap();
            drop(gone);
            let place = Place { addr: span.addr, rkey: span.rkey };
            liar.request(1, 64, place, liar.place(8));
        },
        // Memory of a buffer that is not for peers, with a key of another one.
        |device, liar| {
            let hidden = plain(device, 64);
            let place = Place { addr: hidden.as_ptr() as u64, rkey: liar.place(0).rkey };
            liar.request(1, 64, place, liar.place(8));
        },
    ];
    for lie in cases {
        let (ended, buffer) = verdict(AckMode::Write, lie);
        assert!(matches!(ended, CloseReason::BadOffer(_)), "{ended}");
        assert!(buffer.iter().all(|byte| *byte == 0x77), "the destination was touched");
    }
}

#[test]
fn a_signal_that_is_not_the_senders_is_a_bad_offer_too() {
    let (ended, buffer) = verdict(AckMode::Write, |_, liar| {
        let bad = Place { addr: liar.place(8).addr, rkey: 0xdead_beef };
        liar.request(1, 8, liar.place(0), bad);
        liar.request(2, 8, liar.place(0), liar.place(8));
    });
    assert!(matches!(ended, CloseReason::BadOffer(_) | CloseReason::PeerLost(_)), "{ended}");
    assert!(buffer[8..].iter().all(|byte| *byte == 0x77));
}

#[test]
fn requests_that_cannot_be_are_violations() {
    type Lie = (&'static str, fn(&mut Liar));
    let cases: [Lie; 8] = [
        ("an address that wraps", |liar| {
            let mut bytes = [0; 40];
            let request = ReadRequest {
                number: 1,
                len: 64,
                memory: liar.place(0),
                signal: Some(liar.place(8)),
                app: b"",
            };
            request.encode(&mut bytes).unwrap();
            bytes[16..24].fill(0xff);
            liar.send(&bytes);
        }),
        ("junk", |liar| liar.send(b"junk")),
        ("nothing at all", |liar| liar.send(&[0; 40])),
        ("out of order", |liar| liar.request(2, 8, liar.place(0), liar.place(8))),
        ("no signal", |liar| {
            let memory = liar.place(0);
            let request = ReadRequest { number: 1, len: 8, memory, signal: None, app: b"" };
            let mut bytes = [0; 40];
            request.encode(&mut bytes).unwrap();
            liar.send(&bytes);
        }),
        ("a message after the goodbye", |liar| {
            liar.say(Notice::Fin.encode());
            liar.request(1, 8, liar.place(0), liar.place(8));
        }),
        ("a notice of the receiver's", |liar| liar.say(Notice::Done(1).encode())),
        ("an unknown notice", |liar| liar.say(0)),
    ];
    for (what, lie) in cases {
        let (ended, buffer) = verdict(AckMode::Write, move |_, liar| lie(liar));
        assert!(matches!(ended, CloseReason::Protocol(_)), "{what}: {ended}");
        assert!(buffer.iter().all(|byte| *byte == 0x77), "{what}");
    }
}

#[test]
fn more_messages_than_the_window_holds_are_a_violation() {
    bounded(|| {
        let device = device();
        let config = Config {
            window: 4,
            common: Common { keepalive: NEVER, ..support::common() },
            ..support::config::<Config>()
        };
        let mut end = receiver(&device, &config, 1).unwrap();
        let mut liar = Liar::as_sender(&device, &mut end, AckMode::Write);
        for number in 1..=5 {
            liar.request(number, 8, liar.place(0), liar.place(8));
        }
        // All of them, before any is decided and makes room for another one.
        while !liar.is_settled() {
            end.progress().unwrap();
        }
        // The first four are still there to be seen, until the end is.
        let ended = loop {
            match end.progress() {
                Ok(_) => {}
                Err(e) => panic!("{e}"),
            }
            match end.try_next_request() {
                Err(RecvError::Peer { reason: ended, .. }) => break ended,
                Ok(request) if request.bytes() == 8 => request.refuse(),
                _ => {}
            }
        };
        let overrun = matches!(ended, CloseReason::Protocol(ProtocolError::Request(_)));
        assert!(overrun, "{ended}");
    });
}

/// Returns the close reason that a sender reports after a receiver does `lie` when it was offered
/// something.
fn sentence(
    ack: AckMode,
    lie: impl FnOnce(&mut Liar, &ReadRequest<'_>) + Send + 'static,
) -> CloseReason {
    bounded(move || {
        let device = device();
        let config = Config {
            ack,
            window: 4,
            common: Common { keepalive: NEVER, ..support::common() },
            ..support::config::<Config>()
        };
        let (mut liar, mut sender) = Liar::as_receiver(&device, &config);
        let ticket = sender.offer(readable(&device, 64), b"").unwrap();
        let bytes = liar.receive();
        lie(&mut liar, &ReadRequest::decode(&bytes).unwrap());
        let Err(SendError::Ended(ended)) = sender.wait_sent(ticket) else { panic!("it was sent") };
        // Its buffer is not lost.
        assert_eq!(sender.take_back(ticket).expect("it is the sender's").len(), 64);
        assert!(sender.take_back(ticket).is_none());
        ended
    })
}

#[test]
fn acknowledgements_that_cannot_be_are_violations() {
    let done = |number| move |liar: &mut Liar, _: &ReadRequest<'_>| liar.say(number);
    let lies = [
        Notice::Done(2).encode(),
        Notice::Done(0).encode(),
        Notice::Refused(2, Refusal::NotWanted).encode(),
        Notice::Fin.encode(),
        Notice::Stop(2).encode(),
        7,
    ];
    for imm in lies {
        for ack in AckMode::ALL {
            let ended = sentence(ack, done(imm));
            assert!(matches!(ended, CloseReason::Protocol(_)), "{imm:#x} {ack:?}: {ended}");
        }
    }
    let stop = done(Notice::Stop(0).encode());
    assert_eq!(sentence(AckMode::Pull, stop), CloseReason::PeerClosed { unacked: 1 });
    // An outcome that is none.
    let ended = sentence(AckMode::Write, |liar, request| {
        let signal = request.signal.unwrap();
        liar.pair.send.next_slot().unwrap()[0] = 200;
        let remote = verbs_safe::RemoteSpan { addr: signal.addr, rkey: signal.rkey, len: 1 };
        liar.post(SendOp::Write { len: 1, remote });
    });
    assert!(matches!(ended, CloseReason::Protocol(ProtocolError::Acknowledgement(_))), "{ended}");
    // A count of messages that were never sent.
    let ended = sentence(AckMode::Pull, |liar, _| {
        liar.memory.store_u64(0, (77_u64 << 16).to_le()).unwrap();
        liar.memory.store_u64(8, checksum_of(&[77 << 16]).to_le()).unwrap();
    });
    assert!(matches!(ended, CloseReason::Protocol(ProtocolError::Acknowledgement(_))), "{ended}");
}

/// A sender that sleeps until a wakeup, and is woken for nothing, asks again: it sleeps
/// as long as the liar is silent.
#[test]
fn a_bell_without_an_acknowledgement_is_asked_for_again() {
    for ack in [AckMode::Write, AckMode::Cumulative, AckMode::Pull] {
        bounded(move || {
            let device = device();
            let wait = WaitStrategy::Block;
            let config = Config {
                ack,
                common: Common { wait, keepalive: NEVER, ..support::common() },
                ..support::config::<Config>()
            };
            let (mut liar, mut sender) = Liar::as_receiver(&device, &config);
            let ticket = sender.offer(readable(&device, 64), b"").unwrap();
            let waiting = std::thread::spawn(move || sender.wait_sent(ticket).map(drop));
            liar.receive();
            for _ in 0..10 {
                assert!(liar.receive().is_empty(), "a message, where a wakeup was to be asked for");
                liar.say(Notice::Wakeup(1).encode());
            }
            liar.say(Notice::Stop(0).encode());
            let ended = waiting.join().unwrap();
            let missing = CloseReason::PeerClosed { unacked: 1 };
            assert_eq!(ended, Err(SendError::Ended(missing)), "{ack:?}");
        });
    }
}

#[test]
fn an_offer_is_read_only() {
    let ended = sentence(AckMode::Write, |liar, request| {
        liar.pair.send.next_slot().unwrap()[..8].fill(9);
        let Place { addr, rkey } = request.memory;
        let remote = verbs_safe::RemoteSpan { addr, rkey, len: 8 };
        liar.post(SendOp::Write { len: 8, remote });
    });
    assert!(matches!(ended, CloseReason::PeerLost(_)), "{ended}");
}

#[test]
fn a_dead_sender_is_detected_beside_a_busy_or_idle_one() {
    for busy in [true, false] {
        bounded(move || {
            let device = device();
            let keepalive = std::time::Duration::from_millis(20);
            let transport = support::mortal();
            let config = Config {
                window: 4,
                common: Common { keepalive, transport, ..support::common() },
                ..support::config::<Config>()
            };
            let mut end = receiver(&device, &config, 2).unwrap();
            let liar = Liar::as_sender(&device, &mut end, AckMode::Write);
            let mut honest: Sender = join(&mut end, &device, &device, &config).unwrap();
            drop(liar);
            let mut place = plain(&device, 64);
            let ended = loop {
                while honest.try_take().unwrap().is_some() {}
                if busy {
                    honest.try_offer_part(readable(&device, 64), 0..64, b"").ok();
                }
                match end.next_request() {
                    Ok(request) => {
                        let reading = request.read_into(place).unwrap();
                        place = end.wait(reading).unwrap().into_buffer();
                    }
                    Err(RecvError::Peer { reason: ended, .. }) => break ended,
                    Err(e) => panic!("{e}"),
                }
            };
            assert!(matches!(ended, CloseReason::PeerLost(_)), "{ended}");
            assert_eq!(end.peers(), 1, "the other one is still there");
        });
    }
}

/// Sends messages through one buffer that is changed as soon as it is returned; the number
/// of those that arrived as something else.
fn torn(seed: u64, config: &Config) -> usize {
    let simulation = Simulation::new(seed, Faults { late_read: 0.3, ..Faults::default() });
    let device = device::open(Some(simulation.name())).unwrap();
    let (mut sender, mut receiver) = pair(&device, &device, config).unwrap();
    let (mut ours, mut theirs) = (readable(&device, 64), plain(&device, 64));
    let mut torn = 0;
    for number in 0..3 {
        ours.copy_from_slice(&content(seed, number, 64));
        let ticket = sender.offer(ours, b"").unwrap();
        let reading = receiver.read_next_into(theirs).unwrap();
        let sent = loop {
            // Both ends are in one thread: each has its turn.
            receiver.progress().unwrap();
            if sender.is_acked(ticket).unwrap() {
                break sender.wait_sent(ticket).unwrap();
            }
        };
        assert_eq!(sent.outcome, Outcome::Read);
        ours = sent.buffer;
        ours.fill(0xee);
        let message = receiver.wait(reading).unwrap();
        torn += usize::from(*message != *content(seed, number, 64));
        theirs = message.into_buffer();
    }
    torn
}

#[test]
fn an_early_acknowledgement_is_found_by_a_torn_message() {
    let base = Config {
        common: Common { wait: WaitStrategy::Spin, keepalive: NEVER, ..support::common() },
        ..support::config::<Config>()
    };
    let early = Config { ack: AckMode::FencedWrite, too_early: true, ..base };
    let found = (0..1000).find(|seed| torn(*seed, &early) > 0);
    println!("found by seed {found:?}");
    assert!(found.is_some(), "1000 schedules without a torn message");
    for ack in AckMode::ALL {
        for seed in 0..200 {
            assert_eq!(torn(seed, &Config { ack, ..base }), 0, "{ack:?}, seed {seed}");
        }
    }
}

#[test]
fn a_peer_of_an_isolated_handle_reaches_no_memory_of_another() {
    bounded(|| {
        let device = device();
        for (of_connection, of_memory, may) in [
            (device.clone(), device.clone(), true),
            (device.isolated().unwrap(), device.clone(), false),
            (device.clone(), device.isolated().unwrap(), false),
        ] {
            let config = Config {
                ack: AckMode::Write,
                common: Common { keepalive: NEVER, ..support::common() },
                ..support::config::<Config>()
            };
            let (mut liar, _victim) = Liar::as_receiver(&of_connection, &config);
            let buffer = readable(&of_memory, 64);
            let signal = buffer.signal().unwrap();
            let remote = signal.remote(0, 8).unwrap();
            liar.pair.send.next_slot().unwrap()[..8].copy_from_slice(b"a guess!");
            liar.post(SendOp::Write { len: 8, remote });
            let expected = if may { WcStatus::SUCCESS } else { WcStatus::REM_ACCESS };
            assert_eq!(liar.status(), expected);
            assert_eq!(signal.load_u64(0).unwrap() != 0, may);
        }
    });
}

/// An initiator that was accepted sends what it likes, and never says that it is ready: the buffers
/// that its messages took are the other links' again.
#[test]
fn an_initiator_that_never_is_ready_loses_no_shared_buffer() {
    const BUFFERS: u32 = 12;
    bounded(|| {
        let device = device();
        let config = Config {
            window: 4,
            common: Common { keepalive: NEVER, ..support::common() },
            ..support::config::<Config>()
        };
        let mut end = receiver_shared(&device, &config, 1, BUFFERS).unwrap();
        for round in 0..6 {
            let mut liar = Liar::new(&device);
            let (mut near, far) = UnixStream::pair().unwrap();
            let application = liar.terms(AckMode::Write);
            write(&mut near, &Frame::Hello(liar.parameters(&application)));
            std::thread::scope(|scope| {
                let accepting = scope.spawn(|| {
                    let incoming = Incoming::greet(far).unwrap();
                    incoming.accept_into(&mut end, &device, &config).map(drop).unwrap_err();
                });
                read(&mut near, |frame| match frame {
                    Frame::Accept(peer) => {
                        liar.join(&peer.initiator_to_acceptor.unwrap(), peer.gid);
                    }
                    other => panic!("{other:?}"),
                });
                for _ in 0..4 {
                    liar.send(b"no request");
                }
                while !liar.is_settled() {}
                drop(near);
                accepting.join().unwrap();
            });
            drop(liar);
            // An honest one has all buffers of its share, and is not told that there are none.
            let mut sender = join(&mut end, &device, &device, &config).unwrap();
            let tickets: Vec<_> =
                (0..4).map(|_| sender.offer(readable(&device, 64), b"").unwrap()).collect();
            for ticket in tickets {
                let reading = end.read_next_into(plain(&device, 64)).unwrap();
                end.wait(reading).unwrap();
                assert_eq!(sender.wait_sent(ticket).unwrap().outcome, Outcome::Read);
            }
            let closing = std::thread::spawn(move || sender.close_and_take().map(drop));
            let none = end.next_request().map(drop);
            assert!(matches!(none, Err(RecvError::Closed)), "{none:?} in {round}");
            closing.join().unwrap().unwrap();
        }
        // The kernel's rxe does not say what its queue pairs keep.
        let says_so = !device.name().starts_with("rxe");
        assert!(!says_so || end.stats().unaccounted_buffers == 0, "{:?}", end.stats());
    });
}

/// A link that has failed with completions that were not polled gives its shared buffers back.
#[test]
fn a_sender_that_overruns_takes_no_shared_buffer_with_it() {
    bounded(|| {
        let device = device();
        let config = Config {
            window: 4,
            common: Common { keepalive: NEVER, ..support::common() },
            ..support::config::<Config>()
        };
        let mut end = receiver_shared(&device, &config, 1, 80).unwrap();
        for _ in 0..4 {
            let mut liar = Liar::as_sender(&device, &mut end, AckMode::Write);
            for _ in 0..60 {
                liar.send(b"no request");
            }
            while !liar.is_settled() {}
            let failed = end.try_recv().map(drop).unwrap_err();
            assert!(matches!(failed, RecvError::Peer { .. }), "{failed:?}");
        }
        let mut sender: Sender = join(&mut end, &device, &device, &config).unwrap();
        let ticket = sender.send(b"there are buffers").unwrap();
        assert_eq!(&*end.recv().unwrap(), b"there are buffers");
        while !sender.is_acked(ticket).unwrap() {
            assert!(matches!(end.try_recv(), Err(RecvError::Empty)));
        }
        let says_so = !device.name().starts_with("rxe");
        assert!(!says_so || end.stats().unaccounted_buffers == 0, "{:?}", end.stats());
    });
}

/// A peer that breaks the protocol is reported while another one sends without end.
#[test]
fn a_failed_peer_is_reported_while_another_one_is_busy() {
    bounded(|| {
        let device = device();
        let config = support::config::<Config>();
        let mut end = receiver(&device, &config, 2).unwrap();
        let mut liar = Liar::as_sender(&device, &mut end, AckMode::Write);
        let mut busy: Sender = join(&mut end, &device, &device, &config).unwrap();
        // In every other call a message has landed that was not handed out.
        let reported = (0..2000).any(|round| {
            if round == 4 {
                liar.send(b"no request");
                while !liar.is_settled() {}
            }
            for _ in 0..2 {
                busy.send(b"more").unwrap();
            }
            let ends = [(); 2].map(|()| end.try_recv().map(drop));
            ends.iter().any(|end| matches!(end, Err(RecvError::Peer { peer: Peer(0), .. })))
        });
        assert!(reported);
    });
}

/// Calls that never wait notice a peer that has died without a word.
#[test]
fn polling_for_requests_reports_a_dead_peer() {
    bounded(|| {
        let device = device();
        let keepalive = std::time::Duration::from_millis(5);
        let common = Common { keepalive, transport: support::mortal(), ..support::common() };
        let mut end =
            receiver(&device, &Config { common, ..support::config::<Config>() }, 1).unwrap();
        assert!(matches!(end.try_next_request().map(drop), Err(RecvError::Empty)), "none joined");
        let liar = Liar::as_sender(&device, &mut end, AckMode::Write);
        assert!(matches!(end.try_next_request().map(drop), Err(RecvError::Empty)));
        drop(liar);
        let ended = loop {
            match end.try_next_request().map(drop) {
                Err(RecvError::Empty) => {}
                other => break other,
            }
        };
        assert!(matches!(ended, Err(RecvError::Peer { .. })), "{ended:?}");
    });
}

#[test]
fn a_message_that_is_refused_is_not_acknowledged() {
    for ack in AckMode::ALL {
        bounded(move || {
            let device = device();
            let config = Config { ack, ..support::config::<Config>() };
            let (mut sender, mut receiver) = pair(&device, &device, &config).unwrap();
            let first = sender.send(b"read").unwrap();
            let reading = receiver.read_next_into(plain(&device, 64)).unwrap();
            receiver.wait(reading).unwrap();
            let second = sender.send(b"refused").unwrap();
            receiver.next_request().unwrap().refuse();
            let refused = SendError::Ended(CloseReason::Refused(Refusal::NotWanted));
            assert_eq!(sender.wait_acked(second), Err(refused.clone()), "{ack:?}");
            assert_eq!(sender.is_acked(second), Err(refused.clone()));
            assert_eq!(sender.wait_all(), Err(refused.clone()));
            assert_eq!(sender.wait_acked(first), Ok(()), "{ack:?}");
            assert_eq!(sender.send(b"more"), Err(refused));
        });
    }
}

/// Messages land in the receiver's buffers, which a connection on another device cannot use.
#[test]
fn a_connection_on_another_device_than_the_receivers_ends_alone() {
    bounded(|| {
        let device = device();
        let config = support::config::<Config>();
        let mut end = receiver(&device, &config, 2).unwrap();
        let apart = device.isolated().unwrap();
        let mut honest: Sender = join(&mut end, &device, &device, &config).unwrap();
        let mut other: Sender = join(&mut end, &apart, &device, &config).unwrap();
        other.send(b"into another domain").unwrap();
        let ended = end.recv().map(drop);
        assert!(
            matches!(ended, Err(RecvError::Peer { peer: Peer(1), reason: CloseReason::Device(_) })),
            "{ended:?}"
        );
        honest.send(b"goes on").unwrap();
        assert_eq!(&*end.recv().unwrap(), b"goes on");
    });
}
