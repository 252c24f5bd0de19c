//! The objects of a trace.

use core::net::{IpAddr, Ipv6Addr};

use crate::reason::Cause;
use crate::trace::layout::{
    ENTRY, HEADER, OPERATIONS, RECV, STATES, TRANSPORTS, checksum, entry, fate, flag, high, low,
    object, wait,
};

use super::words::TraceWords;

/// A queue pair, and what was posted to it and is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TracedQp {
    /// Its number, `qp_num`.
    pub number: u32,
    /// RC, UC, UD, `XRC_SEND` or `XRC_RECV`.
    pub transport: &'static str,
    /// As `ibv_modify_qp` names it.
    pub state: &'static str,
    /// Time at which it entered that state.
    pub state_since_ns: u64,
    /// The cause of an error state.
    pub why: Option<String>,
    /// The queue pair at the other end, once that is known.
    pub peer: Option<u32>,
    /// The address of the device that has that queue pair, if it is on a network.
    pub peer_address: Option<IpAddr>,
    /// The completion queue of its sends, by its number in the trace; 0 if that has none.
    pub send_cq: u32,
    /// That of its receives.
    pub recv_cq: u32,
    /// The shared receive queue that it takes requests from.
    pub srq: Option<u32>,
    /// Tries after one without response.
    pub retry_cnt: u8,
    /// Tries after one that found no receive request; 7 is without end.
    pub rnr_retry: u8,
    /// Wait of the oldest request that has not ended, if it waits.
    pub waiting: Option<TracedWait>,
    /// Requests of the send queue that the program has not seen complete, oldest first. Those that
    /// were unsignalled, and have a completed one behind them, are left out.
    pub sends: Vec<TracedRequest>,
    /// Receive requests that nothing has taken, oldest first.
    pub receives: Vec<TracedRequest>,
}

/// A shared receive queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedQueue {
    /// As `ibv_get_srq_num` gives it.
    pub number: u32,
    /// Requests that nothing has taken, oldest first.
    pub receives: Vec<TracedRequest>,
}

/// A completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TracedCq {
    /// In the order in which they were created, from 1 on.
    pub number: u32,
    /// Completions that the program has not polled.
    pub unpolled: u32,
    /// A completion had no room, which ends the queue.
    pub has_overrun: bool,
}

/// A work request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TracedRequest {
    /// Number of requests that were posted to the queue before it.
    pub index: u32,
    /// The program's own name of it.
    pub wr_id: u64,
    /// Operation that it asks for.
    pub operation: &'static str,
    /// Bytes; of a receive request, for which it has room.
    pub len: u32,
    /// A completion was asked for.
    pub is_signaled: bool,
    /// Its data were copied by the post.
    pub is_inline: bool,
    /// It carries an immediate.
    pub has_imm: bool,
    /// It waits for the reads before it.
    pub is_fenced: bool,
    /// The queue pair that a datagram is for; over XRC, the shared receive queue.
    pub to: u32,
    /// Time of its post.
    pub posted_ns: u64,
    /// Progress of the request.
    pub stage: Stage,
}

/// Progress of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// In its queue.
    Queued,
    /// Sent to another process, or over the network, and not answered.
    Sent,
    /// Done; it completes with a later one, or its completion was lost.
    Executed,
    /// Its completion is in the completion queue, with this status.
    Completed(&'static str),
}

/// Wait of the oldest request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TracedWait {
    /// Reason for the wait.
    pub reason: TracedWaitReason,
    /// Number of times that the request has been tried.
    pub tries: u32,
    /// Time since which it waits.
    pub since_ns: u64,
}

/// Reasons of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TracedWaitReason {
    /// The receiver has posted no receive request.
    Receiver,
    /// No response: the peer is not there, or not in a state in which it receives.
    Response,
    /// A device that simulates a delay.
    Delay,
    /// The process of the peer is being looked for.
    Meeting,
    /// The ring to the process of the peer is full.
    Room,
    /// Accesses by the key of a memory window, whose binding has ended, are under way.
    Settling,
    /// As [`Receiver`](Self::Receiver), by a plan of faults.
    InjectedRnr,
    /// As [`Response`](Self::Response), by a plan of faults.
    InjectedLoss,
}

/// A queue in a trace whose table lies within it.
pub(super) struct QueueTable<'w, 'a> {
    words: &'w TraceWords<'a>,
    at: usize,
    send_capacity: u32,
    recv_capacity: u32,
}

impl<'w, 'a> QueueTable<'w, 'a> {
    /// The queue at word `at`, which has `len` words. None if that is too short for its table.
    pub(super) fn new(
        words: &'w TraceWords<'a>,
        at: usize,
        len: usize,
    ) -> Option<QueueTable<'w, 'a>> {
        let capacity = words.get(at + object::CAPACITY);
        let (send_capacity, recv_capacity) = (low(capacity), high(capacity));
        let is_capacity = |n: u32| n == 0 || n.is_power_of_two();
        let entries = u64::from(send_capacity) + 2 * u64::from(recv_capacity);
        let fits = HEADER as u64 + entries * ENTRY as u64 <= len as u64;
        let is_sound = is_capacity(send_capacity) && is_capacity(recv_capacity) && fits;
        is_sound.then_some(QueueTable { words, at, send_capacity, recv_capacity })
    }

    fn get(&self, word: usize) -> u64 {
        self.words.get(self.at + word)
    }

    pub(super) fn queue_pair(&self, torn: &mut u64) -> TracedQp {
        let (number, cqs) = (self.get(object::NUMBER), self.get(object::CQS));
        let state = self.get(object::STATE);
        let [_, retry_cnt, rnr_retry, ..] = self.get(object::RETRIES).to_le_bytes();
        let some = |n: u32| (n != 0).then_some(n);
        TracedQp {
            number: low(number),
            transport: name(&TRANSPORTS, high(number)),
            state: name(&STATES, low(state)),
            state_since_ns: self.get(object::STATE_SINCE),
            why: Cause::from_code(self.get(object::CAUSE) as u16).map(|why| why.to_string()),
            peer: some(high(state)),
            peer_address: self.peer_address(),
            send_cq: low(cqs),
            recv_cq: high(cqs),
            srq: some(low(self.get(object::SRQ))),
            retry_cnt,
            rnr_retry,
            waiting: self.waiting(),
            sends: self.sends(torn),
            receives: self.receives(torn),
        }
    }

    pub(super) fn shared_queue(&self, torn: &mut u64) -> SharedQueue {
        SharedQueue { number: low(self.get(object::NUMBER)), receives: self.receives(torn) }
    }

    fn peer_address(&self) -> Option<IpAddr> {
        let [first, other] = object::PEER_ADDRESS.map(|word| u128::from(self.get(word)));
        let address = Ipv6Addr::from_bits(first << 64 | other);
        (!address.is_unspecified()).then(|| IpAddr::V6(address).to_canonical())
    }

    fn waiting(&self) -> Option<TracedWait> {
        let word = self.get(object::WAIT);
        let reason = match low(word) {
            wait::RNR => TracedWaitReason::Receiver,
            wait::RESPONSE => TracedWaitReason::Response,
            wait::DELAY => TracedWaitReason::Delay,
            wait::MEETING => TracedWaitReason::Meeting,
            wait::ROOM => TracedWaitReason::Room,
            wait::SETTLING => TracedWaitReason::Settling,
            wait::INJECTED_RNR => TracedWaitReason::InjectedRnr,
            wait::INJECTED_LOSS => TracedWaitReason::InjectedLoss,
            _ => return None,
        };
        Some(TracedWait { reason, tries: high(word), since_ns: self.get(object::WAIT_SINCE) })
    }

    fn sends(&self, torn: &mut u64) -> Vec<TracedRequest> {
        let executed = self.get(object::EXECUTED);
        let posted = low(self.get(object::POSTED));
        // Of a number of requests, how many there are behind the oldest: counters wrap.
        let since = |n: u32| posted.wrapping_sub(n);
        let (ended, sent) =
            (since(low(executed)), since(low(executed)).saturating_sub(high(executed)));
        let first = low(self.get(object::POLLED));
        let stage = |index: u32, state: u64| match state & 0xff {
            fate::COMPLETED => Some(Stage::Completed(status(state >> 8 & 0xff))),
            fate::COVERED => None,
            _ if since(index) > ended => Some(Stage::Executed),
            _ if since(index) > sent => Some(Stage::Sent),
            _ => Some(Stage::Queued),
        };
        let slot = |index: u32| index & self.send_capacity.wrapping_sub(1);
        self.requests((first, posted), self.send_capacity, slot, stage, torn)
    }

    fn receives(&self, torn: &mut u64) -> Vec<TracedRequest> {
        let counters = [object::RECV_FIRST, object::RECV_POSTED].map(|word| low(self.get(word)));
        let slots = 2 * self.recv_capacity;
        let stage = |_, state: u64| (state & 0xff == fate::POSTED).then_some(Stage::Queued);
        let slot = |index: u32| self.send_capacity + (index & slots.wrapping_sub(1));
        self.requests((counters[0], counters[1]), slots, slot, stage, torn)
    }

    /// The requests from one index to another, but no more than there are slots for: of those
    /// the youngest.
    fn requests(
        &self,
        (first, posted): (u32, u32),
        slots: u32,
        slot: impl Fn(u32) -> u32,
        stage: impl Fn(u32, u64) -> Option<Stage>,
        torn: &mut u64,
    ) -> Vec<TracedRequest> {
        // A counter may be that of a moment later.
        let n = posted.wrapping_sub(first);
        let n = if n > u32::MAX / 2 { 0 } else { n.min(slots) };
        let mut requests = Vec::new();
        for index in (0..n).map(|i| posted.wrapping_sub(n).wrapping_add(i)) {
            match self.request(slot(index), index) {
                Some((request, state)) => requests
                    .extend(stage(index, state).map(|stage| TracedRequest { stage, ..request })),
                None => *torn += 1,
            }
        }
        requests
    }

    /// The request of this index, and what became of it; none if its slot has another, or is torn.
    fn request(&self, slot: u32, index: u32) -> Option<(TracedRequest, u64)> {
        let at = HEADER + slot as usize * ENTRY;
        let all: [u64; ENTRY] = core::array::from_fn(|i| self.get(at + i));
        let number = index.wrapping_add(1);
        let state = u64::from(high(all[entry::STATE]));
        let mut checked = all;
        checked[entry::STATE] = number.into();
        let is_whole = low(all[entry::STATE]) == number
            && all[entry::CHECK] == checksum(&checked[..entry::CHECK]);
        let what = all[entry::WHAT];
        let [.., operation, flags, _, _] = what.to_le_bytes();
        let has = |flag: u64| u64::from(flags) & flag != 0;
        let request = TracedRequest {
            index,
            wr_id: all[entry::WR_ID],
            operation: OPERATIONS.get(usize::from(operation)).copied()?,
            len: low(what),
            is_signaled: has(flag::SIGNALED) || u64::from(operation) == RECV,
            is_inline: has(flag::INLINE),
            has_imm: has(flag::HAS_IMM),
            is_fenced: has(flag::FENCE),
            to: low(all[entry::TO]),
            posted_ns: all[entry::TIME],
            stage: Stage::Queued,
        };
        is_whole.then_some((request, state))
    }
}

/// The completion queue at word `at`.
pub(super) fn completion_queue(words: &TraceWords<'_>, at: usize) -> TracedCq {
    let get = |word| low(words.get(at + word));
    let unpolled = get(object::PRODUCED).wrapping_sub(get(object::CONSUMED));
    TracedCq {
        number: get(object::NUMBER),
        // A poll may count before the post does.
        unpolled: if unpolled > u32::MAX / 2 { 0 } else { unpolled },
        has_overrun: get(object::OVERRUN) != 0,
    }
}

fn status(number: u64) -> &'static str {
    verbs_sys::wc_status_name(verbs_sys::ibv_wc_status(number as u32))
}

/// Returns the name of a number; a file may have any number.
fn name(names: &'static [&'static str], number: u32) -> &'static str {
    names.get(number as usize).copied().unwrap_or("unknown")
}
