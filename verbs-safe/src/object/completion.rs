//! Completions: each is taken from a queue once, and used once.

use std::fmt;

use verbs_sys::{ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status};

use crate::ids::{QueueId, queue_of};
use crate::status::{WcError, WcStatus};

/// A completed work request. It cannot be made, copied or cloned: it proves to its owner
/// that the device is done with the request's memory.
pub struct Completion<'batch> {
    wc: &'batch ibv_wc,
    epoch: u64,
}

impl Completion<'_> {
    /// The queue that the request was posted to.
    #[inline]
    #[must_use]
    pub fn queue_id(&self) -> QueueId {
        queue_of(self.wc.wr_id)
    }

    /// Returns the number of the request within its queue: its slot, or the low half of its
    /// sequence number.
    #[inline]
    pub(crate) fn low(&self) -> u32 {
        self.wc.wr_id as u32
    }

    /// The completion queue's epoch before the poll that took this.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The queue pair's number.
    #[inline]
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.wc.qp_num
    }

    /// Returns the status with which the request ended.
    #[inline]
    #[must_use]
    pub fn status(&self) -> WcStatus {
        WcStatus::from_raw(self.wc.status)
    }

    /// Reports whether the request was executed.
    #[inline]
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.wc.status == ibv_wc_status::IBV_WC_SUCCESS
    }

    /// Bytes received; 0 if the request failed. Of a datagram, the 40 bytes of its route
    /// header are counted.
    #[inline]
    #[must_use]
    pub fn byte_len(&self) -> u32 {
        if self.is_success() { self.wc.byte_len } else { 0 }
    }

    /// The immediate that arrived with the message, in host order.
    #[inline]
    #[must_use]
    pub fn imm(&self) -> Option<u32> {
        let has = self.is_success() && self.wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
        // SAFETY: the flag says that this member is set; both members are plain integers.
        has.then(|| u32::from_be(unsafe { self.wc.__bindgen_anon_1.imm_data }))
    }

    /// Reports whether this receive was consumed by a peer's WRITE with immediate: its bytes are
    /// then where the peer wrote them, and not in the receive buffer.
    #[inline]
    #[must_use]
    pub fn is_write_imm(&self) -> bool {
        self.is_success() && self.wc.opcode == ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM
    }

    /// Returns the source of a datagram; `None` if this is not the completion of a received
    /// message, or the request failed. For a message that is no datagram, the device may say
    /// anything.
    #[inline]
    #[must_use]
    pub fn source(&self) -> Option<DatagramSource> {
        let received = self.is_success() && self.wc.opcode == ibv_wc_opcode::IBV_WC_RECV;
        received.then_some(DatagramSource {
            qp_num: self.wc.src_qp,
            lid: self.wc.slid,
            service_level: self.wc.sl,
            path_bits: self.wc.dlid_path_bits,
            has_grh: self.wc.wc_flags & ibv_wc_flags::IBV_WC_GRH.0 != 0,
        })
    }

    /// The queue pair that sent a datagram, which identifies a sender on its port: part of
    /// [`source`](Self::source).
    #[inline]
    #[must_use]
    pub fn src_qp(&self) -> Option<u32> {
        self.source().map(|source| source.qp_num)
    }

    /// Reports whether this is the completion of a received message without an immediate.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        // Without branches: nearly always all conditions hold.
        self.is_success()
            & (self.wc.opcode == ibv_wc_opcode::IBV_WC_RECV)
            & (self.wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 == 0)
    }

    /// The length of a message that [`is_plain`](Self::is_plain).
    #[inline]
    pub(crate) fn plain_len(&self) -> u32 {
        self.wc.byte_len
    }

    /// The vendor's error code; 0 without an error.
    #[must_use]
    pub fn vendor_err(&self) -> u32 {
        if self.is_success() { 0 } else { self.wc.vendor_err }
    }

    /// Returns the error of a request that failed; `None` if it was executed.
    #[inline]
    #[must_use]
    pub fn error(&self) -> Option<WcError> {
        (!self.is_success()).then(|| WcError {
            status: self.status(),
            vendor_err: self.wc.vendor_err,
            qp_num: self.wc.qp_num,
        })
    }
}

/// Source of a datagram, as its completion tells it. The rest of the address is in its route header
/// ([`RecvBuf::grh`](crate::RecvBuf::grh)), where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DatagramSource {
    /// The sender's queue pair.
    pub qp_num: u32,
    /// The sender's LID; without meaning on Ethernet.
    pub lid: u16,
    /// The service level of the datagram.
    pub service_level: u8,
    /// The low bits of the LID that it was sent to.
    pub path_bits: u8,
    /// True if a route header stands in front of the datagram.
    pub has_grh: bool,
}

/// Room for the completions of one poll.
///
/// The next poll discards completions that were not taken: drain the batch first.
pub struct CompletionBatch {
    pub(crate) entries: Box<[ibv_wc]>,
    /// Entries that the last poll filled and that were not drained since;
    /// `filled <= entries.len()`.
    pub(crate) filled: usize,
    /// Completions that [`pop`](CompletionBatch::pop) has taken; `popped <= filled`.
    pub(crate) popped: usize,
    /// The completion queue's epoch before that poll.
    pub(crate) epoch: u64,
}

impl CompletionBatch {
    /// Room for `capacity` completions (at least one).
    ///
    /// ```
    /// assert_eq!(verbs_safe::CompletionBatch::new(32).capacity(), 32);
    /// ```
    #[must_use]
    pub fn new(capacity: usize) -> CompletionBatch {
        let capacity = capacity.clamp(1, i32::MAX as usize);
        // Bounded: by the program, at compile time mostly; 1,024 in all connections.
        let entries = vec![ibv_wc::default(); capacity].into();
        CompletionBatch { entries, filled: 0, popped: 0, epoch: 0 }
    }

    /// Returns how many completions one poll can take.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Returns the count of completions that wait to be drained.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.filled - self.popped
    }

    /// Reports whether no completion waits to be drained.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filled == self.popped
    }

    /// The number of the queue pair of the next completion, which stays in the batch.
    #[inline]
    #[must_use]
    pub fn next_qp_num(&self) -> Option<u32> {
        self.entries[..self.filled].get(self.popped).map(|wc| wc.qp_num)
    }

    /// Takes the next completion, and leaves the others for later.
    #[inline]
    pub fn pop(&mut self) -> Option<Completion<'_>> {
        if self.popped >= self.filled {
            return None;
        }
        // SAFETY: `popped` is less than `filled`, which is at most as many as there are.
        let wc = unsafe { self.entries.get_unchecked(self.popped) };
        self.popped += 1;
        Some(Completion { wc, epoch: self.epoch })
    }

    /// The completions that have not been taken. The caller adds those that it uses to
    /// `popped`.
    #[inline]
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Completion<'_>> {
        let epoch = self.epoch;
        self.entries[self.popped..self.filled].iter().map(move |wc| Completion { wc, epoch })
    }

    /// Takes all completions out, in the order of their arrival.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_> {
        // Emptied first: if the iterator is leaked, no completion is seen twice.
        let filled = std::mem::take(&mut self.filled);
        let popped = std::mem::take(&mut self.popped);
        Drain { entries: self.entries[popped..filled].iter(), epoch: self.epoch }
    }
}

/// The completions of one poll. See [`CompletionBatch::drain`].
pub struct Drain<'batch> {
    entries: std::slice::Iter<'batch, ibv_wc>,
    epoch: u64,
}

impl<'batch> Iterator for Drain<'batch> {
    type Item = Completion<'batch>;

    #[inline]
    fn next(&mut self) -> Option<Completion<'batch>> {
        let epoch = self.epoch;
        self.entries.next().map(|wc| Completion { wc, epoch })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for Drain<'_> {}

impl fmt::Debug for Completion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("queue_id", &self.queue_id())
            .field("qp_num", &self.qp_num())
            .field("status", &self.status())
            .field("byte_len", &self.byte_len())
            .finish_non_exhaustive()
    }
}

debug_shows!(CompletionBatch: capacity(), filled);

impl fmt::Debug for Drain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").field("left", &self.entries.len()).finish_non_exhaustive()
    }
}
