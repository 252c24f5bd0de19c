//! Hand-made ends of a Shared Write connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use rdma_conn::conn_core::checksum::checksum_of;
use rdma_conn::conn_core::handshake::{Endpoint, Frame, Options, Parameters, ProtocolId, decode};
use rdma_conn::conn_core::ring::offer::Place;
use rdma_conn::conn_core::shared_write::terms::Terms;
use rdma_conn::conn_core::shared_write::{
    ANNOUNCED_AT, DECIDED_AT, FIRST_AT, GOODBYE, GOODBYE_AT, Layout, REPORTED_AT, STOPPED, TAIL_AT,
};
use rdma_conn::device::Device;
use rdma_conn::verbs_safe::{Mapping, RemoteAccess, RemoteSpan, SharedRegion, SharedRegionConfig};

use super::raw::{HandMadeEnd, Shape, parameters, read_frame, write_frame};

fn region(device: &Device, bytes: u64) -> (SharedRegion, Place) {
    let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    let mapping = Mapping::new(bytes as usize).unwrap();
    let region = device.pd().register_shared(mapping, config).unwrap();
    let span = region.remote(0, 8).unwrap();
    (region, Place { addr: span.addr, rkey: span.rkey })
}

fn at(place: Place, offset: u64, len: u64) -> RemoteSpan {
    RemoteSpan { addr: place.addr + offset, rkey: place.rkey, len }
}

fn checked(words: &[u64]) -> Vec<u8> {
    words.iter().chain(&[checksum_of(words)]).flat_map(|word| word.to_le_bytes()).collect()
}

/// The length of a trailer that ends an extent.
pub const END: u32 = u32::MAX;

/// A hand-made sender that knows its peer's ring.
pub struct RawSender {
    pub raw: HandMadeEnd,
    pub layout: Layout,
    ring: Place,
    link: u32,
    _stop: SharedRegion,
}

impl RawSender {
    /// Connects to a listener of the library.
    pub fn to(address: SocketAddr, device: &Device) -> RawSender {
        let mut stream = TcpStream::connect(address).unwrap();
        let raw = HandMadeEnd::new(device, Shape::default());
        let (stop, place) = region(device, 4096);
        let application = Terms::Sender { place }.encode();
        let hello = Parameters {
            protocol: ProtocolId::SHARED_WRITE,
            initiator_to_acceptor: Some(raw.endpoint()),
            application: &application,
            ..parameters(device, Options::NONE)
        };
        write_frame(&mut stream, &Frame::Hello(hello));
        let answer = read_frame(&mut stream).expect("an answer");
        let Frame::Accept(peer) = decode(&answer).unwrap().frame else { panic!("refused") };
        raw.connect(device, &peer, &peer.initiator_to_acceptor.unwrap());
        let (terms, _) = Terms::decode(peer.application).unwrap();
        let Terms::Receiver { place, layout, link, .. } = terms else { panic!("{terms:?}") };
        write_frame(&mut stream, &Frame::Ready);
        RawSender { raw, layout, ring: place, link, _stop: stop }
    }

    /// Writes words with their checksum anywhere.
    pub fn words(&mut self, offset: u64, words: &[u64]) {
        let bytes = checked(words);
        self.raw.write(&bytes, at(self.ring, offset, bytes.len() as u64));
    }

    fn link_words(&mut self, offset: u64, words: &[u64]) {
        self.words(self.layout.link_at(self.link) + offset, words);
    }

    /// The first `steps` of the four steps of taking the first ticket; the ticket, if it was taken.
    pub fn claim(&mut self, steps: usize) -> Option<u64> {
        let mut ticket = None;
        for step in 0..steps {
            match step {
                0 => self.link_words(ANNOUNCED_AT, &[1, 0]),
                1 => ticket = self.raw.fetch_add(at(self.ring, TAIL_AT, 8), 1),
                2 => {
                    let to = self.layout.link_at(self.link) + FIRST_AT;
                    let bytes = ticket.expect("a ticket").to_le_bytes();
                    self.raw.write(&bytes, at(self.ring, to, 8));
                }
                _ => self.link_words(REPORTED_AT, &[1, 0]),
            }
        }
        ticket
    }

    /// Writes a payload in front of a trailer with these words.
    pub fn put(&mut self, extent: u32, used: u32, payload: &[u8], words: [u64; 2]) {
        let mut bytes = payload.to_vec();
        bytes.resize(payload.len().next_multiple_of(8), 0);
        bytes.extend(checked(&words));
        let to = self.layout.payload_at(extent, used, payload.len() as u32);
        self.raw.write(&bytes, at(self.ring, to, bytes.len() as u64));
    }

    /// A message as it has to be, of a ticket that is one of the first ones.
    pub fn message(&mut self, ticket: u64, used: u32, payload: &[u8]) {
        let words = [ticket, u64::from(used) << 32 | payload.len() as u64];
        self.put(ticket as u32 - 1, used, payload, words);
    }

    /// Moves the tail.
    pub fn tail(&mut self, by: u64) {
        self.raw.fetch_add(at(self.ring, TAIL_AT, 8), by);
    }

    pub fn read_tail(&mut self) -> Option<u64> {
        self.raw.fetch_add(at(self.ring, TAIL_AT, 8), 0)
    }

    pub fn goodbye(&mut self, total: u64) {
        self.link_words(GOODBYE_AT, &[total, GOODBYE]);
    }
}

/// A hand-made receiver: the acceptor of a sender of the library.
pub struct RawReceiver {
    pub raw: HandMadeEnd,
    pub layout: Layout,
    peer_stop: Place,
    pub ring: SharedRegion,
}

impl RawReceiver {
    /// Accepts the peer at the other end, with this tail and two extents for messages of 100
    /// bytes, of which none is granted.
    pub fn accept(stream: &mut (impl Read + Write), device: &Device, tail: u64) -> RawReceiver {
        let layout = Layout::new(2, 256, 100, 1).unwrap();
        let hello = read_frame(stream).expect("a Hello");
        let Frame::Hello(peer) = decode(&hello).unwrap().frame else { panic!("not a Hello") };
        let raw = HandMadeEnd::new(device, Shape::default());
        let (ring, place) = region(device, layout.bytes());
        ring.store_u64(TAIL_AT as usize, tail.to_le()).unwrap();
        let terms = Terms::Receiver { place, layout, link: 0, apart: false };
        let application = terms.encode();
        let accept = Parameters {
            protocol: ProtocolId::SHARED_WRITE,
            initiator_to_acceptor: Some(Endpoint { recv_depth: 0, ..raw.endpoint() }),
            application: &application,
            ..parameters(device, Options::NONE)
        };
        raw.connect(device, &peer, &peer.initiator_to_acceptor.unwrap());
        write_frame(stream, &Frame::Accept(accept));
        let ready = read_frame(stream).expect("Ready");
        assert_eq!(decode(&ready).unwrap().frame, Frame::Ready);
        let (terms, _) = Terms::decode(peer.application).unwrap();
        let Terms::Sender { place } = terms else { panic!("{terms:?}") };
        RawReceiver { raw, layout, peer_stop: place, ring }
    }

    fn store(&self, offset: u64, word: u64) {
        let offset = offset as usize;
        self.ring.store_u64(offset + 8, checksum_of(&[word]).to_le()).unwrap();
        self.ring.publish_tail(offset, word.to_le()).unwrap();
    }

    /// Stores an entry, and that all tickets below `decided` are decided.
    pub fn entry(&self, ticket: u64, word: u64, decided: u64) {
        self.store(self.layout.entry_at(ticket), word);
        self.store(DECIDED_AT, decided);
    }

    /// Says that it has taken `taken` messages, and takes no more.
    pub fn stop(&mut self, taken: u64) {
        self.raw.write(&checked(&[taken, STOPPED]), at(self.peer_stop, 0, 24));
    }
}
