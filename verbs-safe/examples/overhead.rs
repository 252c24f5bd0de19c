//! Measures the cost of safety: the same loop by hand over raw verbs, and over this crate, side by
//! side in one run.
//!
//! `cargo run --release -p verbs-safe --example overhead [messages]`

use std::error::Error;
use std::time::{Duration, Instant};

use verbs_safe::baseline::{RawLoop, RawLoopConfig};
use verbs_safe::*;

const ROUNDS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let messages = std::env::args().nth(1).map_or(Ok(400_000), |arg| arg.parse::<u64>())?;
    let devices = devices(soft_rnic::table())?;
    let context = devices.first().ok_or("there is no device")?.open()?;
    let batched = RawLoopConfig::default();
    let unbatched = RawLoopConfig { batch: 1, unacked: 64, signal_every: 16, ..batched };
    let large = RawLoopConfig { size: 8192, ..batched };
    for (name, config) in [("batched", batched), ("unbatched", unbatched), ("batched", large)] {
        compare(&context, name, config, messages)?;
    }
    Ok(())
}

/// Alternates between both, and compares the fastest rounds: the machine is shared.
fn compare(
    context: &Context,
    name: &str,
    config: RawLoopConfig,
    messages: u64,
) -> Result<(), Box<dyn Error>> {
    let mut raw = RawLoop::new(context, config)?;
    let mut safe = SafeLoop::new(context, config)?;
    let (mut raw_best, mut safe_best) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        raw_best = raw_best.min(raw.run(messages)?);
        safe_best = safe_best.min(safe.run(messages)?);
    }
    let ns = |d: Duration| d.as_nanos() as f64 / messages as f64;
    println!(
        "{name:9} {:5} B  raw {:7.1} ns  safe {:7.1} ns  ratio {:.3}",
        config.size,
        ns(raw_best),
        ns(safe_best),
        ns(safe_best) / ns(raw_best)
    );
    Ok(())
}

/// [`RawLoop`], written with this crate.
struct SafeLoop {
    config: RawLoopConfig,
    send: SendQueue,
    send_cq: CompletionQueue,
    send_batch: CompletionBatch,
    recv: RecvQueue<()>,
    recv_cq: CompletionQueue,
    recv_batch: CompletionBatch,
    gathered: Vec<u32>,
    received: u64,
    sum: u64,
}

impl SafeLoop {
    fn new(context: &Context, config: RawLoopConfig) -> Result<SafeLoop, Box<dyn Error>> {
        let pd = context.alloc_pd()?;
        let cq = |entries| context.create_cq(CqConfig::new(entries));
        let (send_cq, recv_cq) = (cq(config.unacked)?, cq(config.slots)?);
        let (idle_send, idle_recv) = (cq(1)?, cq(1)?);
        let a = QueuePairConfig {
            max_send_wr: config.unacked,
            send_slots: config.unacked,
            send_slot_bytes: config.size as usize,
            ..QueuePairConfig::new(&send_cq, &idle_recv)
        };
        let b = QueuePairConfig {
            max_send_wr: 1,
            send_slots: 0,
            recv: RecvSide::Own { slots: config.slots, slot_bytes: config.size as usize },
            ..QueuePairConfig::new(&idle_send, &recv_cq)
        };
        let (a, b) = (pd.create_qp(&a, ())?, pd.create_qp(&b, ())?);
        connect(context, &a.control, &b.control)?;
        let mut recv = b.recv.ok_or("a receive queue")?;
        recv.post(&(0..config.slots).collect::<Vec<_>>())?;
        Ok(SafeLoop {
            config,
            send: a.send,
            send_cq,
            send_batch: CompletionBatch::new(config.poll_batch as usize),
            recv,
            recv_cq,
            recv_batch: CompletionBatch::new(config.poll_batch as usize),
            gathered: Vec::with_capacity(config.repost_batch as usize),
            received: 0,
            sum: 0,
        })
    }

    fn run(&mut self, messages: u64) -> Result<Duration, Box<dyn Error>> {
        let start = Instant::now();
        let sent = self.send.posted_total() + messages;
        let received = self.received + messages;
        while self.received < received || self.send.retired_total() < sent {
            self.send_turn(sent)?;
            self.recv_turn()?;
        }
        Ok(start.elapsed())
    }

    #[inline]
    fn send_turn(&mut self, end: u64) -> Result<(), Box<dyn Error>> {
        let sent = self.send.posted_total();
        let count = (end - sent).min(self.config.batch.into());
        let free = u64::from(self.config.slots - self.config.repost_batch + 1);
        let unacked = sent + count - self.send.retired_total() <= self.config.unacked.into();
        if count > 0 && unacked && sent + count - self.received <= free {
            for number in sent + 1..=sent + count {
                let slot = self.send.next_slot().ok_or("a slot")?;
                slot[..8].copy_from_slice(&number.to_ne_bytes());
                let signalled =
                    number.is_multiple_of(self.config.signal_every.into()) || number == end;
                self.send.stage(SendOp::Send { len: self.config.size }, signalled)?;
            }
            self.send.post()?;
        }
        self.send_cq.poll(&mut self.send_batch)?;
        for completion in self.send_batch.drain() {
            if let Some(error) = completion.error() {
                return Err(error.into());
            }
            self.send.retire(&completion)?;
        }
        Ok(())
    }

    #[inline]
    fn recv_turn(&mut self) -> Result<(), Box<dyn Error>> {
        self.recv_cq.poll(&mut self.recv_batch)?;
        for completion in self.recv_batch.drain() {
            let message = self.recv.take(completion)?;
            if let Some(word) = message.first_chunk::<8>() {
                self.sum = self.sum.wrapping_add(u64::from_ne_bytes(*word));
            }
            self.received += 1;
            if let Some(slot) = self.recv.reclaim(message) {
                self.gathered.push(slot);
            }
            if self.gathered.len() == self.config.repost_batch as usize {
                self.recv.post(&self.gathered)?;
                self.gathered.clear();
            }
        }
        Ok(())
    }
}

fn connect(context: &Context, a: &QpControl, b: &QpControl) -> Result<(), Box<dyn Error>> {
    let gid = context.choose_gid(1, None)?;
    let (psn_a, psn_b) = (random_psn(), random_psn());
    let (end_a, end_b) = (a.endpoint(1, gid, psn_a)?, b.endpoint(1, gid, psn_b)?);
    let index = u8::try_from(gid.index)?;
    a.connect(&end_b, &ConnectAttr::new(index, psn_a))?;
    b.connect(&end_a, &ConnectAttr::new(index, psn_b))?;
    Ok(())
}
