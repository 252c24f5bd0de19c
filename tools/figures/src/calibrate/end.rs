//! An end of the measured queue pairs.

use std::time::Instant;

use anyhow::{Context, Result};
use host::sync::OnceLock;
use rdma_conn::device::Device;
use rdma_conn::verbs_safe::{
    CompletionBatch, CompletionQueue, ConnectAttr, CqConfig, Gid, Mapping, Mtu, QpControl,
    QueuePair, QueuePairConfig, RecvQueue, RecvSide, RemoteAccess, SendOp, SendQueue, SharedRegion,
    SharedRegionConfig,
};

/// Completions of a batch.
pub(super) const POLLED: u32 = 32;
/// READs under way at most, as Direct Read has them.
const READS: u32 = 16;
/// The PSN of either end: nothing of an earlier connection is under way.
const PSN: u32 = 7;

/// The queues of an end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queues {
    pub(super) pairs: u32,
    /// Messages of a queue pair under way.
    pub(super) depth: u32,
    /// The longest message.
    pub(super) bytes: u32,
    /// The queue pairs receive from one queue.
    pub(super) is_shared: bool,
}

/// One end: an opened device, its queue pairs, and their completions in one queue.
pub(super) struct CalibrationEnd {
    queues: Queues,
    cq: CompletionQueue,
    batch: CompletionBatch,
    pairs: Vec<(QpControl, SendQueue)>,
    receives: Vec<RecvQueue<()>>,
    /// Read by the peer.
    memory: SharedRegion,
    gid: Gid,
    pub(super) reads: u32,
}

impl CalibrationEnd {
    pub(super) fn new(device: &Device, queues: Queues) -> Result<CalibrationEnd> {
        let Queues { pairs: count, depth, bytes, is_shared } = queues;
        let (context, pd) = (device.context(), device.pd());
        let cq = context.create_cq(CqConfig::new(2 * count * depth))?;
        let access = RemoteAccess { read: true, ..RemoteAccess::NONE };
        let (mut pairs, mut receives) = (Vec::new(), Vec::new());
        if is_shared {
            receives.push(pd.create_shared_pool(count * depth, bytes as usize, ())?.0);
        }
        for _ in 0..count {
            let own = RecvSide::Own { slots: depth, slot_bytes: bytes as usize };
            let recv = receives.first().filter(|_| is_shared).and_then(RecvQueue::shared);
            let shape = QueuePairConfig {
                access,
                max_send_wr: depth,
                send_slots: depth,
                send_slot_bytes: bytes as usize,
                recv: recv.map_or(own, RecvSide::Shared),
                ..QueuePairConfig::new(&cq, &cq)
            };
            let QueuePair { control, send, recv } = pd.create_qp(&shape, ())?;
            pairs.push((control, send));
            receives.extend(recv);
        }
        let shared = SharedRegionConfig { access, on_demand: false };
        let memory = pd.register_shared(Mapping::new(4096)?, shared)?;
        let attr = context.attr()?;
        let reads = attr.max_qp_init_rd_atom.min(attr.max_qp_rd_atom).clamp(1, READS);
        let gid = context.choose_gid(1, None)?;
        let batch = CompletionBatch::new(POLLED as usize);
        Ok(CalibrationEnd { queues, cq, batch, pairs, receives, memory, gid, reads })
    }

    /// Connects each queue pair to its peer's, which has to do the same.
    pub(super) fn connect(&self, peer: &CalibrationEnd) -> Result<()> {
        for ((here, _), (there, _)) in self.pairs.iter().zip(&peer.pairs) {
            let attr = ConnectAttr {
                mtu: Mtu::from_bytes(1024).context("an MTU")?,
                max_rd_atomic: self.reads.min(peer.reads) as u8,
                max_dest_rd_atomic: self.reads.min(peer.reads) as u8,
                ..ConnectAttr::new(self.gid.index as u8, PSN)
            };
            here.connect(&there.endpoint(1, peer.gid, PSN)?, &attr)?;
        }
        Ok(())
    }

    /// Posts `count` messages of `bytes` bytes, each of them signalled; returns the duration of the
    /// post.
    pub(super) fn send(&mut self, count: u32, bytes: u32) -> Result<f64> {
        let Some((_, send)) = self.pairs.first_mut() else { return Ok(0.0) };
        for _ in 0..count {
            send.next_slot().context("no slot")?;
            send.stage(SendOp::Send { len: bytes }, true)?;
        }
        let start = host::time::now();
        send.post()?;
        Ok(nanoseconds(start))
    }

    /// Posts as many messages as there is room for, on all queue pairs; the last one of each completes.
    pub(super) fn send_all(&mut self) -> Result<()> {
        let Queues { depth, bytes, .. } = self.queues;
        for (_, send) in &mut self.pairs {
            for number in 1..=depth {
                send.next_slot().context("no slot")?;
                send.stage(SendOp::Send { len: bytes }, number == depth)?;
            }
            send.post()?;
        }
        Ok(())
    }

    /// READs a byte of the peer's memory; returns the duration, the post and the poll included.
    pub(super) fn read(&mut self, peer: &CalibrationEnd) -> Result<f64> {
        let remote = peer.memory.remote(0, 1)?;
        let (_, send) = self.pairs.first_mut().context("no queue pair")?;
        send.next_slot().context("no slot")?;
        send.stage(SendOp::Read { len: 1, remote }, true)?;
        let start = host::time::now();
        send.post()?;
        self.await_all(1)?;
        Ok(nanoseconds(start))
    }

    /// Posts `count` receives on each receive queue; returns the duration of the post.
    pub(super) fn receive(&mut self, count: u32) -> Result<f64> {
        let slots: Vec<u32> = (0..count).collect();
        let start = host::time::now();
        for receives in &mut self.receives {
            receives.post(&slots)?;
        }
        Ok(nanoseconds(start))
    }

    /// Posts all receives.
    pub(super) fn receive_all(&mut self) -> Result<()> {
        let all = self.queues.pairs * self.queues.depth;
        self.receive(all / self.receives.len() as u32).map(drop)
    }

    /// Takes completions, as many as there are; returns their number, and the duration of the poll.
    pub(super) fn poll(&mut self) -> Result<(u32, f64)> {
        // A world in which all threads seem to poll without result lets more time pass than a call
        // takes.
        host::progress();
        let start = host::time::now();
        let polled = self.cq.poll(&mut self.batch)? as u32;
        let time = nanoseconds(start);
        for completion in self.batch.drain() {
            if let Some(error) = completion.error() {
                return Err(error).context("a message was not sent");
            }
            let id = completion.queue_id();
            if let Some((_, send)) = self.pairs.iter_mut().find(|(_, send)| send.queue_id() == id) {
                send.retire(&completion)?;
            } else if let Some(recv) = self.receives.iter_mut().find(|recv| recv.queue_id() == id) {
                drop(recv.take(completion)?);
            }
        }
        Ok((polled, time))
    }

    /// Polls until `count` completions have been taken.
    pub(super) fn await_all(&mut self, count: u32) -> Result<()> {
        let mut left = count;
        while left > 0 {
            left -= self.poll()?.0.min(left);
        }
        Ok(())
    }
}

/// The time since `start`, without that of looking at the clock.
pub(super) fn nanoseconds(start: Instant) -> f64 {
    static LOOK: OnceLock<f64> = OnceLock::new();
    let time = host::time::since(start).as_nanos() as f64;
    let look = LOOK.get_or_init(|| {
        let start = host::time::now();
        let last = (0..1000).fold(start, |_, _| host::time::now());
        last.duration_since(start).as_nanos() as f64 / 1000.0
    });
    (time - look).max(0.0)
}
