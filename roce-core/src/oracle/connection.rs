//! Both ends and the network between them.

use std::{vec, vec::Vec};

use super::host::{BASE, Host, INVALIDATED, RKEY};
use super::model::ConnectionModel;
use super::{ConnectionOp, Forged, MAX_LENGTH, MEMORY, PacketDirection, RequestDraft};
use crate::codec;
use crate::congestion::{NotificationPoint, cnp};
use crate::headers::{DEFAULT_PKEY, Headers, RnrTimer, Syndrome};
use crate::lengths;
use crate::opcode::Opcode;
use crate::psn::Psn;
use crate::request::{Operation, Request, WqeIndex, packets};
use crate::requester::{
    CompletionStatus, RNR_RETRY_FOREVER, Received, Requester, RequesterConfig, SendSlot,
};
use crate::responder::{Responder, ResponderConfig, ResponseSlot};

/// More packets than this are not on the network: copies are not made, and nothing is sent.
const NETWORK: usize = 256;

/// Parameters on which both ends agree. Numbers are taken modulo what is possible.
#[derive(arbitrary::Arbitrary, Clone, Copy, Debug)]
pub struct ConnectionParams {
    /// Distance from the first packet's number to the wrap.
    pub before_wrap: u8,
    /// The largest window.
    pub window: u8,
    /// Packets of a part of a READ.
    pub read_packets: u8,
    /// READs and atomics under way.
    pub reads: u8,
    /// Entries of the send queue.
    pub entries: u8,
    /// The timeout's exponent; never 0 here.
    pub timeout: u8,
}

/// A packet on the network.
#[derive(Clone, Debug)]
struct PacketInFlight {
    headers: Headers,
    payload: Vec<u8>,
    /// The network was congested where it was.
    is_marked: bool,
}

/// State of a request that was posted.
#[derive(Clone, Debug)]
struct PostedRequest {
    request: Request,
    /// Its bytes; those of a READ arrive.
    data: Vec<u8>,
    /// Bytes that a READ would find if it were executed when it was posted.
    snapshot: Vec<u8>,
    /// Bytes of a READ that have arrived.
    arrived: u32,
    /// Value that an atomic has to find, and the one that it has found.
    expected: Option<u64>,
    found: Option<u64>,
}

/// A connection with its model.
#[derive(Clone, Debug)]
pub struct CheckedConnection {
    requester: Requester<Vec<SendSlot>>,
    responder: Responder<Vec<ResponseSlot>>,
    host: Host,
    model: ConnectionModel,
    posted: Vec<PostedRequest>,
    completed: u64,
    /// Notification points of the responder's end, and of the requester's.
    points: [NotificationPoint; 2],
    to_responder: Vec<PacketInFlight>,
    to_requester: Vec<PacketInFlight>,
    now_ns: u64,
    is_forged: bool,
    /// The numbers that responses have, from each first one on.
    numbers_of_responses: Vec<(Psn, u32)>,
    /// Packets that the requester has sent.
    pub transmitted: u64,
}

impl CheckedConnection {
    /// A connection without requests.
    pub fn new(params: ConnectionParams) -> Self {
        let first_psn = Psn::new((1 << 24) - 1 - u32::from(params.before_wrap));
        let reads = 1 + params.reads % 4;
        let config = RequesterConfig {
            mtu: 256,
            dest_qpn: 2,
            pkey: DEFAULT_PKEY,
            first_psn,
            timeout: 3 + params.timeout % 6,
            retry_cnt: u8::MAX,
            rnr_retry: RNR_RETRY_FOREVER,
            max_rd_atomic: reads,
            max_window: 1 + u32::from(params.window % 24),
            read_packets: 1 + u32::from(params.read_packets % 10),
        };
        let entries = vec![SendSlot::new(); 1 + usize::from(params.entries % 16)];
        let timer = RnrTimer::new(1).expect("a code");
        let (mtu, pkey, dest_qpn) = (256, DEFAULT_PKEY, 1);
        let responds = ResponderConfig { mtu, dest_qpn, pkey, first_psn, min_rnr_timer: timer };
        Self {
            requester: Requester::new(entries, config).expect("a configuration"),
            responder: Responder::new(vec![ResponseSlot::new(); reads.into()], responds)
                .expect("a configuration"),
            host: Host::new(),
            model: ConnectionModel::new(),
            posted: Vec::new(),
            completed: 0,
            points: [NotificationPoint::new(); 2],
            to_responder: Vec::new(),
            to_requester: Vec::new(),
            now_ns: 0,
            is_forged: false,
            numbers_of_responses: Vec::new(),
            transmitted: 0,
        }
    }

    /// Requests that were posted, and that are complete.
    pub fn counts(&self) -> (u64, u64) {
        (self.posted.len() as u64, self.completed)
    }

    /// Packets that the requester has to send if none is lost.
    pub fn least_packets(&self) -> u64 {
        let config = self.requester.config();
        let packets = self.posted.iter().map(|posted| {
            let packets = posted.request.packets(config.mtu);
            let is_read = posted.request.kind == Operation::Read;
            if is_read { packets.div_ceil(config.read_packets) } else { packets }
        });
        packets.map(u64::from).sum()
    }

    /// The responder's next `accesses` accesses to memory find that it is not there.
    pub fn hold_back(&mut self, accesses: u32) {
        self.host.absent = accesses;
    }

    /// Lets an operation happen, and panics where something is wrong.
    pub fn apply(&mut self, op: ConnectionOp) {
        match op {
            ConnectionOp::Post(draft) => self.post(draft),
            ConnectionOp::Receives(count) => {
                self.host.receives = (self.host.receives + u32::from(count)).min(64)
            }
            ConnectionOp::Transmit(count) => (0..count).for_each(|_| _ = self.transmit()),
            ConnectionOp::Respond(count) => (0..count).for_each(|_| _ = self.respond()),
            ConnectionOp::Deliver(way, which) => _ = self.deliver(way, which),
            ConnectionOp::Lose(way, which) => _ = self.take(way, which),
            ConnectionOp::Duplicate(way, which) => self.duplicate(way, which),
            ConnectionOp::Pass(quarters) => self.pass(u64::from(quarters) * 250),
            ConnectionOp::Poll => self.poll(),
            ConnectionOp::Mark(way, which) => self.mark(way, which),
            ConnectionOp::Forge(way, forged) => self.forge(way, forged),
        }
        self.requester.assert_invariants();
        self.compare_receives();
    }

    fn post(&mut self, draft: RequestDraft) {
        let index = self.posted.len() as u64;
        let request = request(index, draft);
        let Ok(given) = self.requester.post(request) else {
            assert!(self.requester.outstanding() > 0 || self.requester.has_failed());
            return;
        };
        assert_eq!(given, WqeIndex(index));
        let length = request.length as usize;
        let data: Vec<u8> = (0..length).map(|at| byte(index, at)).collect();
        let expected = self.model.execute(index, &request, &data);
        let is_read = request.kind == Operation::Read;
        let snapshot = if is_read { self.model.snapshot(&request) } else { Vec::new() };
        let data = if is_read { vec![0; length] } else { data };
        self.posted.push(PostedRequest {
            request,
            data,
            snapshot,
            arrived: 0,
            expected,
            found: None,
        });
    }

    fn transmit(&mut self) -> bool {
        if self.to_responder.len() >= NETWORK {
            return false;
        }
        let Some(packet) = self.requester.next_packet(self.now_ns) else { return false };
        if packet.headers.bth.opcode.has_response() {
            let asked = packet.headers.reth.map_or(0, |reth| reth.len);
            let first = packet.headers.bth.psn;
            self.numbers_of_responses.push((first, packets(asked, self.requester.config().mtu)));
        }
        let data = &self.posted[packet.index.0 as usize].data;
        let (from, length) = (packet.offset as usize, packet.length as usize);
        let payload = if length == 0 { Vec::new() } else { data[from..from + length].to_vec() };
        self.to_responder.push(over_the_wire(packet.headers, payload));
        self.transmitted += 1;
        true
    }

    fn respond(&mut self) -> bool {
        if self.to_requester.len() >= NETWORK {
            return false;
        }
        self.host.payload.clear();
        let Some(response) = self.responder.next_response(&mut self.host) else {
            assert!(!self.responder.has_response());
            return false;
        };
        let payload = core::mem::take(&mut self.host.payload);
        assert_eq!(payload.len(), response.length as usize);
        let Headers { bth, aeth, .. } = response.headers;
        if bth.opcode == Opcode::RcAck && aeth.is_some_and(|aeth| aeth.syndrome == Syndrome::ACK) {
            let is_among =
                |(first, n): &(Psn, u32)| (0..*n as i32).contains(&bth.psn.since(*first));
            assert!(
                self.is_forged || !self.numbers_of_responses.iter().any(is_among),
                "a READ or an atomic is acknowledged without its response"
            );
        }
        self.to_requester.push(over_the_wire(response.headers, payload));
        true
    }

    fn queue(&mut self, way: PacketDirection) -> &mut Vec<PacketInFlight> {
        match way {
            PacketDirection::ToResponder => &mut self.to_responder,
            PacketDirection::ToRequester => &mut self.to_requester,
        }
    }

    fn take(&mut self, way: PacketDirection, which: u8) -> Option<PacketInFlight> {
        let queue = self.queue(way);
        if queue.is_empty() { None } else { Some(queue.remove(usize::from(which) % queue.len())) }
    }

    fn duplicate(&mut self, way: PacketDirection, which: u8) {
        let queue = self.queue(way);
        if !queue.is_empty() && queue.len() < NETWORK {
            queue.push(queue[usize::from(which) % queue.len()].clone());
        }
    }

    fn mark(&mut self, way: PacketDirection, which: u8) {
        let queue = self.queue(way);
        if !queue.is_empty() {
            let at = usize::from(which) % queue.len();
            // A notification is not ECN-capable.
            queue[at].is_marked = queue[at].headers.bth.opcode != Opcode::Cnp;
        }
    }

    fn deliver(&mut self, way: PacketDirection, which: u8) -> bool {
        let Some(packet) = self.take(way, which) else { return false };
        self.arrive(way, &packet);
        true
    }

    /// The end at which a packet has arrived answers a mark.
    fn notify(&mut self, way: PacketDirection) {
        let (point, back, dest_qpn) = match way {
            PacketDirection::ToResponder => (&mut self.points[0], PacketDirection::ToRequester, 1),
            PacketDirection::ToRequester => (&mut self.points[1], PacketDirection::ToResponder, 2),
        };
        if point.on_marked(self.now_ns) && self.queue(back).len() < NETWORK {
            let notification = over_the_wire(cnp(dest_qpn, DEFAULT_PKEY), Vec::new());
            self.queue(back).push(notification);
        }
    }

    fn arrive(&mut self, way: PacketDirection, packet: &PacketInFlight) {
        if packet.is_marked {
            self.notify(way);
        }
        match way {
            // There is no requester at that end.
            PacketDirection::ToResponder
                if packet.headers.bth.opcode == Opcode::Cnp && !self.is_forged => {}
            PacketDirection::ToResponder => {
                self.responder.on_request(&packet.headers, &packet.payload, &mut self.host);
            }
            PacketDirection::ToRequester => self.on_response(packet),
        }
    }

    fn on_response(&mut self, packet: &PacketInFlight) {
        let length = packet.payload.len() as u32;
        let landing = self.requester.landing(&packet.headers);
        match self.requester.on_response(&packet.headers, length, self.now_ns) {
            Received::Place { index, offset, length } => {
                assert_eq!(landing, Some((index, offset, length)), "where it was said to go");
                let posted = &mut self.posted[index.0 as usize];
                assert_eq!(posted.arrived, offset, "a READ's bytes are in order, and once");
                assert_eq!(length as usize, packet.payload.len());
                let place = offset as usize..(offset + length) as usize;
                posted.data[place].copy_from_slice(&packet.payload);
                posted.arrived += length;
            }
            Received::Original { index, value } => {
                assert_eq!(landing, Some((index, 0, 8)), "where it was said to go");
                let posted = &mut self.posted[index.0 as usize];
                assert_eq!(posted.found.replace(value), None, "an atomic was answered twice");
            }
            Received::Ignored | Received::Noted => {}
        }
    }

    fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        if self.requester.deadline_ns().is_some_and(|due_ns| due_ns <= self.now_ns) {
            self.requester.on_timer(self.now_ns);
            let next_ns = self.requester.deadline_ns();
            assert!(next_ns.is_none_or(|due_ns| due_ns > self.now_ns), "a deadline that stays");
        }
    }

    fn poll(&mut self) {
        while let Some(completion) = self.requester.next_completion() {
            assert_eq!(completion.index.0, self.completed, "completions are in order");
            self.completed += 1;
            if self.is_forged {
                continue;
            }
            assert_eq!(completion.status, CompletionStatus::Success);
            let posted = &self.posted[completion.index.0 as usize];
            assert_eq!(posted.found, posted.expected, "what an atomic found");
            if posted.request.kind == Operation::Read {
                assert_eq!(posted.arrived, posted.request.length);
                let PostedRequest { request, snapshot, data, .. } = posted;
                let index = completion.index.0;
                assert!(self.model.may_read(index, request, snapshot, data), "READ {index}");
            }
        }
    }

    fn forge(&mut self, way: PacketDirection, forged: Forged) {
        self.is_forged = true;
        let expected = match way {
            PacketDirection::ToResponder => self.responder.expected_psn(),
            PacketDirection::ToRequester => self.requester.unacked_psn(),
        };
        let payload = vec![0xf0; usize::from(forged.payload) % 4200];
        self.arrive(
            way,
            &PacketInFlight {
                headers: forged.headers(expected),
                payload,
                is_marked: forged.is_marked(),
            },
        );
    }

    fn compare_receives(&mut self) {
        while let Some(done) = self.host.done.pop_front() {
            if !self.is_forged {
                assert_eq!(Some(done), self.model.next_receive());
            }
        }
    }

    /// The network loses nothing more, and the peer posts what is missing: all completes, and is
    /// what the model has. With forged packets, all that can happen happens, for a while.
    pub fn settle(&mut self) {
        for _ in 0..if self.is_forged { 500 } else { 20_000 } {
            self.poll();
            if self.completed == self.posted.len() as u64 && !self.is_forged {
                return self.compare();
            }
            if !self.flow() && !self.wait() {
                assert!(self.is_forged, "the connection stands still: {:?}", self.requester);
                return;
            }
            self.requester.assert_invariants();
            self.compare_receives();
        }
        assert!(self.is_forged, "the connection does not end");
    }

    /// Sends and delivers all that can be.
    fn flow(&mut self) -> bool {
        let mut has_moved = false;
        while self.transmit() {
            has_moved = true;
        }
        while self.deliver(PacketDirection::ToResponder, 0) {
            has_moved = true;
        }
        while self.respond() {
            has_moved = true;
        }
        while self.deliver(PacketDirection::ToRequester, 0) {
            has_moved = true;
        }
        has_moved
    }

    fn wait(&mut self) -> bool {
        self.host.receives = self.host.receives.max(1);
        let Some(due_ns) = self.requester.deadline_ns() else { return false };
        self.pass(due_ns.saturating_sub(self.now_ns));
        true
    }

    fn compare(&mut self) {
        self.compare_receives();
        assert!(!self.model.has_receives(), "receive requests that have not completed");
        assert_eq!(self.host.memory, self.model.memory);
        assert_eq!(self.host.stored, self.model.stored, "bytes were stored twice");
        assert_eq!(self.host.atomics, self.model.atomics, "an atomic was executed twice");
        assert_eq!(self.host.faults, 0);
    }
}

/// A packet as it is received: from headers to bytes and back.
fn over_the_wire(headers: Headers, payload: Vec<u8>) -> PacketInFlight {
    let mut start = [0; lengths::MAX_HEADERS];
    let length = codec::write(&headers, &mut start).expect("headers that fit their opcode");
    let mut bytes = start[..length].to_vec();
    bytes.extend_from_slice(&payload);
    bytes.resize(bytes.len() + usize::from(headers.bth.pad) + lengths::ICRC, 0);
    let received = codec::parse(&bytes).expect("a packet");
    assert_eq!((received.headers, received.payload), (headers, &payload[..]));
    PacketInFlight { headers, payload, is_marked: false }
}

/// A byte of a request's data.
fn byte(index: u64, at: usize) -> u8 {
    let mixed = (index * 0x9e37 + at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

fn request(index: u64, draft: RequestDraft) -> Request {
    let number = index as u32;
    let kind = match draft.kind % 9 {
        0 => Operation::Send,
        1 => Operation::SendImm(number),
        2 => Operation::SendInv(INVALIDATED + number),
        3 => Operation::Write,
        4 => Operation::WriteImm(number),
        5 => Operation::Read,
        6 => Operation::CmpSwap { compare: index / 2 % 3, swap: index % 3 },
        7 => Operation::FetchAdd { add: 1 + index },
        _ => Operation::AtomicWrite,
    };
    let is_word = kind.is_atomic() || kind == Operation::AtomicWrite;
    let length = if is_word { 8 } else { u32::from(draft.length) % (MAX_LENGTH + 1) };
    let room = MEMORY - length as usize;
    let offset = usize::from(draft.offset) % (room + 1);
    // Atomics meet each other in a few words.
    let offset =
        if is_word { (BASE.next_multiple_of(8) - BASE) as usize + offset % 4 * 8 } else { offset };
    Request {
        is_solicited: draft.is_solicited && kind.takes_receive(),
        is_signaled: draft.is_signaled,
        is_fenced: draft.is_fenced,
        ..Request::new(kind, if kind.is_atomic() { 0 } else { length }, BASE + offset as u64, RKEY)
    }
}
