//! Hand-made ends of a Direct Write connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use rdma_conn::conn_core::checksum::checksum_of;
use rdma_conn::conn_core::direct_write::terms::Terms;
use rdma_conn::conn_core::direct_write::{
    Detection, GOODBYE, IMM_GOODBYE, IMM_MESSAGE, Layout, SLOT_BYTES, STOPPED, stop_at,
};
use rdma_conn::conn_core::handshake::{Endpoint, Frame, Options, Parameters, ProtocolId, decode};
use rdma_conn::conn_core::ring::offer::Place;
use rdma_conn::device::Device;
use rdma_conn::verbs_safe::{Mapping, RemoteAccess, RemoteSpan, SharedRegion, SharedRegionConfig};

use super::raw::{HandMadeEnd, Shape, parameters, read_frame, write_frame};

fn region(device: &Device, bytes: u64) -> (SharedRegion, Place) {
    let access = RemoteAccess { read: false, write: true, atomic: false };
    let config = SharedRegionConfig { access, on_demand: false };
    let mapping = Mapping::new(bytes as usize).unwrap();
    let region = device.pd().register_shared(mapping, config).unwrap();
    let span = region.remote(0, 8).unwrap();
    (region, Place { addr: span.addr, rkey: span.rkey })
}

fn at(place: Place, offset: u64, len: u64) -> RemoteSpan {
    RemoteSpan { addr: place.addr + offset, rkey: place.rkey, len }
}

fn checked(words: [u64; 2]) -> Vec<u8> {
    [words[0], words[1], checksum_of(&words)].map(u64::to_le_bytes).concat()
}

/// A hand-made sender that knows its peer's buffers.
pub struct RawSender {
    pub raw: HandMadeEnd,
    pub layout: Layout,
    pub detection: Detection,
    buffers: Place,
    /// Memory that the peer writes its slots to.
    pub slots: SharedRegion,
}

impl RawSender {
    /// Connects to a listener of the library, with `slots` slots.
    pub fn to(address: SocketAddr, device: &Device, slots: u32) -> Option<RawSender> {
        let mut stream = TcpStream::connect(address).unwrap();
        let raw = HandMadeEnd::new(device, Shape::default());
        let (region, place) = region(device, 4096);
        let application = Terms::Sender { place, slots }.encode();
        let hello = Parameters {
            protocol: ProtocolId::DIRECT_WRITE,
            initiator_to_acceptor: Some(raw.endpoint()),
            application: &application,
            ..parameters(device, Options::NONE)
        };
        write_frame(&mut stream, &Frame::Hello(hello));
        let answer = read_frame(&mut stream).expect("an answer");
        let Frame::Accept(peer) = decode(&answer).unwrap().frame else { return None };
        raw.connect(device, &peer, &peer.initiator_to_acceptor.unwrap());
        let (terms, _) = Terms::decode(peer.application).unwrap();
        let Terms::Receiver { place, layout, detection } = terms else { panic!("{terms:?}") };
        write_frame(&mut stream, &Frame::Ready);
        Some(RawSender { raw, layout, detection, buffers: place, slots: region })
    }

    /// Writes a payload and a trailer with these words, and announces it as the peer wants it.
    pub fn put(&mut self, buffer: u32, payload: &[u8], words: [u64; 2]) {
        let len = payload.len() as u32;
        let mut bytes = payload.to_vec();
        bytes.resize(payload.len().next_multiple_of(8), 0);
        bytes.extend(checked(words));
        let to = at(self.buffers, self.layout.payload_at(buffer, len), bytes.len() as u64);
        match self.detection {
            Detection::Immediate => self.raw.write_imm(&bytes, IMM_MESSAGE, to),
            _ => self.raw.write(&bytes, to),
        }
    }

    /// Message `number`, from 1, as it has to be.
    pub fn message(&mut self, buffer: u32, number: u64, payload: &[u8]) {
        self.put(buffer, payload, [number, payload.len() as u64]);
    }

    /// Writes any bytes where a trailer is.
    pub fn put_trailer(&mut self, buffer: u32, bytes: &[u8; 24]) {
        let to = at(self.buffers, self.layout.trailer_at(buffer), 24);
        self.raw.write(bytes, to);
    }

    pub fn goodbye(&mut self, total: u64) {
        let (bytes, to) =
            (checked([total, GOODBYE]), at(self.buffers, self.layout.goodbye_at(), 24));
        match self.detection {
            Detection::Immediate => self.raw.write_imm(&bytes, IMM_GOODBYE, to),
            _ => self.raw.write(&bytes, to),
        }
    }

    pub fn imm(&mut self, imm: u32) {
        self.raw.write_imm(b"", imm, at(self.buffers, 0, 0));
    }
}

/// A hand-made receiver: the acceptor of a sender of the library.
pub struct RawReceiver {
    pub raw: HandMadeEnd,
    peer_slots: Place,
    slot_count: u32,
    pub buffers: SharedRegion,
}

impl RawReceiver {
    /// Accepts the peer at the other end, with this number of buffers of 100 bytes.
    pub fn accept(
        stream: &mut (impl Read + Write),
        device: &Device,
        buffers: u32,
    ) -> Option<RawReceiver> {
        let layout = Layout::new(buffers, 100).unwrap();
        let hello = read_frame(stream).expect("a Hello");
        let Frame::Hello(peer) = decode(&hello).unwrap().frame else { panic!("not a Hello") };
        let raw = HandMadeEnd::new(device, Shape::default());
        let (buffers, place) = region(device, layout.bytes());
        let detection = Detection::Trailer;
        let application = Terms::Receiver { place, layout, detection }.encode();
        let accept = Parameters {
            protocol: ProtocolId::DIRECT_WRITE,
            initiator_to_acceptor: Some(Endpoint { recv_depth: 0, ..raw.endpoint() }),
            application: &application,
            ..parameters(device, Options::NONE)
        };
        raw.connect(device, &peer, &peer.initiator_to_acceptor.unwrap());
        write_frame(stream, &Frame::Accept(accept));
        let ready = read_frame(stream).expect("Ready, or a refusal");
        if decode(&ready).unwrap().frame != Frame::Ready {
            return None;
        }
        let (terms, _) = Terms::decode(peer.application).unwrap();
        let Terms::Sender { place, slots } = terms else { panic!("{terms:?}") };
        Some(RawReceiver { raw, peer_slots: place, slot_count: slots, buffers })
    }

    /// Writes words to a slot.
    pub fn slot(&mut self, slot: u64, words: [u64; 2]) {
        self.raw.write(&checked(words), at(self.peer_slots, slot * SLOT_BYTES, SLOT_BYTES));
    }

    /// Says that it has taken `taken` messages, and takes no more.
    pub fn stop(&mut self, taken: u64) {
        let to = at(self.peer_slots, stop_at(self.slot_count), SLOT_BYTES);
        self.raw.write(&checked([taken, STOPPED]), to);
    }
}
