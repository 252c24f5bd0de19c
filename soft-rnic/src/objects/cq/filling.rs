//! Completions of a run of plain messages: what is the same for all of them is
//! looked up once.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use verbs_sys::*;

use crate::objects::cq::CqWriter;
use crate::objects::cq::producer::CqProducer;
use crate::objects::state::{Cq, CqRing};

/// The slots that are free in one queue, as far as its producers know.
pub(crate) struct Filling<'w> {
    ring: &'w CqRing,
    producer: &'w mut CqProducer,
    /// The words that all the completions share: status and opcode, then the queue
    /// pairs.
    status: u64,
    qp_num: u64,
    src_qp: u64,
}

impl<'a> CqWriter<'a> {
    /// Takes a queue's producers' lock, as a push does, for completions of messages
    /// that `qp_num` receives from `src_qp`.
    #[inline]
    pub(crate) fn fill(&mut self, cq: &'a Arc<Cq>, qp_num: u32, src_qp: u32) -> Filling<'_> {
        let producer = self.hold(cq);
        let success = u64::from(ibv_wc_status::IBV_WC_SUCCESS.0);
        Filling {
            // SAFETY: the producers' lock is held as long as this lives.
            ring: unsafe { cq.ring() },
            producer,
            status: success | u64::from(ibv_wc_opcode::IBV_WC_RECV.0) << 32,
            qp_num: u64::from(qp_num) << 32,
            src_qp: src_qp.into(),
        }
    }
}

impl Filling<'_> {
    /// Number of completions that can be put; none into a queue that is dead, or full.
    #[inline]
    pub(crate) fn room(&mut self, cq: &Cq) -> u32 {
        if self.producer.overrun {
            return 0;
        }
        let used = self.producer.tail.wrapping_sub(self.producer.head_seen);
        if used < self.ring.len() {
            return self.ring.len() - used;
        }
        // Acquire: consumers have read the slots before that.
        self.producer.head_seen = cq.head.load(Ordering::Acquire);
        self.ring.len() - self.producer.tail.wrapping_sub(self.producer.head_seen)
    }

    /// Appends a completion; there is [`room`](Self::room).
    #[inline(always)]
    pub(crate) fn put(&mut self, wr_id: u64, byte_len: u32, solicited: bool) {
        let words = [wr_id, self.status, u64::from(byte_len) << 32, self.qp_num, self.src_qp, 0];
        self.producer.notable |= solicited;
        self.producer.append(self.ring, words, core::ptr::null(), 0);
    }
}
