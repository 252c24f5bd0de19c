//! The receive side of an end.

use anyhow::Result;
use base::outcome::CommandError;
use rdma_conn::verbs_safe::{CompletionBatch, CompletionQueue, RecvQueue, TakeError};

use super::super::control::UNRECEIVED;
use super::{IdleWatch, QueueIndex};

/// The receive queues of an end, which complete into one queue.
#[derive(Debug)]
pub(in crate::cmd::raw) struct RecvQueues {
    cq: CompletionQueue,
    batch: CompletionBatch,
    queues: Vec<RecvQueueState>,
    /// Those that something has arrived on since they were looked after; one may be there
    /// more than once.
    touched: Vec<usize>,
    index: QueueIndex,
    repost_batch: usize,
    datagrams: bool,
    /// Looks in a row, while there is nothing.
    looks: u32,
}

#[derive(Debug)]
struct RecvQueueState {
    queue: RecvQueue<()>,
    /// Slots to be posted again.
    free: Vec<u32>,
}

impl RecvQueueState {
    #[inline]
    fn repost(&mut self, least: usize) -> Result<()> {
        if self.free.len() >= least {
            self.queue.post(&self.free)?;
            self.free.clear();
        }
        Ok(())
    }
}

/// A receive that has failed, by what the device says of it.
#[cold]
fn unreceived(error: TakeError) -> CommandError {
    let error = match error {
        TakeError::Failed { error, .. } => CommandError::from(error),
        other => other.into(),
    };
    error.context(UNRECEIVED)
}

/// A message that has arrived.
#[derive(Debug)]
pub(in crate::cmd::raw) struct ArrivedMessage<'a> {
    /// The position of the receive queue that it took a buffer of.
    pub(in crate::cmd::raw) queue: usize,
    /// The queue pair that it came to; of a datagram, the one that it came from.
    pub(in crate::cmd::raw) qp_num: u32,
    pub(in crate::cmd::raw) imm: Option<u32>,
    /// The message; of a WRITE with immediate, nothing.
    pub(in crate::cmd::raw) bytes: &'a [u8],
}

impl RecvQueues {
    pub(in crate::cmd::raw) fn new(
        cq: CompletionQueue,
        queues: Vec<RecvQueue<()>>,
        poll_batch: u32,
        repost_batch: u32,
        datagrams: bool,
        spin: bool,
    ) -> RecvQueues {
        let index = QueueIndex::new(queues.iter().map(RecvQueue::queue_id));
        let receiving = |queue: RecvQueue<()>| {
            let free = Vec::with_capacity(queue.pool().slots() as usize);
            RecvQueueState { queue, free }
        };
        let queues = queues.into_iter().map(receiving).collect();
        let batch = CompletionBatch::new(poll_batch as usize);
        let (repost_batch, looks) = (repost_batch as usize, IdleWatch::new(spin).looks());
        let touched = Vec::with_capacity(poll_batch as usize);
        RecvQueues { cq, batch, queues, touched, index, repost_batch, datagrams, looks }
    }

    /// Shows `each` what has arrived; returns how much.
    #[inline]
    pub(in crate::cmd::raw) fn poll(
        &mut self,
        mut each: impl FnMut(ArrivedMessage<'_>) -> Result<()>,
    ) -> Result<usize> {
        let mut taken = self.cq.poll(&mut self.batch)?;
        for _ in 1..self.looks {
            if taken > 0 {
                break;
            }
            taken = self.cq.poll(&mut self.batch)?;
        }
        for completion in self.batch.drain() {
            let position = self.index.position(completion.queue_id());
            let Some(receiving) = self.queues.get_mut(position) else { continue };
            if self.touched.last() != Some(&position) {
                self.touched.push(position);
            }
            // What was answered in this batch may have been followed by as many messages:
            // they cannot wait until the rest of it is.
            receiving.repost(self.repost_batch)?;
            let source = if self.datagrams { completion.src_qp() } else { None };
            let (qp_num, imm) = (source.unwrap_or(completion.qp_num()), completion.imm());
            let message = receiving.queue.take(completion).map_err(unreceived)?;
            let shown = each(ArrivedMessage { queue: position, qp_num, imm, bytes: &message });
            receiving.free.extend(receiving.queue.reclaim(message));
            shown?;
        }
        Ok(taken)
    }

    /// Posts receives again, where enough of them have gathered.
    #[inline]
    pub(in crate::cmd::raw) fn repost(&mut self) -> Result<()> {
        let (queues, least) = (&mut self.queues, self.repost_batch);
        self.touched.drain(..).try_for_each(|position| queues[position].repost(least))
    }
}
