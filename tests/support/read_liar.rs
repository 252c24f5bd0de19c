//! Peers of a Buffered Read connection that write what they like.

use rdma_conn::Common;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rdma_conn::buffered_read::{Config, Receiver, Sender};
use rdma_conn::conn_core::checksum::checksum_of;
use rdma_conn::conn_core::handshake::{
    Decoded, Endpoint, Frame, MAX_APPLICATION, MAX_FRAME, Mtu, Options, Parameters, ProtocolId,
    decode,
};
use rdma_conn::conn_core::ring::offer::{
    CONTROL_BYTES, HEAD_AT, HalfOffer, Offer, Place, RingOffer, TAIL_AT, Tail, WAKE_AT,
};
use rdma_conn::conn_core::ring::{Geometry, Producer};
use rdma_conn::device::Device;
use rdma_conn::ring::{Layout, RingShape};
use rdma_conn::verbs_safe::{
    self, CompletionBatch, CompletionQueue, ConnectAttr, CqConfig, Mapping, QueuePair,
    QueuePairConfig, RecvSide, RemoteAccess, RemoteSpan, SendOp, SharedRegion, SharedRegionConfig,
};
use rdma_conn::{BufferedRead, Listener, connect_sender_over};

use super::{common, mortal};

pub const CAPACITY: u64 = 4096;
/// Offset of the liar's control block, behind its ring.
pub const BLOCK: usize = CAPACITY as usize;

pub fn config() -> Config {
    Config {
        ring: RingShape { ring_bytes: CAPACITY, message_bytes: 1000, layout: Layout::Plain },
        common: Common { keepalive: Duration::from_millis(20), transport: mortal(), ..common() },
        ..super::config()
    }
}

/// A queue pair whose memory says what it likes.
pub struct ReadLiar {
    pub pair: QueuePair,
    pub cq: CompletionQueue,
    pub memory: SharedRegion,
    /// Offset of its ring.
    pub ring_at: usize,
    pub gid: verbs_safe::Gid,
    pub psn: u32,
    /// The peer's control block, if it has one.
    pub block: Option<Place>,
}

impl ReadLiar {
    pub fn new(device: &Device) -> ReadLiar {
        let cq = device.context().create_cq(CqConfig::new(64)).unwrap();
        let access = RemoteAccess::ALL;
        let config = QueuePairConfig { access, ..QueuePairConfig::new(&cq, &cq) };
        let recv = RecvSide::Own { slots: 16, slot_bytes: 0 };
        let config = QueuePairConfig { max_send_wr: 16, send_slots: 16, recv, ..config };
        let mut pair = device.pd().create_qp(&config, ()).unwrap();
        pair.recv.as_mut().unwrap().post(&(0..16).collect::<Vec<_>>()).unwrap();
        let shared = SharedRegionConfig { access, on_demand: false };
        let mapping = Mapping::new(BLOCK + CONTROL_BYTES as usize).unwrap();
        let memory = device.pd().register_shared(mapping, shared).unwrap();
        let gid = device.context().choose_gid(1, None).unwrap();
        ReadLiar { pair, cq, memory, ring_at: 0, gid, psn: verbs_safe::random_psn(), block: None }
    }

    pub fn place(&self, at: usize) -> Place {
        let span = self.memory.remote(at, 8).unwrap();
        Place { addr: span.addr, rkey: span.rkey }
    }

    pub fn parameters<'a>(&self, application: &'a [u8]) -> Parameters<'a> {
        let qp_num = self.pair.control.qp_num();
        let end = Endpoint { qp_num, psn: self.psn, recv_depth: 0, max_message: 1000 };
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

    pub fn join(&self, peer: &Parameters<'_>) {
        let Endpoint { qp_num, psn, .. } = peer.initiator_to_acceptor.unwrap();
        let remote = verbs_safe::Endpoint { qp_num, psn, lid: peer.lid, gid: peer.gid };
        // Its peer may end the connection.
        let budget = super::budget::mortal();
        let attr = ConnectAttr {
            max_rd_atomic: 4,
            max_dest_rd_atomic: 16,
            timeout: budget.timeout,
            retry_cnt: budget.retry_count,
            ..ConnectAttr::new(self.gid.index as u8, self.psn)
        };
        self.pair.control.connect(&remote, &attr).unwrap();
    }

    /// A sender, as one more peer of `receiver`.
    pub fn as_sender(device: &Device, receiver: &mut Receiver) -> ReadLiar {
        ReadLiar::new(device).send_to(device, receiver, &config())
    }

    pub fn send_to(self, device: &Device, receiver: &mut Receiver, config: &Config) -> ReadLiar {
        let liar = self;
        let geometry = Geometry::plain(CAPACITY, 1000).unwrap();
        let ring = RingOffer { place: liar.place(liar.ring_at), geometry, tail: Tail::Read };
        let half = HalfOffer { control: Some(liar.place(BLOCK)), ring: Some(ring) };
        let listener = Listener::<BufferedRead>::bind("127.0.0.1:0").unwrap();
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
    pub fn as_receiver(device: &Device) -> (ReadLiar, Sender) {
        let mut liar = ReadLiar::new(device);
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let sender = std::thread::scope(|scope| {
            let connecting = scope.spawn(|| {
                let mut stream = TcpStream::connect(address).unwrap();
                connect_sender_over::<BufferedRead, _>(&mut stream, device, &config(), b"").unwrap()
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
    pub fn put(&self, ring: &mut Producer, bytes: u32) -> u64 {
        let start = ring.tail();
        let committed = ring.commit(ring.reserve(bytes).unwrap(), bytes).unwrap();
        for header in [Some(committed.header), committed.skip].into_iter().flatten() {
            let at = self.ring_at + header.offset as usize;
            self.memory.store_u64(at, header.word.to_le()).unwrap();
        }
        start
    }

    pub fn publish(&self, tail: u64) {
        let at = BLOCK + TAIL_AT as usize;
        self.memory.store_u64(at + 8, checksum_of(&[tail]).to_le()).unwrap();
        self.memory.publish_tail(at, tail.to_le()).unwrap();
    }

    /// Up to where its receiver says that all has landed.
    pub fn seen_landed(&self) -> u64 {
        let at = BLOCK + rdma_conn::conn_core::ring::offer::TAKEN_AT as usize;
        u64::from_le(self.memory.observe_arrival(at).unwrap())
    }

    /// Writes both words to the sender.
    pub fn tell(&mut self, head: u64, landed: u64) {
        self.write(HEAD_AT, &[head, landed, checksum_of(&[head, landed])]);
    }

    /// Asks the sender for a wake-up, with a valid checksum if `is_whole`.
    pub fn ask_for_wake_up(&mut self, request: u64, is_whole: bool) {
        let checksum = if is_whole { checksum_of(&[request]) } else { !checksum_of(&[request]) };
        self.write(WAKE_AT, &[request, checksum]);
    }

    /// The wake-up that its receiver asks for.
    pub fn asked_for(&self) -> u64 {
        u64::from_le(self.memory.observe_arrival(BLOCK + WAKE_AT as usize).unwrap())
    }

    /// Wakes its receiver, which has a receive posted or not.
    pub fn wake(&mut self) {
        self.pair.send.stage(SendOp::SendImm { len: 0, imm: 0 }, true).unwrap();
        self.post();
    }

    fn write(&mut self, at: u64, words: &[u64]) {
        let slot = self.pair.send.next_slot().unwrap();
        for (to, word) in slot.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        let (Place { addr, rkey }, len) = (self.block.unwrap(), 8 * words.len() as u32);
        let remote = RemoteSpan { addr: addr + at, rkey, len: len.into() };
        self.pair.send.stage(SendOp::Write { len, remote }, true).unwrap();
        self.post();
    }

    /// Posts, and waits until all has completed. Wake-ups that arrive meanwhile are dropped.
    fn post(&mut self) {
        self.pair.send.post().unwrap();
        let mut batch = CompletionBatch::new(16);
        while self.pair.send.retired_total() < self.pair.send.posted_total() {
            self.cq.poll(&mut batch).unwrap();
            for completion in batch.drain() {
                if completion.queue_id() == self.pair.send.queue_id() {
                    assert!(completion.is_success());
                    self.pair.send.retire(&completion).unwrap();
                }
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
