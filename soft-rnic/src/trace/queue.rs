//! Trace of one queue: the table of its requests, and its counters.
//!
//! The caller of each function says which lock orders it with the others of its kind; where none
//! does, the queue has one of its own.

use core::net::IpAddr;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use host::sync::Mutex;

use super::block::TraceBlock;
use super::file::TraceFile;
use super::layout::{
    ENTRY, EventKind, HEADER, RECV, checksum, entry, fate, high, kind, low, object, pair,
};

/// A queue pair, or a shared receive queue.
#[derive(Debug)]
pub(crate) struct QueueTrace {
    block: TraceBlock,
    pub(super) number: u32,
    /// Powers of two, or 0.
    send_capacity: u32,
    recv_capacity: u32,
    /// The shared queue that its receive requests are taken from.
    shared: Option<Arc<QueueTrace>>,
    /// The request that the last wait was of.
    waited: AtomicU32,
    /// Receive requests are taken by several queue pairs, and completions by several threads.
    taking: Mutex<()>,
}

/// Properties with which a queue is made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QueueProperties {
    pub(crate) number: u32,
    pub(crate) transport: u32,
    pub(crate) send_capacity: u32,
    pub(crate) recv_capacity: u32,
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    pub(crate) srq: u32,
}

/// A request that is posted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TracedPost {
    pub(crate) wr_id: u64,
    pub(crate) operation: u64,
    pub(crate) flags: u64,
    pub(crate) len: u32,
    /// The queue pair, or the shared receive queue, that it names.
    pub(crate) to: u32,
}

impl QueueTrace {
    /// A queue of this kind. None if there is no room for its table.
    pub(super) fn new(
        file: &Arc<TraceFile>,
        kind: u64,
        shape: &QueueProperties,
        shared: Option<Arc<QueueTrace>>,
    ) -> Option<QueueTrace> {
        let &QueueProperties { number, send_capacity, recv_capacity, .. } = shape;
        let entries = send_capacity as usize + 2 * recv_capacity as usize;
        let block = TraceBlock::new(file, HEADER + entries * ENTRY)?;
        block.set(object::NUMBER, pair(number, shape.transport));
        block.set(object::CAPACITY, pair(send_capacity, recv_capacity));
        block.set(object::CQS, pair(shape.send_cq, shape.recv_cq));
        block.set(object::SRQ, shape.srq.into());
        block.set(object::STATE_SINCE, crate::clock::now());
        block.publish(object::KIND, kind);
        let (waited, taking) = (AtomicU32::new(0), Mutex::new(()));
        Some(QueueTrace { block, number, send_capacity, recv_capacity, shared, waited, taking })
    }

    /// The queue is destroyed.
    pub(crate) fn destroyed(&self) {
        let event = match self.block.get(object::KIND) {
            kind::QP => EventKind::DestroyQp,
            _ => EventKind::DestroySrq,
        };
        self.block.set(object::KIND, kind::GONE);
        self.block.file.log(event, (0, 0, 0), (self.number, 0), 0);
    }

    /// The state changes; both sides' locks are held, or it is an error, which has a cause.
    pub(crate) fn state(&self, state: u8, cause: u16) {
        let peer = high(self.block.get(object::STATE));
        let [reason, origin] = cause.to_le_bytes();
        let status = u64::from(u16::from_le_bytes([state, reason]));
        let time = self.log(EventKind::State, (origin.into(), status, 0), peer, 0);
        self.block.set(object::CAUSE, cause.into());
        self.block.set(object::STATE_SINCE, time);
        self.block.set(object::STATE, pair(state.into(), peer));
    }

    /// The connection's attributes; both sides' locks are held.
    pub(crate) fn connection(
        &self,
        (peer, address): (u32, Option<IpAddr>),
        [timeout, retry_cnt, rnr_retry]: [u8; 3],
    ) {
        let state = low(self.block.get(object::STATE));
        self.block.set(object::STATE, pair(state, peer));
        let retries = [timeout, retry_cnt, rnr_retry, 0, 0, 0, 0, 0];
        self.block.set(object::RETRIES, u64::from_le_bytes(retries));
        let address = match address {
            Some(IpAddr::V4(address)) => address.to_ipv6_mapped().to_bits(),
            Some(IpAddr::V6(address)) => address.to_bits(),
            None => 0,
        };
        let [first, other] = object::PEER_ADDRESS;
        self.block.set(first, (address >> 64) as u64);
        self.block.set(other, address as u64);
    }

    /// All requests are forgotten; both sides' locks are held.
    pub(crate) fn clear(&self) {
        let _taking = self.taking.lock();
        let sends = [object::POSTED, object::EXECUTED, object::RETIRED, object::POLLED];
        sends.into_iter().for_each(|word| self.block.set(word, 0));
        self.block.set(object::WAIT, 0);
        self.waited.store(0, Ordering::Relaxed);
        // Positions of receive requests continue.
        self.block.set(object::RECV_FIRST, self.block.get(object::RECV_POSTED));
    }

    /// A request is the `position`th of the send queue, whose lock is held.
    pub(crate) fn posted(&self, position: u32, posting: &TracedPost) {
        if self.send_capacity == 0 {
            return;
        }
        let index = position.wrapping_sub(1);
        self.write(index & (self.send_capacity - 1), index, EventKind::PostSend, posting);
        self.block.publish(object::POSTED, position.into());
    }

    /// A receive request is the one behind `index` others; the posting side's lock is held.
    pub(crate) fn posted_recv(&self, index: u32, wr_id: u64, len: u32) {
        if self.recv_capacity == 0 {
            return;
        }
        let posting = TracedPost { wr_id, operation: RECV, len, ..TracedPost::default() };
        self.write(self.recv_slot(index), index, EventKind::PostRecv, &posting);
        self.block.publish(object::RECV_POSTED, index.wrapping_add(1).into());
    }

    fn recv_slot(&self, index: u32) -> u32 {
        self.send_capacity + (index & (2 * self.recv_capacity - 1))
    }

    fn write(&self, slot: u32, index: u32, event: EventKind, posting: &TracedPost) {
        let &TracedPost { wr_id, operation, flags, len, to } = posting;
        let time = self.log(event, (operation, 0, len), to, wr_id);
        let number = index.wrapping_add(1);
        let what = u64::from(len) | operation << 32 | flags << 40;
        let words = [number.into(), wr_id, time, what, to.into()];
        let at = entry_at(slot);
        self.block.publish(at + entry::STATE, 0);
        for (i, word) in words.iter().enumerate().skip(1) {
            self.block.publish(at + i, *word);
        }
        self.block.publish(at + entry::CHECK, checksum(&words));
        self.block.publish(at + entry::STATE, pair(number, fate::POSTED as u32));
    }

    /// Records the progress of the send queue: how many requests have ended, and how many behind
    /// them are on their way. Its lock is held.
    pub(crate) fn progress(&self, executed: u32, sent: u32, waits: bool) {
        self.block.set(object::EXECUTED, pair(executed, sent));
        let wait = self.block.get(object::WAIT);
        if !waits && low(wait) != 0 {
            self.block.set(object::WAIT, pair(0, high(wait)));
        }
    }

    /// The oldest request, at this position, has to wait, for what `reason` says. The send queue's
    /// lock is held.
    pub(crate) fn waits(&self, position: u32, reason: u32, wr_id: u64) {
        // Relaxed: the lock orders it.
        let is_new = self.waited.swap(position, Ordering::Relaxed) != position;
        let tried = if is_new { 0 } else { high(self.block.get(object::WAIT)) };
        let tries = tried.saturating_add(1);
        // Retries are thousands a second: each would push an event of the program out of the log.
        if tries.is_power_of_two() {
            let time = self.log(EventKind::Wait, (0, reason.into(), tries), 0, wr_id);
            if is_new {
                self.block.set(object::WAIT_SINCE, time);
            }
        }
        self.block.set(object::WAIT, pair(reason, tries));
    }

    /// The request at this position completes, and so do those before it. The lock of the
    /// completion queue's producers is held.
    pub(super) fn completed(&self, position: u32, status: u32) {
        if self.send_capacity == 0 {
            return;
        }
        let mut at = low(self.block.get(object::RETIRED));
        let last = position.wrapping_sub(1);
        if position.wrapping_sub(at) > self.send_capacity {
            at = last;
        }
        while at != position {
            let is_last = at == last;
            let fate = if is_last { fate::COMPLETED } else { fate::COVERED };
            let status = if is_last { status } else { 0 };
            self.end(at & (self.send_capacity - 1), at, fate, status);
            at = at.wrapping_add(1);
        }
        self.block.publish(object::RETIRED, position.into());
    }

    /// Sets what became of the request of this index, if the slot is still its own.
    fn end(&self, slot: u32, index: u32, fate: u64, status: u32) {
        let (at, number) = (entry_at(slot) + entry::STATE, index.wrapping_add(1));
        if low(self.block.get(at)) == number {
            self.block.set(at, pair(number, fate as u32 | (status & 0xff) << 8));
        }
    }

    /// The program knows that requests are done: those up to the position that `freed` reads. Of
    /// several threads that say so, the last reads the latest.
    pub(crate) fn polled(&self, freed: impl FnOnce() -> u32) {
        let _taking = self.taking.lock();
        self.block.set(object::POLLED, freed().into());
    }

    /// A receive request is taken: the oldest with this number.
    pub(crate) fn took(&self, wr_id: u64, status: u32) {
        if let Some(shared) = &self.shared {
            return shared.took(wr_id, status);
        }
        if self.recv_capacity == 0 {
            return;
        }
        let _taking = self.taking.lock();
        let posted = low(self.block.get(object::RECV_POSTED));
        let mut first = low(self.block.get(object::RECV_FIRST));
        if posted.wrapping_sub(first) > 2 * self.recv_capacity {
            first = posted.wrapping_sub(2 * self.recv_capacity);
        }
        let is = |index: &u32| self.is_there(*index);
        let all = || core::iter::successors(Some(first), |i| Some(i.wrapping_add(1)));
        let id = |i: u32| self.block.get(entry_at(self.recv_slot(i)) + entry::WR_ID);
        let mut candidates = all().take_while(|index| *index != posted).filter(is);
        if let Some(index) = candidates.find(|index| id(*index) == wr_id) {
            self.end(self.recv_slot(index), index, fate::COMPLETED, status);
        }
        let oldest = all().find(|index| *index == posted || self.is_there(*index));
        self.block.publish(object::RECV_FIRST, oldest.unwrap_or(posted).into());
    }

    /// Reports whether the receive request of this index was not taken.
    fn is_there(&self, index: u32) -> bool {
        let state = self.block.get(entry_at(self.recv_slot(index)) + entry::STATE);
        low(state) == index.wrapping_add(1) && u64::from(high(state)) & 0xff == fate::POSTED
    }

    fn log(&self, event: EventKind, what: (u64, u64, u32), other: u32, wr_id: u64) -> u64 {
        self.block.file.log(event, what, (self.number, other), wr_id)
    }
}

fn entry_at(slot: u32) -> usize {
    HEADER + slot as usize * ENTRY
}
