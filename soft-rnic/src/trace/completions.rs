//! What is traced of a completion queue, and what it tells of the queues whose requests complete
//! there.

use std::sync::Arc;

use host::sync::Mutex;

use super::block::Block;
use super::layout::{HEADER, Kind, RECV, high, kind, low, object};
use super::tracer::Tracer;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Completions {
    tracer: Arc<Tracer>,
    block: Block,
    pub(crate) number: u32,
    consuming: Mutex<()>,
}

impl Completions {
    /// None if there is no room.
    pub(crate) fn new(tracer: &Arc<Tracer>, capacity: u32) -> Option<Completions> {
        let (block, number) = (Block::new(&tracer.file, HEADER)?, tracer.file.next_cq());
        block.set(object::NUMBER, number.into());
        block.set(object::CAPACITY, capacity.into());
        block.publish(object::KIND, kind::CQ);
        tracer.log(Kind::CreateCq, (0, 0, 0), (number, 0), 0);
        let consuming = Mutex::new(());
        Some(Completions { tracer: Arc::clone(tracer), block, number, consuming })
    }

    /// A completion comes, with the six words of an `ibv_wc`; of a send queue it frees the slots
    /// up to a position. The producers' lock is held.
    pub(crate) fn came(&self, words: &[u64; 6], position: Option<u32>) {
        let (wr_id, status, qp) = (words[0], low(words[1]), high(words[3]));
        let operation = if position.is_some() { 0 } else { RECV };
        let what = (operation, status.into(), high(words[2]));
        self.tracer.log(Kind::Completion, what, (qp, self.number), wr_id);
        let Some(queue) = self.tracer.queue(qp) else { return };
        match position {
            Some(position) => queue.completed(position, status),
            None => queue.took(wr_id, status),
        }
    }

    /// So many completions have come. The producers' lock is held.
    pub(crate) fn produced(&self, tail: u32) {
        self.block.set(object::PRODUCED, tail.into());
    }

    /// The program has taken a completion.
    pub(crate) fn polled(&self, words: &[u64; 6]) {
        let (wr_id, status, qp) = (words[0], low(words[1]), high(words[3]));
        let what = (0, status.into(), high(words[2]));
        self.tracer.log(Kind::Poll, what, (qp, self.number), wr_id);
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

impl Drop for Completions {
    fn drop(&mut self) {
        self.block.set(object::KIND, kind::GONE);
        self.tracer.log(Kind::DestroyCq, (0, 0, 0), (self.number, 0), 0);
    }
}
