//! The queues of one end: what it sends with, and what it receives with.

mod inbox;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rdma_conn::verbs_safe::{CompletionBatch, CompletionQueue, PeerId, QueueId, SendOp, SendQueue};

use super::control::{LOST, RawChannel, RawControl};

pub(super) use inbox::{ArrivedMessage, RecvQueues};

/// No living peer takes longer for one answer, and no device for one completion.
const PATIENCE: Duration = Duration::from_secs(30);

/// Table of the positions of queues, by their numbers, which lie close together.
#[derive(Debug)]
struct QueueIndex {
    first: u32,
    positions: Box<[u16]>,
}

impl QueueIndex {
    fn new(ids: impl Iterator<Item = QueueId> + Clone) -> QueueIndex {
        let first = ids.clone().map(QueueId::get).min().unwrap_or(0);
        let last = ids.clone().map(QueueId::get).max().unwrap_or(0);
        let mut positions = vec![u16::MAX; (last - first) as usize + 1].into_boxed_slice();
        for (position, id) in (0..).zip(ids) {
            positions[(id.get() - first) as usize] = position;
        }
        QueueIndex { first, positions }
    }

    /// The position of the queue; one that does not exist if it is unknown.
    #[inline]
    fn position(&self, id: QueueId) -> usize {
        let at = id.get().wrapping_sub(self.first) as usize;
        self.positions.get(at).map_or(usize::MAX, |position| usize::from(*position))
    }
}

/// Idle time: gives way to other threads, looks at the wire now and then, and ends.
#[derive(Debug)]
pub(super) struct IdleWatch {
    polls: u32,
    yields: bool,
    since: Option<Instant>,
    next_look: Option<Instant>,
}

impl IdleWatch {
    /// Empty polls after which other threads may have the processor.
    const POLLS_PER_YIELD: u32 = 64;
    /// Empty polls between two looks at the clock.
    const POLLS_PER_CLOCK: u32 = 1024;
    /// Value of [`looks`](Self::looks) for a thread that does not yield.
    const LOOKS: u32 = 16;
    /// Looks at the wire cost a system call.
    pub(super) const LOOK: Duration = Duration::from_millis(10);

    pub(super) fn new(spin: bool) -> IdleWatch {
        IdleWatch { polls: 0, yields: !spin, since: None, next_look: None }
    }

    /// Looks in a row for what is to come. A thread that does not yield takes several: it sees a
    /// message sooner than if it did all its other work between two looks.
    pub(super) fn looks(&self) -> u32 {
        if self.yields { 1 } else { Self::LOOKS }
    }

    /// Something has happened.
    #[inline]
    pub(super) fn progress(&mut self) {
        self.polls = 0;
        self.since = None;
    }

    /// Nothing has happened. Returns the time once per [`LOOK`](Self::LOOK): then the caller checks
    /// for what takes long.
    ///
    /// # Errors
    /// Nothing has happened for too long.
    #[inline]
    pub(super) fn idle(&mut self) -> Result<Option<Instant>> {
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(Self::POLLS_PER_YIELD) {
            // No pause: a poll takes its time, and what comes meanwhile would wait.
            return Ok(None);
        }
        self.look()
    }

    #[cold]
    fn look(&mut self) -> Result<Option<Instant>> {
        if self.yields {
            host::thread::yield_now();
        }
        if !self.polls.is_multiple_of(Self::POLLS_PER_CLOCK) {
            return Ok(None);
        }
        let now = host::time::now();
        let since = *self.since.get_or_insert(now);
        ensure!(now - since < PATIENCE, "nothing has come for {} s", PATIENCE.as_secs());
        let next = *self.next_look.get_or_insert(now + Self::LOOK);
        if now < next {
            return Ok(None);
        }
        self.next_look = Some(now + Self::LOOK);
        Ok(Some(now))
    }

    /// As [`idle`](Self::idle), with a look at what has gone wrong elsewhere: with what
    /// was sent, and at the other end. Answers with what the other end says.
    #[inline]
    pub(super) fn idle_with(
        &mut self,
        outbox: &mut SendQueues,
        wire: &mut RawChannel,
    ) -> Result<Option<RawControl>> {
        outbox.advance()?;
        match self.idle()? {
            Some(_) => Self::listen(outbox, wire),
            None => Ok(None),
        }
    }

    /// Looks at what has gone wrong elsewhere. Answers with what the other end says.
    #[cold]
    pub(super) fn listen(
        outbox: &mut SendQueues,
        wire: &mut RawChannel,
    ) -> Result<Option<RawControl>> {
        outbox.reap()?;
        wire.heard()
    }
}

/// The send queues of an end, which complete into one queue. Messages are sent by the
/// rank of the peer's queue pair.
#[derive(Debug)]
pub(super) struct SendQueues {
    cq: CompletionQueue,
    batch: CompletionBatch,
    queues: Vec<SendQueueState>,
    /// Those that there may be room on, each once.
    ready: Vec<usize>,
    /// By rank.
    routes: Box<[MessageRoute]>,
    index: QueueIndex,
    signal_every: u32,
    /// Signalled requests that have not completed.
    awaited: u64,
    watch: IdleWatch,
    /// The device lets what is under way go on when it is polled.
    is_polled: bool,
}

/// Send queue and destination of the messages to one of the peer's queue pairs.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageRoute {
    /// The position of the send queue.
    pub(super) queue: usize,
    /// The peer to name: datagrams name theirs.
    pub(super) to: Option<PeerId>,
}

#[derive(Debug)]
struct SendQueueState {
    queue: SendQueue,
    /// Requests since the last one that was signalled.
    unsignalled: u32,
    /// True if the queue is in `SendQueues::ready`, or in the list that a caller has taken from
    /// there.
    is_ready: bool,
}

impl SendQueueState {
    #[inline]
    fn room(&self) -> u32 {
        let outstanding = self.queue.staged_total() - self.queue.retired_total();
        self.queue.depth() - outstanding as u32
    }
}

impl SendQueues {
    pub(super) fn new(
        cq: CompletionQueue,
        queues: Vec<SendQueue>,
        routes: Vec<MessageRoute>,
        signal_every: u32,
        poll_batch: u32,
        spin: bool,
    ) -> SendQueues {
        let index = QueueIndex::new(queues.iter().map(SendQueue::queue_id));
        let sending = |queue| SendQueueState { queue, unsignalled: 0, is_ready: true };
        let queues: Vec<SendQueueState> = queues.into_iter().map(sending).collect();
        let ready = (0..queues.len()).collect();
        let batch = CompletionBatch::new(poll_batch as usize);
        let (routes, watch) = (routes.into(), IdleWatch::new(spin));
        let (awaited, is_polled) = (0, false);
        SendQueues {
            cq,
            batch,
            queues,
            ready,
            routes,
            index,
            signal_every,
            awaited,
            watch,
            is_polled,
        }
    }

    /// The same, on a device that lets what is under way go on when it is polled, if `is_polled`.
    pub(super) fn polled(self, is_polled: bool) -> SendQueues {
        SendQueues { is_polled, ..self }
    }

    #[inline]
    fn queue_to(&self, rank: usize) -> &SendQueueState {
        &self.queues[self.routes[rank].queue]
    }

    /// Reports whether each rank has a queue of its own, at the position of the same number.
    pub(super) fn is_one_to_one(&self) -> bool {
        self.routes.iter().enumerate().all(|(rank, route)| route.queue == rank)
    }

    /// The queues that may have room: of many, most have none. The caller gives them
    /// [back](Self::put_ready).
    #[inline]
    pub(super) fn take_ready(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.ready)
    }

    /// Gives back the queues that still have room; a full queue is ready again when one of its
    /// requests has completed.
    #[inline]
    pub(super) fn put_ready(&mut self, mut queues: Vec<usize>) {
        queues.retain(|&at| {
            let sending = &mut self.queues[at];
            sending.is_ready = sending.room() > 0;
            sending.is_ready
        });
        // Others may have become ready meanwhile.
        queues.append(&mut self.ready);
        self.ready = queues;
    }

    /// Requests to this rank that can be staged now.
    #[inline]
    pub(super) fn room(&self, rank: usize) -> u32 {
        self.queue_to(rank).room()
    }

    /// Requests staged on the queue to this rank, and not posted.
    #[inline]
    pub(super) fn staged(&self, rank: usize) -> u32 {
        self.queue_to(rank).queue.staged()
    }

    /// Requests staged and not posted, on all queues.
    #[inline]
    pub(super) fn all_staged(&self) -> u64 {
        self.queues.iter().map(|sending| u64::from(sending.queue.staged())).sum()
    }

    /// Requests posted in all.
    pub(super) fn posted(&self) -> u64 {
        self.queues.iter().map(|sending| sending.queue.posted_total()).sum()
    }

    /// Requests posted whose completion is not known yet.
    #[inline]
    pub(super) fn outstanding(&self) -> u64 {
        let of = |s: &SendQueueState| s.queue.posted_total() - s.queue.retired_total();
        self.queues.iter().map(of).sum()
    }

    /// Reports whether messages of `bytes` bytes are handed over inline.
    pub(super) fn is_inline(&self, bytes: u32) -> bool {
        bytes > 0 && self.queues.iter().all(|s| s.queue.max_inline() >= bytes)
    }

    /// Stages a request to a rank, whose bytes `fill` writes; waits for room where there
    /// is none. It is signalled when its turn comes, or if it is the `last`.
    #[inline]
    pub(super) fn stage(
        &mut self,
        rank: usize,
        op: SendOp,
        last: bool,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let at = self.routes[rank].queue;
        if self.queues[at].room() == 0 {
            self.make_room(at)?;
        }
        if let Some(slot) = self.queues[at].queue.next_slot() {
            fill(slot);
        }
        self.stage_unfilled(rank, op, last)
    }

    /// Stages the request that `build` answers with, after it has written its bytes; `false` if it
    /// has none. There is room.
    #[inline]
    pub(super) fn stage_built(
        &mut self,
        rank: usize,
        build: impl FnOnce(&mut [u8]) -> Option<SendOp>,
    ) -> Result<bool> {
        let at = self.routes[rank].queue;
        let slot = self.queues[at].queue.next_slot().context("no room to send from")?;
        match build(slot) {
            Some(op) => self.stage_unfilled(rank, op, false).map(|()| true),
            None => Ok(false),
        }
    }

    /// As [`stage`](Self::stage), for a READ, or a message whose payload is not checked; there
    /// is room.
    #[inline]
    pub(super) fn stage_unfilled(&mut self, rank: usize, op: SendOp, last: bool) -> Result<()> {
        let MessageRoute { queue, to } = self.routes[rank];
        let sending = &mut self.queues[queue];
        sending.unsignalled += 1;
        let signalled = sending.unsignalled >= self.signal_every || last;
        match to {
            None => sending.queue.stage(op, signalled)?,
            Some(peer) => sending.queue.stage_to(peer, op, signalled)?,
        }
        if signalled {
            sending.unsignalled = 0;
            self.awaited += 1;
        }
        Ok(())
    }

    /// Posts what is staged on the queue to this rank, with one doorbell.
    #[inline]
    pub(super) fn post(&mut self, rank: usize) -> Result<()> {
        self.post_at(self.routes[rank].queue)
    }

    #[inline]
    fn post_at(&mut self, at: usize) -> Result<()> {
        loop {
            match self.queues[at].queue.post() {
                Ok(_) => return Ok(()),
                Err(e) if e.retry && self.outstanding() > 0 => self.wait()?,
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Posts what is staged on every queue.
    #[inline]
    pub(super) fn post_all(&mut self) -> Result<()> {
        for at in 0..self.queues.len() {
            if self.queues[at].queue.staged() > 0 {
                self.post_at(at)?;
            }
        }
        Ok(())
    }

    /// Takes completions; a signalled one retires all before it.
    #[inline]
    pub(super) fn reap(&mut self) -> Result<usize> {
        self.reap_with(|_, _, _| Ok(()))
    }

    /// Lets what is under way go on, where the device does that when it is polled: for a wait that
    /// looks at memory alone.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<()> {
        if self.is_polled { self.reap().map(drop) } else { Ok(()) }
    }

    /// Takes completions if there may be any. A caller that has just posted, and has time, calls
    /// this so that the next message does not have to wait for room.
    #[inline]
    pub(super) fn tidy(&mut self) -> Result<()> {
        if self.awaited > 0 { self.reap().map(drop) } else { Ok(()) }
    }

    /// As [`reap`](Self::reap); calls `each` with a queue whose requests have completed: those
    /// after the count that it gets.
    #[inline]
    pub(super) fn reap_with(
        &mut self,
        mut each: impl FnMut(usize, &SendQueue, u64) -> Result<()>,
    ) -> Result<usize> {
        let taken = self.cq.poll(&mut self.batch)?;
        for completion in self.batch.drain() {
            let at = self.index.position(completion.queue_id());
            let Some(sending) = self.queues.get_mut(at) else { continue };
            if let Some(error) = completion.error() {
                return Err(error).context(LOST);
            }
            self.awaited = self.awaited.saturating_sub(1);
            let before = sending.queue.retired_total();
            sending.queue.retire(&completion)?;
            if !std::mem::replace(&mut sending.is_ready, true) {
                self.ready.push(at);
            }
            each(at, &sending.queue, before)?;
        }
        Ok(taken)
    }

    /// Waits until queue `at` has room. One of a whole queue's requests is signalled.
    #[cold]
    fn make_room(&mut self, at: usize) -> Result<()> {
        self.post_at(at)?;
        while self.queues[at].room() == 0 {
            self.wait()?;
        }
        Ok(())
    }

    /// Takes completions, or lets others run.
    #[inline]
    pub(super) fn wait(&mut self) -> Result<()> {
        if self.reap()? > 0 {
            self.watch.progress();
            return Ok(());
        }
        self.watch.idle().map(drop)
    }
}
