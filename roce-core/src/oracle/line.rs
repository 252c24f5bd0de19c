//! Connections whose packets share one line with a queue, in a time of their own.
//!
//! ```text
//!   sender ──┐
//!            ├─> queue ── line, or a processor ──> receivers ── answers, a round trip later ──> senders
//!   sender ──┘
//! ```
//!
//! Each sender has a message for every entry of its send queue at all times. The queue drops what
//! it has no room for, and marks packets when it is long. Answers meet no queue.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::{vec, vec::Vec};

use super::Random;
use crate::congestion::{NotificationPoint, cnp};
use crate::headers::{DEFAULT_PKEY, Headers, RnrTimer};
use crate::psn::Psn;
use crate::request::{Operation, Request};
use crate::requester::{RNR_RETRY_FOREVER, Requester, RequesterConfig, SendSlot};
use crate::responder::{
    Access, AccessError, AtomicOp, Outcome, ReceiveDone, ReceiveFault, Refusal, Responder,
    ResponderConfig, ResponseSlot, Target,
};

/// Bytes of a full packet.
pub const MTU: u32 = 4096;
/// Bytes of each message.
pub const MESSAGE: u32 = 64 << 10;
/// Messages that each sender has posted.
const POSTED: usize = 128;

/// Properties of the line and its senders.
#[derive(Clone, Copy, Debug)]
pub struct LineParams {
    /// Number of senders.
    pub senders: usize,
    /// The time in which a sender puts a packet into the queue.
    pub send_ns: u64,
    /// The time in which the line carries a packet.
    pub packet_ns: u64,
    /// The same of a packet that its receiver discards, because one before it is missing. (It is
    /// less if what limits the line is the receiver's processor.)
    pub discard_ns: u64,
    /// The round trip of a packet that waits for no other.
    pub round_trip_ns: u64,
    /// The largest window of a sender, in packets.
    pub window: u32,
    /// Packets of a million that are lost, other than by a queue that is full.
    pub loss_ppm: u32,
    /// Packets that the queue has room for.
    pub queue: usize,
    /// A packet is marked if it finds more than this number of packets before it.
    pub mark_above: usize,
}

impl LineParams {
    /// One sender, whose packets go as fast as the line carries them, and are not lost.
    pub const fn new(packet_ns: u64, round_trip_ns: u64) -> Self {
        Self {
            senders: 1,
            send_ns: packet_ns,
            packet_ns,
            discard_ns: packet_ns,
            round_trip_ns,
            window: 816,
            loss_ppm: 0,
            queue: usize::MAX,
            mark_above: usize::MAX,
        }
    }
}

/// Counts of what has happened in some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineReport {
    /// Messages of each sender that are complete.
    pub messages: Vec<u64>,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Packets that arrived, and were discarded because one before them was missing.
    pub discarded: u64,
    /// Packets that were marked.
    pub marked: u64,
    /// Notifications that were sent.
    pub notified: u64,
    /// The most packets in the queue.
    pub longest: usize,
}

impl LineReport {
    /// Returns the fairness of the line, as Jain's index: 1 if all senders have had the same share,
    /// and 1 divided by the number of senders if one has had all.
    pub fn fairness(&self) -> f64 {
        let sum: f64 = self.messages.iter().map(|count| *count as f64).sum();
        let squares: f64 = self.messages.iter().map(|count| (*count as f64).powi(2)).sum();
        sum * sum / (squares * self.messages.len() as f64)
    }

    /// The part of the line's packets that were new ones, in this time.
    pub fn efficiency(&self, line: &LineParams, ns: u64) -> f64 {
        let messages: u64 = self.messages.iter().sum();
        (messages * u64::from(MESSAGE / MTU) * line.packet_ns) as f64 / ns as f64
    }
}

/// A packet in the queue.
#[derive(Debug)]
struct QueuedPacket {
    sender: usize,
    headers: Headers,
    length: u32,
    is_marked: bool,
}

/// A connection, and its packets that are in no queue.
#[derive(Debug)]
struct LineSender {
    requester: Requester<Vec<SendSlot>>,
    responder: Responder<Vec<ResponseSlot>>,
    point: NotificationPoint,
    /// Answers on their way.
    back: VecDeque<(u64, Headers, u32)>,
    /// Time at which the next packet may be put into the queue.
    free_ns: u64,
    /// Nothing is posted before.
    starts_ns: u64,
}

/// The line with its senders.
#[derive(Debug)]
pub struct LineSimulation {
    line: LineParams,
    ends: Vec<LineSender>,
    queue: VecDeque<QueuedPacket>,
    /// Time at which the line can carry the next packet.
    free_ns: u64,
    now_ns: u64,
    random: Random,
    report: LineReport,
}

impl LineSimulation {
    /// A line on which nothing has been sent. The sender with number n begins after n times
    /// `stagger_ns`.
    pub fn new(line: LineParams, stagger_ns: u64) -> Self {
        let ends =
            (0..line.senders).map(|number| LineSender::new(&line, number as u64 * stagger_ns));
        Self {
            ends: ends.collect(),
            queue: VecDeque::new(),
            free_ns: 0,
            now_ns: 0,
            random: Random(0x9e37_79b9_7f4a_7c15),
            report: LineReport { messages: vec![0; line.senders], ..LineReport::default() },
            line,
        }
    }

    /// The window of a sender.
    pub fn window(&self, sender: usize) -> u32 {
        self.ends[sender].requester.window()
    }

    /// Advances the time by `ns`; returns what has happened in it.
    pub fn run(&mut self, ns: u64) -> LineReport {
        let end_ns = self.now_ns + ns;
        while self.now_ns < end_ns {
            for sender in 0..self.ends.len() {
                self.ends[sender].hear(self.now_ns);
                self.report.messages[sender] += self.ends[sender].complete(self.now_ns);
            }
            // In turns, so that none is always the first.
            while (0..self.ends.len()).filter(|sender| self.send(*sender)).count() > 0 {}
            self.carry();
            self.now_ns = self.next_ns().min(end_ns);
        }
        let none = LineReport { messages: vec![0; self.ends.len()], ..LineReport::default() };
        core::mem::replace(&mut self.report, none)
    }

    /// A sender puts a packet into the queue, if it may.
    fn send(&mut self, sender: usize) -> bool {
        let (now_ns, end) = (self.now_ns, &mut self.ends[sender]);
        if end.free_ns > now_ns {
            return false;
        }
        let Some(packet) = end.requester.next_packet(now_ns) else { return false };
        end.free_ns = now_ns + self.line.send_ns;
        if self.random.below(1_000_000) < self.line.loss_ppm.into() {
            return true;
        }
        if self.queue.len() >= self.line.queue {
            self.report.dropped += 1;
            return true;
        }
        let is_marked = self.queue.len() > self.line.mark_above;
        self.report.marked += u64::from(is_marked);
        let (headers, length) = (packet.headers, packet.length);
        self.queue.push_back(QueuedPacket { sender, headers, length, is_marked });
        self.report.longest = self.report.longest.max(self.queue.len());
        true
    }

    /// The line carries what waits, one packet at a time.
    fn carry(&mut self) {
        while self.free_ns <= self.now_ns
            && let Some(packet) = self.queue.pop_front()
        {
            let (line, end) = (&self.line, &mut self.ends[packet.sender]);
            self.free_ns = self.now_ns + end.receive(&packet, self.now_ns, line, &mut self.report);
        }
    }

    /// Returns the time at which something happens next.
    fn next_ns(&self) -> u64 {
        let ends = self.ends.iter().flat_map(LineSender::next_ns);
        let free_ns = (!self.queue.is_empty()).then_some(self.free_ns);
        let later = ends.chain(free_ns).filter(|at_ns| *at_ns > self.now_ns);
        later.min().unwrap_or(u64::MAX)
    }
}

impl LineSender {
    fn new(line: &LineParams, starts_ns: u64) -> Self {
        let (mtu, pkey, first_psn) = (MTU, DEFAULT_PKEY, Psn::new(7));
        let config = RequesterConfig {
            mtu,
            dest_qpn: 1,
            pkey,
            first_psn,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: RNR_RETRY_FOREVER,
            max_rd_atomic: 1,
            max_window: line.window,
            read_packets: line.window,
        };
        let min_rnr_timer = RnrTimer::new(1).expect("a code");
        let responds = ResponderConfig { mtu, dest_qpn: 1, pkey, first_psn, min_rnr_timer };
        let (sends, responses) = (vec![SendSlot::new(); POSTED], vec![ResponseSlot::new(); 1]);
        Self {
            requester: Requester::new(sends, config).expect("a configuration"),
            responder: Responder::new(responses, responds).expect("a configuration"),
            point: NotificationPoint::new(),
            back: VecDeque::new(),
            free_ns: starts_ns,
            starts_ns,
        }
    }

    /// The receiver takes a packet from `now_ns` on; returns the time that this takes.
    fn receive(
        &mut self,
        packet: &QueuedPacket,
        now_ns: u64,
        line: &LineParams,
        report: &mut LineReport,
    ) -> u64 {
        let payload = &PAYLOAD[..packet.length as usize];
        let outcome = self.responder.on_request(&packet.headers, payload, &mut Sink);
        let is_discarded = outcome == Outcome::OutOfSequence;
        let took_ns = if is_discarded { line.discard_ns } else { line.packet_ns };
        let heard_ns = now_ns + took_ns + line.round_trip_ns;
        if packet.is_marked && self.point.on_marked(now_ns) {
            report.notified += 1;
            self.back.push_back((heard_ns, cnp(1, DEFAULT_PKEY), 0));
        }
        while let Some(response) = self.responder.next_response(&mut Sink) {
            self.back.push_back((heard_ns, response.headers, response.length));
        }
        report.discarded += u64::from(is_discarded);
        took_ns
    }

    /// The sender takes received answers.
    fn hear(&mut self, now_ns: u64) {
        while let Some((_, headers, length)) =
            self.back.pop_front_if(|(at_ns, ..)| *at_ns <= now_ns)
        {
            self.requester.on_response(&headers, length, now_ns);
        }
        if self.requester.deadline_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.requester.on_timer(now_ns);
        }
    }

    /// Takes what is complete, and posts as much; returns the number of requests.
    fn complete(&mut self, now_ns: u64) -> u64 {
        let done = core::iter::from_fn(|| self.requester.next_completion()).count();
        let message = Request::new(Operation::Send, MESSAGE, 0, 0);
        while now_ns >= self.starts_ns && self.requester.post(message).is_ok() {}
        self.requester.assert_invariants();
        done as u64
    }

    fn next_ns(&self) -> impl Iterator<Item = u64> {
        let back_ns = self.back.front().map(|(at_ns, ..)| *at_ns);
        let all = [back_ns, self.requester.deadline_ns(), Some(self.free_ns)];
        all.into_iter().flatten()
    }
}

static PAYLOAD: [u8; MTU as usize] = [0; MTU as usize];

/// Memory that takes everything.
struct Sink;

impl Target for Sink {
    fn take_receive(&mut self) -> Option<u32> {
        Some(MESSAGE)
    }

    fn place(&mut self, _: u32, _: &[u8]) -> Result<(), AccessError> {
        Ok(())
    }

    fn complete_receive(&mut self, _: ReceiveDone) {}

    fn fail_receive(&mut self, _: ReceiveFault) {}

    fn check(&mut self, _: Access, _: u32, _: u64, _: u32) -> Result<(), AccessError> {
        Ok(())
    }

    fn write(&mut self, _: u32, _: u64, _: &[u8]) -> Result<(), AccessError> {
        Ok(())
    }

    fn read(&mut self, _: u32, _: u64, _: u32) -> Result<(), AccessError> {
        Ok(())
    }

    fn atomic(&mut self, _: u32, _: u64, _: AtomicOp) -> Result<u64, AccessError> {
        Ok(0)
    }

    fn atomic_write(&mut self, _: u32, _: u64, _: [u8; 8]) -> Result<(), AccessError> {
        Err(Refusal::Operation.into())
    }

    fn invalidate(&mut self, _: u32) -> Result<(), Refusal> {
        Ok(())
    }
}
