//! The wire: writes into the other node's memory, which arrive at once and in order.

use core::fmt;

use crate::RING;

/// The receiver's memory, as far as the sender writes it.
pub(crate) struct ReceiverMemory {
    pub(crate) ring: [u8; RING],
    /// Up to where records lie in the ring.
    pub(crate) tail: u64,
}

/// The sender's memory, as far as the receiver writes it.
#[derive(Default)]
pub(crate) struct SenderMemory {
    /// Up to where the ring is free again.
    pub(crate) head: u64,
    /// Messages received, and freed.
    pub(crate) counts: [u64; 2],
}

/// Writes that were posted.
#[derive(Default)]
pub(crate) struct Wire {
    records: u64,
    tails: u64,
    heads: u64,
    counts: u64,
}

impl Wire {
    /// Bytes of the ring, from the sender's copy to the same place at the receiver.
    pub(crate) fn write_records(
        &mut self,
        from: &[u8; RING],
        to: &mut ReceiverMemory,
        bytes: core::ops::Range<usize>,
    ) {
        self.records += 1;
        to.ring[bytes.clone()].copy_from_slice(&from[bytes]);
    }

    pub(crate) fn write_tail(&mut self, tail: u64, to: &mut ReceiverMemory) {
        self.tails += 1;
        to.tail = tail;
    }

    pub(crate) fn write_head(&mut self, head: u64, to: &mut SenderMemory) {
        self.heads += 1;
        to.head = head;
    }

    pub(crate) fn write_counts(
        &mut self,
        counts: impl Iterator<Item = u64>,
        to: &mut SenderMemory,
    ) {
        self.counts += 1;
        to.counts.iter_mut().zip(counts).for_each(|(word, count)| *word = count);
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, tails, heads, counts } = self;
        write!(f, "{records} of records, {tails} of tails, {heads} of heads, {counts} of counters")
    }
}
