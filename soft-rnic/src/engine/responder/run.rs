//! Runs of plain messages at their destination: what they share is looked up once.
//!
//! The checks are those of [`begin`](super::begin), as far as a message that will not be
//! refused needs them. One that would be is left to it: nothing has happened then.

use std::sync::Arc;

use crate::lock::Guard;
use crate::memory::mr_table::{HeldRegion, LOCAL_WRITE};
use crate::memory::span::MemSpan;
use crate::objects::cq::{CqWriter, Filling};
use crate::objects::state::Qp;
use crate::queues::recv_ring::{RecvConsumer, RecvRing, SrqTaker};

/// Most messages that are taken under the lock of a shared receive queue at a time.
const AT_ONCE: u32 = 64;

/// Messages of one sender, each into a receive request of one buffer.
pub(crate) struct MessageRun<'r, 'm> {
    peer: &'r Qp,
    ring: &'r RecvRing,
    consumer: &'r mut RecvConsumer,
    filling: Filling<'r>,
    buffers: &'r mut HeldRegion<'m>,
    /// Messages for which there are receive requests, and room for their completions.
    left: u32,
}

impl<'r, 'm> MessageRun<'r, 'm> {
    /// At most `most` messages of `from`, which `peer` expects. `taker` keeps the lock of a
    /// shared receive queue.
    #[inline(always)]
    pub(crate) fn open<'a: 'r>(
        peer: &'a Arc<Qp>,
        consumer: &'r mut RecvConsumer,
        from: u32,
        most: u32,
        writer: &'r mut CqWriter<'a>,
        taker: &'r mut Option<Guard<'a, SrqTaker>>,
        buffers: &'r mut HeldRegion<'m>,
    ) -> MessageRun<'r, 'm> {
        // What is checked is looked at one by one.
        let most = if peer.check().is_some() { 0 } else { most };
        let mut filling = writer.fill(&peer.recv_cq, peer.num, from);
        let mut left = most.min(AT_ONCE).min(filling.room(&peer.recv_cq));
        let (ring, consumer) = match &peer.srq {
            None => (&peer.rq, consumer),
            Some(srq) => {
                let taker = taker.insert(srq.taker.lock());
                left = left.min(srq.before_limit(taker));
                (&srq.ring, &mut taker.consumer)
            }
        };
        left = left.min(ring.known(consumer));
        MessageRun { peer, ring, consumer, filling, buffers, left }
    }

    #[inline(always)]
    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    /// The receive request that a message of this length will take, and its buffer.
    ///
    /// # Safety
    /// Some are [`left`](Self::left).
    #[inline(always)]
    pub(crate) unsafe fn begin(&mut self, len: u32) -> Option<(u64, MemSpan<'m>)> {
        // SAFETY: a receive request is left in `ring` (see # Safety).
        let (wr_id, buffer) = unsafe { self.ring.plain_front(self.consumer) }?;
        if len > buffer.length {
            return None;
        }
        let (mrs, pd) = (&self.peer.pd.context.device.mrs, self.ring.pd());
        Some((wr_id, self.buffers.at(mrs, pd, &buffer, len, LOCAL_WRITE)?))
    }

    /// The message lies there.
    #[inline(always)]
    pub(crate) fn finish(&mut self, wr_id: u64, len: u32, solicited: bool) {
        // The slot is free before the completion is visible.
        self.ring.pop(self.consumer);
        self.filling.put(wr_id, len, solicited);
        self.left -= 1;
    }
}
