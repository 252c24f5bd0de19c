//! Helpers that the tests of Buffered Write share.

use rdma_conn::Common;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rdma_conn::WaitStrategy;
use rdma_conn::buffered_write::{self, Config};
use rdma_conn::conn_core::buffered_write::inline_record;
use rdma_conn::conn_core::checksum::checksum_of;
use rdma_conn::conn_core::handshake::{Endpoint, Frame, Options, Parameters, ProtocolId, decode};
use rdma_conn::conn_core::ring::offer::{
    HEAD_AT, HalfOffer, Offer, Place, RingOffer, TAIL_AT, Tail,
};
use rdma_conn::conn_core::ring::{AdvertisedCursor, Geometry};
use rdma_conn::device::Device;
use rdma_conn::ring::{Layout, RingShape};
use rdma_conn::verbs_safe::{Mapping, RemoteAccess, RemoteSpan, SharedRegion, SharedRegionConfig};

use super::NEVER;
use super::raw::{HandMadeEnd, Shape, parameters, read_frame, write_frame};

/// A ring of a page, which goes round soon; without a keepalive that could hide a lost
/// wake-up.
pub fn small(layout: Layout, tail: buffered_write::Tail) -> Config {
    let message_bytes = if layout == Layout::Mirrored { 4088 } else { 2040 };
    Config {
        ring: RingShape { ring_bytes: 4096, message_bytes, layout },
        tail,
        common: Common { keepalive: NEVER, ..super::common() },
        ..super::config()
    }
}

/// Both layouts, all ways to tell a tail (one with hardly a credit), sleeping and spinning.
pub fn all() -> Vec<Config> {
    let mut all = Vec::new();
    for layout in [Layout::Mirrored, Layout::Plain] {
        use buffered_write::Tail::{Immediate, Written};
        for tail in [Immediate { window: 2 }, Immediate { window: 64 }, Written] {
            for wait in [WaitStrategy::Spin, WaitStrategy::Block, WaitStrategy::Adaptive] {
                all.push(Config {
                    common: Common { wait, ..small(layout, tail).common },
                    ..small(layout, tail)
                });
            }
        }
    }
    all
}

/// As [`all`], for peers that die: an end that waits sends a keepalive soon.
pub fn inquisitive(config: Config) -> Config {
    Config {
        common: Common {
            keepalive: Duration::from_millis(20),
            transport: super::mortal(),
            ..config.common
        },
        ..config
    }
}

/// A hand-made sender that knows its peer's ring and control block.
pub struct RawSender {
    pub raw: HandMadeEnd,
    ring: RingOffer,
    control: Place,
    /// Memory that the peer writes its head to.
    pub block: SharedRegion,
}

fn region(device: &Device, bytes: usize) -> (SharedRegion, Place) {
    let access = RemoteAccess { read: false, write: true, atomic: false };
    let config = SharedRegionConfig { access, on_demand: false };
    let region = device.pd().register_shared(Mapping::new(bytes).unwrap(), config).unwrap();
    let span = region.remote(0, 8).unwrap();
    (region, Place { addr: span.addr, rkey: span.rkey })
}

fn at(place: Place, offset: u64, len: u64) -> RemoteSpan {
    RemoteSpan { addr: place.addr + offset, rkey: place.rkey, len }
}

fn encoded(half: HalfOffer) -> Vec<u8> {
    let offer = Offer { initiator_to_acceptor: Some(half), acceptor_to_initiator: None, user: b"" };
    let mut bytes = vec![0; 512];
    let length = offer.encode(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

fn half_of(frame: &Parameters<'_>) -> HalfOffer {
    Offer::decode(frame.application).unwrap().initiator_to_acceptor.unwrap()
}

impl RawSender {
    /// Connects to a listener of the library.
    pub fn to(address: SocketAddr, device: &Device) -> RawSender {
        let mut stream = TcpStream::connect(address).unwrap();
        let raw = HandMadeEnd::new(device, Shape::default());
        let (block, place) = region(device, 4096);
        let application = encoded(HalfOffer { control: Some(place), ring: None });
        let hello = Parameters {
            protocol: ProtocolId::BUFFERED_WRITE,
            initiator_to_acceptor: Some(raw.endpoint()),
            application: &application,
            ..parameters(device, Options::NONE)
        };
        write_frame(&mut stream, &Frame::Hello(hello));
        let answer = read_frame(&mut stream).expect("an answer");
        let Frame::Accept(peer) = decode(&answer).unwrap().frame else { panic!("not accepted") };
        raw.connect(device, &peer, &peer.initiator_to_acceptor.unwrap());
        let half = half_of(&peer);
        write_frame(&mut stream, &Frame::Ready);
        RawSender { raw, ring: half.ring.unwrap(), control: half.control.unwrap(), block }
    }

    /// Writes bytes at a place of the ring.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        self.raw.write(bytes, at(self.ring.place, offset, bytes.len() as u64));
    }

    /// Writes a record's header as it has to be, and as much of a payload as there is.
    pub fn put_record(&mut self, position: u64, len: u32, payload: &[u8]) {
        let word = (position << 29 | u64::from(len)).to_le_bytes();
        let offset = position % self.ring.geometry.capacity();
        self.put(offset, &[&word[..], payload].concat());
    }

    /// Tells a tail, whichever way the peer wants it.
    pub fn tell(&mut self, position: u64, is_last: bool) {
        let told = AdvertisedCursor { position, is_last };
        match self.ring.tail {
            Tail::Written => {
                let word = told.to_word();
                self.write_tail([word, checksum_of(&[word])]);
            }
            _ => self.tell_imm(told.to_imm()),
        }
    }

    /// Writes a tail and its checksum, whatever they are.
    pub fn write_tail(&mut self, [word, checksum]: [u64; 2]) {
        let to = at(self.control, TAIL_AT, 16);
        self.raw.write(&[word.to_le_bytes(), checksum.to_le_bytes()].concat(), to);
    }

    /// Writes a tail and a record beside it, whose header is of `position`: nothing of it to
    /// the ring.
    pub fn tell_inline(&mut self, tail: u64, position: u64, payload: &[u8]) {
        let (mut words, mut line) = (vec![position << 29 | payload.len() as u64], [0; 64]);
        for word in payload.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            words.push(u64::from_le_bytes(bytes));
        }
        let told = AdvertisedCursor { position: tail, is_last: false };
        let len = inline_record::put(told, &words, &mut line).expect("a short record");
        self.raw.write(&line[..len], at(self.control, TAIL_AT, len as u64));
    }

    /// Sends an immediate.
    pub fn tell_imm(&mut self, imm: u32) {
        self.raw.write_imm(b"", imm, at(self.ring.place, 0, 0));
    }
}

/// A hand-made receiver: the acceptor of a sender of the library.
pub struct RawReceiver {
    pub raw: HandMadeEnd,
    peer_block: Place,
    /// Ring and control block.
    pub ring: SharedRegion,
    pub block: SharedRegion,
}

impl RawReceiver {
    /// Accepts the peer at the other end, with a ring of a page.
    pub fn accept(stream: &mut (impl Read + Write), device: &Device, tail: Tail) -> RawReceiver {
        let hello = read_frame(stream).expect("a Hello");
        let Frame::Hello(peer) = decode(&hello).unwrap().frame else { panic!("not a Hello") };
        let raw = HandMadeEnd::new(device, Shape::default());
        let ((ring, ring_place), (block, block_place)) =
            (region(device, 4096), region(device, 4096));
        let geometry = Geometry::plain(4096, 1000).unwrap();
        let offer = RingOffer { place: ring_place, geometry, tail };
        let application = encoded(HalfOffer { control: Some(block_place), ring: Some(offer) });
        let accept = Parameters {
            protocol: ProtocolId::BUFFERED_WRITE,
            initiator_to_acceptor: Some(Endpoint { recv_depth: 15, ..raw.endpoint() }),
            application: &application,
            ..parameters(device, Options::NONE)
        };
        raw.connect(device, &peer, &peer.initiator_to_acceptor.unwrap());
        write_frame(stream, &Frame::Accept(accept));
        let ready = read_frame(stream).expect("Ready");
        assert_eq!(decode(&ready).unwrap().frame, Frame::Ready);
        let peer_block = half_of(&peer).control.unwrap();
        RawReceiver { raw, peer_block, ring, block }
    }

    /// Tells a head, and how many immediates were taken.
    pub fn tell(&mut self, position: u64, is_last: bool, taken: u64) {
        let head = AdvertisedCursor { position, is_last }.to_word();
        let words = [head, taken, checksum_of(&[head, taken])].map(u64::to_le_bytes).concat();
        self.raw.write(&words, at(self.peer_block, HEAD_AT, 24));
    }
}
