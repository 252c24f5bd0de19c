//! A peer made by hand: it speaks the handshake, and drives a queue pair directly.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use rdma_conn::conn_core::handshake::{
    DecodeError, Endpoint, Frame, MAX_FRAME, Mtu, Options, Parameters, ProtocolId, decode,
};
use rdma_conn::device::Device;
use rdma_conn::verbs_safe::{
    self, CompletionBatch, CompletionQueue, ConnectAttr, CqConfig, QpControl, QueuePairConfig,
    RecvQueue, RecvSide, RemoteAccess, RemoteSpan, SendOp, SendQueue, WcStatus,
};

use super::PATIENCE;

/// Properties of the hand-made end.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Receive buffers, all of them posted.
    pub buffers: u32,
    /// Number of buffers that it claims to have, and their bytes.
    pub claimed_window: u32,
    pub claimed_bytes: u32,
    pub options: Options,
    /// Time that a peer waits if it finds no buffer, as a code.
    pub min_rnr_timer: u8,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            buffers: 16,
            claimed_window: 16,
            claimed_bytes: 64,
            options: Options::NONE,
            min_rnr_timer: 1,
        }
    }
}

/// The hand-made end of one direction.
pub struct HandMadeEnd {
    pub control: QpControl,
    send: SendQueue,
    recv: RecvQueue<()>,
    cq: CompletionQueue,
    shape: Shape,
    psn: u32,
    arrived: VecDeque<(Vec<u8>, Option<u32>)>,
    sent: Vec<WcStatus>,
}

impl HandMadeEnd {
    const SLOT_BYTES: usize = 256;

    pub fn new(device: &Device, shape: Shape) -> HandMadeEnd {
        let cq = device.context().create_cq(CqConfig::new(256)).unwrap();
        let config = QueuePairConfig {
            access: RemoteAccess::ALL,
            max_send_wr: 64,
            send_slots: 64,
            send_slot_bytes: Self::SLOT_BYTES,
            recv: RecvSide::Own { slots: shape.buffers.max(1), slot_bytes: Self::SLOT_BYTES },
            ..QueuePairConfig::new(&cq, &cq)
        };
        let pair = device.pd().create_qp(&config, ()).unwrap();
        let mut recv = pair.recv.unwrap();
        recv.post(&(0..shape.buffers).collect::<Vec<_>>()).unwrap();
        HandMadeEnd {
            control: pair.control,
            send: pair.send,
            recv,
            cq,
            shape,
            psn: verbs_safe::random_psn(),
            arrived: VecDeque::new(),
            sent: Vec::new(),
        }
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            qp_num: self.control.qp_num(),
            psn: self.psn,
            recv_depth: self.shape.claimed_window,
            max_message: self.shape.claimed_bytes,
        }
    }

    pub fn connect(&self, device: &Device, peer: &Parameters<'_>, end: &Endpoint) {
        let port = device.context().port(1).unwrap();
        let gid = device.context().choose_gid(1, None).unwrap();
        let mtu = port.active_mtu.bytes().min(peer.mtu.bytes());
        // Its peer may end the connection.
        let budget = super::budget::mortal();
        let attr = ConnectAttr {
            mtu: verbs_safe::Mtu::from_bytes(mtu).unwrap(),
            min_rnr_timer: self.shape.min_rnr_timer,
            max_dest_rd_atomic: 4,
            timeout: budget.timeout,
            retry_cnt: budget.retry_count,
            ..ConnectAttr::new(gid.index as u8, self.psn)
        };
        let remote =
            verbs_safe::Endpoint { qp_num: end.qp_num, psn: end.psn, lid: peer.lid, gid: peer.gid };
        self.control.connect(&remote, &attr).unwrap();
    }

    /// Its device answers no more.
    pub fn die(&mut self) {
        self.control.to_error().unwrap();
    }

    /// Reports whether everything that is posted from here on fails: the peer does not answer.
    pub fn is_cut_off(&mut self) -> bool {
        self.control(0);
        self.drain().last() != Some(&WcStatus::SUCCESS)
    }

    /// Posts one data message.
    pub fn send(&mut self, bytes: &[u8]) {
        let slot = self.send.next_slot().expect("a free slot");
        slot[..bytes.len()].copy_from_slice(bytes);
        self.post(SendOp::Send { len: bytes.len() as u32 });
    }

    /// Posts one control message.
    pub fn control(&mut self, imm: u32) {
        self.post(SendOp::SendImm { len: 0, imm });
    }

    /// Posts a write.
    pub fn write(&mut self, bytes: &[u8], remote: RemoteSpan) {
        self.fill(bytes);
        self.post(SendOp::Write { len: bytes.len() as u32, remote });
    }

    /// Posts a write with an immediate.
    pub fn write_imm(&mut self, bytes: &[u8], imm: u32, remote: RemoteSpan) {
        self.fill(bytes);
        self.post(SendOp::WriteImm { len: bytes.len() as u32, imm, remote });
    }

    /// Adds to a word of the peer's, and waits for what was there; `None` if that failed.
    pub fn fetch_add(&mut self, remote: RemoteSpan, add: u64) -> Option<u64> {
        self.post(SendOp::FetchAdd { remote, add });
        self.drain();
        let landed = self.send.landed(self.send.staged_total())?;
        Some(u64::from_ne_bytes(landed.try_into().unwrap()))
    }

    fn fill(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            let slot = self.send.next_slot().expect("a free slot");
            slot[..bytes.len()].copy_from_slice(bytes);
        }
    }

    fn post(&mut self, op: SendOp) {
        self.send.stage(op, true).unwrap();
        self.send.post().unwrap();
    }

    /// The next message that arrives, with its immediate.
    pub fn receive(&mut self) -> (Vec<u8>, Option<u32>) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(message) = self.arrived.pop_front() {
                return message;
            }
            assert!(Instant::now() < deadline, "nothing arrived");
            self.poll();
        }
    }

    /// Waits until the last of what was posted has completed, and tells how each did.
    pub fn drain(&mut self) -> Vec<WcStatus> {
        let deadline = Instant::now() + PATIENCE;
        while self.sent.len() < self.send.posted_total() as usize {
            assert!(Instant::now() < deadline, "{:?}", self.sent);
            self.poll();
        }
        self.sent.clone()
    }

    fn poll(&mut self) {
        let mut batch = CompletionBatch::new(16);
        if self.cq.poll(&mut batch).unwrap() == 0 {
            std::thread::yield_now(); // the peer may need this processor
        }
        for completion in batch.drain() {
            if completion.queue_id() == self.send.queue_id() {
                self.sent.push(completion.status());
                let _ = self.send.retire(&completion);
            } else {
                let imm = completion.imm();
                if let Ok(buffer) = self.recv.take(completion) {
                    self.arrived.push_back((buffer.to_vec(), imm));
                }
            }
        }
    }
}

/// Returns the parameters of this device in a handshake.
pub fn parameters(device: &Device, options: Options) -> Parameters<'static> {
    let port = device.context().port(1).unwrap();
    let gid = device.context().choose_gid(1, None).unwrap();
    Parameters {
        protocol: ProtocolId::SEND_RECV,
        options,
        initiator_to_acceptor: None,
        acceptor_to_initiator: None,
        lid: port.lid,
        gid: gid.gid,
        mtu: mtu(port.active_mtu.bytes()),
        application: b"",
    }
}

fn mtu(bytes: u32) -> Mtu {
    let all = [Mtu::B4096, Mtu::B2048, Mtu::B1024, Mtu::B512, Mtu::B256];
    all.into_iter().find(|mtu| mtu.bytes() <= bytes).unwrap()
}

/// Writes one frame.
pub fn write_frame(stream: &mut impl Write, frame: &Frame<'_>) {
    let mut bytes = [0; MAX_FRAME];
    let length = frame.encode(&mut bytes).unwrap();
    stream.write_all(&bytes[..length]).unwrap();
}

/// Reads the bytes of one frame; `None` where the stream ends before it.
pub fn read_frame(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        match decode(&bytes) {
            Ok(_) => return Some(bytes),
            Err(DecodeError::Incomplete { need }) => {
                let have = bytes.len();
                bytes.resize(need, 0);
                stream.read_exact(&mut bytes[have..]).ok()?;
            }
            Err(e) => panic!("the library sent junk: {e}"),
        }
    }
}

/// A hand-made sender, connected to a listener of the library.
pub fn sender_to(address: SocketAddr, device: &Device, shape: Shape) -> HandMadeEnd {
    let mut stream = TcpStream::connect(address).unwrap();
    let end = begin_sender(&mut stream, device, shape);
    write_frame(&mut stream, &Frame::Ready);
    end
}

/// As [`sender_to`]; nothing when it is refused.
pub fn try_sender_to(address: SocketAddr, device: &Device, shape: Shape) -> Option<HandMadeEnd> {
    let mut stream = TcpStream::connect(address).unwrap();
    let end = try_begin_sender(&mut stream, device, shape)?;
    write_frame(&mut stream, &Frame::Ready);
    Some(end)
}

/// A hand-made sender that has been accepted, and has not said that it is ready.
pub fn begin_sender(stream: &mut TcpStream, device: &Device, shape: Shape) -> HandMadeEnd {
    try_begin_sender(stream, device, shape).expect("it is accepted")
}

fn try_begin_sender(stream: &mut TcpStream, device: &Device, shape: Shape) -> Option<HandMadeEnd> {
    let end = HandMadeEnd::new(device, shape);
    let hello = Parameters {
        initiator_to_acceptor: Some(end.endpoint()),
        ..parameters(device, shape.options)
    };
    write_frame(stream, &Frame::Hello(hello));
    let answer = read_frame(stream).expect("an answer");
    match decode(&answer).unwrap().frame {
        Frame::Accept(peer) => end.connect(device, &peer, &peer.initiator_to_acceptor.unwrap()),
        Frame::Refuse(_) => return None,
        other => panic!("neither accepted nor refused: {other:?}"),
    }
    Some(end)
}

/// A hand-made receiver: the acceptor of a sender of the library.
pub fn receiver_for(
    stream: &mut (impl Read + Write),
    device: &Device,
    shape: Shape,
) -> HandMadeEnd {
    let hello = read_frame(stream).expect("a Hello");
    let end = HandMadeEnd::new(device, shape);
    let Frame::Hello(peer) = decode(&hello).unwrap().frame else { panic!("not a Hello") };
    end.connect(device, &peer, &peer.initiator_to_acceptor.unwrap());
    let accept = Parameters {
        initiator_to_acceptor: Some(end.endpoint()),
        ..parameters(device, shape.options)
    };
    write_frame(stream, &Frame::Accept(accept));
    let ready = read_frame(stream).expect("Ready");
    assert_eq!(decode(&ready).unwrap().frame, Frame::Ready);
    end
}
