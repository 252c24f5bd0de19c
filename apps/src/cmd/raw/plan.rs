//! The plan of a measurement, which both ends have to know.

mod check;
mod defaults;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rdma_conn::conn_core::datagram::HEADER_LEN;
use rdma_conn::raw::Offer;
use serde::{Deserialize, Serialize};

use crate::cli::{RawOp, RawTransport, RoundsArgs};
use crate::limits::ENTRY_BYTES;
use crate::settings::{self, Flag, Setting, field, shown, switch};

/// Command that measures: its loop runs over the queue pairs.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawTask {
    /// Messages are answered, one for one.
    Pingpong,
    /// Messages go one way.
    Bench,
}

impl RawTask {
    pub(super) fn name(self) -> &'static str {
        match self {
            RawTask::Pingpong => "pingpong",
            RawTask::Bench => "bench",
        }
    }
}

/// One measurement. The connecting end makes it, and the other one gets it with the
/// handshake of the first queue pair.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(super) struct RawPlan {
    pub(super) task: RawTask,
    pub(super) op: RawOp,
    pub(super) transport: RawTransport,
    /// Bytes of a message.
    pub(super) size: u32,
    /// Bytes of the messages of every second queue pair, where there are two classes.
    pub(super) large: Option<u32>,
    /// Messages in flight: in all (pingpong), or of each queue pair (bench). Where messages are cut
    /// into datagrams, those of each queue pair.
    pub(super) unacked: u32,
    /// Messages to a doorbell.
    pub(super) batch: u32,
    /// Every so many requests of a queue pair, one is signalled.
    pub(super) signal_every: u32,
    /// Messages up to this length are handed over inline.
    pub(super) inline: u32,
    /// Receives in each receive queue.
    pub(super) recv_depth: u32,
    pub(super) poll_batch: u32,
    pub(super) repost_batch: u32,
    /// Queue pairs of the leading end; of the other one, too, unless they are datagrams':
    /// there one serves all.
    pub(super) qps: u32,
    /// True if all queue pairs of an end (of a class) share a receive queue.
    pub(super) srq: bool,
    pub(super) verify: bool,
    /// True if memory is polled on a device that does not promise to deliver the bytes of a write
    /// in order.
    pub(super) assumed_in_order: bool,
    /// Bytes of a datagram, where messages are cut into those and losses are repaired.
    pub(super) datagram: Option<u32>,
    /// Milliseconds after which a message without an answer is lost.
    pub(super) answer_timeout: u32,
    /// Index of this measurement among the `of` measurements of the session.
    pub(super) at: u32,
    pub(super) of: u32,
    /// Rounds of each size, each of which is a measurement.
    #[serde(rename = "r")]
    pub(super) rounds: u32,
}

/// The settings of connections' queues that a verb alone has as well.
pub(super) const QUEUES: &[Setting<RawPlan>] = &[
    Setting::told("--unacked", field!(unacked)),
    Setting::told("--batch", field!(batch)),
    Setting::told("--signal-every", field!(signal_every)),
    Setting::told("--inline", field!(inline)),
    Setting::told("--recv-depth", field!(recv_depth)),
    Setting::told("--poll-batch", field!(poll_batch)),
    Setting::told("--repost-batch", field!(repost_batch)),
];

/// The MTUs of InfiniBand, in bytes.
const MIN_MTU: u32 = 256;
const MAX_MTU: u32 = 4096;
/// Receives for acknowledgements: one comes for each quarter of a window, and for each datagram
/// that comes early or again. Later ones say all that a lost one said.
const ACKS: u32 = 64;
/// Slots begin at multiples of this: no two messages share a cache line.
pub(super) const SLOT_ALIGN: u64 = 64;

impl RawPlan {
    /// The plan of one round, if this is that of the first.
    pub(super) fn of_round(&self, round: u32) -> RawPlan {
        RawPlan { at: self.at + round, ..self.clone() }
    }

    /// The settings, as people write them.
    pub(super) fn flags(&self) -> Vec<Flag> {
        let sizes = [Some(self.size), self.large].into_iter().flatten();
        let sizes: Vec<String> = sizes.map(|size| size.to_string()).collect();
        let mut flags = vec![
            ("--size", sizes.join(",")),
            ("--srq-classes", switch(self.large.is_some())),
            ("--srq", switch(self.srq)),
            ("--reliable", switch(self.datagram.is_some())),
            ("--no-verify", switch(!self.verify)),
            ("--rounds", shown(&self.rounds)),
            ("--qps", shown(&self.qps)),
            ("--peers", shown(&self.qps)),
        ];
        flags.extend(settings::by_flag(QUEUES, &settings::terms(QUEUES, self)));
        flags
    }

    /// Bytes of a datagram.
    ///
    /// # Errors
    /// Messages are not cut.
    pub(super) fn datagram(&self) -> Result<u32> {
        self.datagram.context("messages are not cut into datagrams")
    }

    /// Bytes of the longest request.
    pub(super) fn slot_bytes(&self) -> u32 {
        self.datagram.unwrap_or(self.largest())
    }

    /// The longest request of a queue pair that goes inline, of those of `size` bytes: the
    /// datagrams of a message are of several lengths.
    pub(super) fn max_inline(&self, size: u32) -> u32 {
        match self.datagram {
            Some(bytes) => bytes.min(self.inline),
            None if size <= self.inline && self.op != RawOp::Read => size,
            None => 0,
        }
    }

    /// Bytes of the longest request of a message.
    pub(super) fn request_bytes(&self) -> u32 {
        let whole = self.largest();
        self.datagram.map_or(whole, |bytes| whole.saturating_add(HEADER_LEN as u32).min(bytes))
    }

    /// Reports whether messages complete receives.
    pub(super) fn receives(&self) -> bool {
        matches!(self.op, RawOp::Send | RawOp::WriteImm)
    }

    /// Reports whether the end that `leads` has anything to receive.
    pub(super) fn receives_at(&self, leads: bool) -> bool {
        let one_way = self.task == RawTask::Bench && self.datagram.is_none();
        self.receives() && !(leads && one_way)
    }

    /// Receives of a queue of the end that `leads`.
    pub(super) fn receives_of(&self, leads: bool) -> u32 {
        match (self.receives_at(leads), self.datagram) {
            (false, _) => 0,
            // Acknowledgements, and in ping-pongs the answers to its own messages.
            (true, Some(_)) if leads => match self.task {
                RawTask::Bench => self.recv_depth.min(ACKS),
                RawTask::Pingpong => self.recv_depth.min(self.unacked.saturating_add(ACKS)),
            },
            (true, _) => self.recv_depth,
        }
    }

    /// Reports whether the end that `leads` has anything to send.
    pub(super) fn sends_at(&self, leads: bool) -> bool {
        leads
            || self.datagram.is_some()
            || (self.task == RawTask::Pingpong && self.op != RawOp::Read)
    }

    pub(super) fn is_reliable(&self) -> bool {
        self.transport == RawTransport::Rc || self.datagram.is_some()
    }

    /// Reports whether the immediate says which queue pair a message is from, and which message it
    /// is.
    pub(super) fn numbered(&self) -> bool {
        self.op == RawOp::Send && (self.srq || !self.is_reliable())
    }

    /// Reports whether payloads can be checked: not those of one-way WRITEs over an unreliable
    /// transport, which may overwrite messages that were not checked yet.
    pub(super) fn can_verify(&self) -> bool {
        self.is_reliable() || self.op == RawOp::Send || self.task == RawTask::Pingpong
    }

    /// Queue pairs of an end.
    pub(super) fn own_qps(&self, leads: bool) -> u32 {
        if self.transport == RawTransport::Ud && !leads { 1 } else { self.qps }
    }

    /// Longest time that an answer may take.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_millis(self.answer_timeout.into())
    }

    /// Requests in a send queue.
    pub(super) fn depth(&self) -> u32 {
        match self.task {
            // With those that have been answered, and were not signalled.
            RawTask::Pingpong if self.op != RawOp::Read => {
                self.unacked.saturating_add(self.signal_every)
            }
            _ => self.unacked,
        }
    }

    /// Classes of messages: each has a shared receive queue of its own.
    pub(super) fn classes(&self) -> u32 {
        if self.large.is_some() { 2 } else { 1 }
    }

    /// The class of a queue pair.
    pub(super) fn class_of(&self, rank: usize) -> usize {
        rank % self.classes() as usize
    }

    /// Bytes of the messages of a class.
    pub(super) fn class_size(&self, class: usize) -> u32 {
        self.large.filter(|_| class == 1).unwrap_or(self.size)
    }

    /// Bytes of the messages of a queue pair.
    pub(super) fn size_of(&self, rank: usize) -> u32 {
        self.class_size(self.class_of(rank))
    }

    pub(super) fn largest(&self) -> u32 {
        self.large.unwrap_or(self.size).max(self.size)
    }

    /// Bytes of a receive buffer of a class: of a WRITE, none land there.
    pub(super) fn recv_slot_bytes(&self, class: usize) -> usize {
        match self.datagram {
            Some(bytes) => bytes as usize,
            None if self.op == RawOp::Send => self.class_size(class) as usize,
            None => 0,
        }
    }

    /// Messages that the memory of one queue pair holds, which its peer reaches.
    pub(super) fn places(&self) -> u32 {
        match (self.op, self.task) {
            (RawOp::Send, _) => 0,
            (RawOp::Write, RawTask::Pingpong) => self.unacked,
            // Payloads are not checked: they may all go to, or come from, one place.
            _ if !self.verify => 1,
            // One more than can be in flight: what was not read is not what is expected.
            (RawOp::Read, _) => self.unacked + 1,
            (RawOp::Write, RawTask::Bench) | (RawOp::WriteImm, RawTask::Pingpong) => self.unacked,
            // A place is written again only when its message has been checked: as many
            // messages as there are receives can be waiting for that, and the next ones
            // be on their way.
            (RawOp::WriteImm, RawTask::Bench) => self.recv_depth + self.unacked + 1,
        }
    }

    /// Bytes from one place to the next.
    pub(super) fn stride(&self) -> u64 {
        u64::from(self.slot_bytes()).next_multiple_of(SLOT_ALIGN).max(SLOT_ALIGN)
    }

    /// Reports whether the end that `leads` has memory for its peer.
    pub(super) fn has_memory(&self, leads: bool) -> bool {
        match self.op {
            RawOp::Send => false,
            RawOp::Read => !leads,
            RawOp::Write | RawOp::WriteImm => !leads || self.task == RawTask::Pingpong,
        }
    }

    /// Bytes of that memory, for all queue pairs.
    pub(super) fn memory_bytes(&self) -> u64 {
        u64::from(self.qps) * u64::from(self.places()) * self.stride()
    }

    /// Bytes of all buffers of the end that `leads`: those that messages are sent from,
    /// and those that they arrive in.
    fn buffer_bytes(&self, leads: bool) -> u64 {
        let slots = u64::from(self.own_qps(leads)) * u64::from(self.depth());
        let sent = if self.sends_at(leads) { slots * self.stride() } else { 0 };
        let received = if self.receives_at(leads) { self.receive_bytes(leads) } else { 0 };
        let memory = if self.has_memory(leads) { self.memory_bytes() } else { 0 };
        // A message, and a window of the datagrams of each peer; of a ping-pong, in both directions.
        let ways = if self.task == RawTask::Pingpong { 2 } else { 1 };
        let window = |bytes: u32| u64::from(self.unacked) * u64::from(bytes);
        let cut = |bytes| ways * u64::from(self.qps) * (u64::from(self.size) + window(bytes));
        sent + received + memory + self.datagram.map_or(0, cut)
    }

    /// Bytes of its queues' entries.
    fn entry_bytes(&self, leads: bool) -> u64 {
        let sends = if self.sends_at(leads) { self.depth() } else { 0 };
        let receives = self.receives_of(leads);
        let queues = if self.srq { self.classes() } else { self.own_qps(leads) };
        let sends = u64::from(self.own_qps(leads)) * u64::from(sends);
        (sends + u64::from(queues) * u64::from(receives)) * u64::from(ENTRY_BYTES)
    }

    /// Bytes registered at an end for what it is sent.
    pub(super) fn registered_bytes(&self) -> u64 {
        let received = if self.receives() { self.receive_bytes(false) } else { 0 };
        received + self.memory_bytes()
    }

    /// Bytes of the receive buffers of the end that `leads`.
    fn receive_bytes(&self, leads: bool) -> u64 {
        let queues = if self.srq { self.classes() } else { self.own_qps(leads) };
        // The route header of each datagram is counted, too.
        let header = if self.transport == RawTransport::Ud { 40 } else { 0 };
        let bytes = |class| self.recv_slot_bytes(class) as u64 + header;
        let slot = |class| bytes(class).next_multiple_of(SLOT_ALIGN);
        let class = |queue: u32| self.class_of(queue as usize);
        (0..queues).map(|q| u64::from(self.receives_of(leads)) * slot(class(q))).sum()
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let bytes = serde_json::to_vec(self)?;
        ensure!(bytes.len() <= Offer::MAX_USER, "a plan of {} bytes", bytes.len());
        Ok(bytes)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<RawPlan> {
        let plan: RawPlan = serde_json::from_slice(bytes)
            .context("the connecting end is another version of rdma-conn: run the same one")?;
        ensure!(
            (1..=RoundsArgs::MOST).contains(&plan.rounds) && plan.of.is_multiple_of(plan.rounds),
            "{} measurements in {} rounds",
            plan.of,
            plan.rounds
        );
        plan.check()?;
        Ok(plan)
    }
}

/// The immediate of a numbered message: the low bits of its number, and above them the
/// rank of its queue pair.
pub(super) const NUMBER_BITS: u32 = 24;

/// The immediate of message `number` of a queue pair.
#[inline]
pub(super) fn immediate(rank: usize, number: u64) -> u32 {
    (rank as u32) << NUMBER_BITS | number as u32 & ((1 << NUMBER_BITS) - 1)
}

/// The rank in an immediate, and the low bits of the number.
#[inline]
pub(super) fn rank_and_number(imm: u32) -> (usize, u32) {
    ((imm >> NUMBER_BITS) as usize, imm & ((1 << NUMBER_BITS) - 1))
}

#[cfg(test)]
mod tests;
