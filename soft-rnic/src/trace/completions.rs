//! Trace of a completion queue, and its effects on the traces of the queues with requests that
//! complete there.

use std::sync::Arc;

use host::sync::Mutex;
use verbs_sys::ibv_wc_opcode;

use super::block::TraceBlock;
use super::layout::{EventKind, HEADER, RECV, high, kind, low, object};
use super::tracer::Tracer;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CqTrace {
    tracer: Arc<Tracer>,
    block: TraceBlock,
    pub(crate) number: u32,
    consuming: Mutex<()>,
}

impl CqTrace {
    /// None if there is no room.
    pub(crate) fn new(tracer: &Arc<Tracer>, capacity: u32) -> Option<CqTrace> {
        let (block, number) = (TraceBlock::new(&tracer.file, HEADER)?, tracer.file.next_cq());
        block.set(object::NUMBER, number.into());
        block.set(object::CAPACITY, capacity.into());
        block.publish(object::KIND, kind::CQ);
        tracer.log(EventKind::CreateCq, (0, 0, 0), (number, 0), 0);
        let consuming = Mutex::new(());
        Some(CqTrace { tracer: Arc::clone(tracer), block, number, consuming })
    }

    /// Records a completion, with the six words of an `ibv_wc`; of a send queue it frees the slots
    /// up to a position. The producers' lock is held.
    pub(crate) fn came(&self, words: &[u64; 6], position: Option<u32>) {
        let (wr_id, status, qp) = (words[0], low(words[1]), high(words[3]));
        let operation = operation(ibv_wc_opcode(high(words[1])));
        let what = (operation, with_reason(words), high(words[2]));
        self.tracer.log(EventKind::Completion, what, (qp, self.number), wr_id);
        let Some(queue) = self.tracer.queue(qp) else { return };
        match position {
            Some(position) => queue.completed(position, status),
            None => queue.took(wr_id, status),
        }
    }

    /// Records that completions were added up to `tail`. The producers' lock is held.
    pub(crate) fn produced(&self, tail: u32) {
        self.block.set(object::PRODUCED, tail.into());
    }

    /// The program has taken a completion.
    pub(crate) fn polled(&self, words: &[u64; 6]) {
        let (wr_id, qp) = (words[0], high(words[3]));
        let operation = operation(ibv_wc_opcode(high(words[1])));
        let what = (operation, with_reason(words), high(words[2]));
        self.tracer.log(EventKind::Poll, what, (qp, self.number), wr_id);
    }

    /// Completions were taken, up to the one that `head` reads. Of several threads that say so, the
    /// last reads the latest.
    pub(crate) fn consumed(&self, head: impl FnOnce() -> u32) {
        let _consuming = self.consuming.lock();
        self.block.set(object::CONSUMED, head().into());
    }

    /// A completion had no room.
    pub(crate) fn overran(&self) {
        self.block.set(object::OVERRUN, 1);
    }
}

/// The operation of a completion.
fn operation(opcode: ibv_wc_opcode) -> u64 {
    match opcode {
        ibv_wc_opcode::IBV_WC_SEND => 0,
        ibv_wc_opcode::IBV_WC_RDMA_WRITE => 1,
        ibv_wc_opcode::IBV_WC_RDMA_READ => 2,
        ibv_wc_opcode::IBV_WC_COMP_SWAP => 3,
        ibv_wc_opcode::IBV_WC_FETCH_ADD => 4,
        ibv_wc_opcode::IBV_WC_ATOMIC_WRITE => 5,
        ibv_wc_opcode::IBV_WC_BIND_MW => 6,
        ibv_wc_opcode::IBV_WC_LOCAL_INV => 7,
        _ => RECV,
    }
}

/// The status of a completion, and its `vendor_err` as the second byte.
fn with_reason(words: &[u64; 6]) -> u64 {
    words[1] & 0xff | (words[2] & 0xff) << 8
}

impl Drop for CqTrace {
    fn drop(&mut self) {
        self.block.set(object::KIND, kind::GONE);
        self.tracer.log(EventKind::DestroyCq, (0, 0, 0), (self.number, 0), 0);
    }
}
