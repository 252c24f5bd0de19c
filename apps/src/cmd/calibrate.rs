//! `rdma-conn calibrate`: the parameters of the performance model, of the device at hand.
//!
//! One thread drives two queue pairs, each of an opened device of its own, which send to each other.

use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Context, Result};
use rdma_conn::device::Device;
use rdma_conn::verbs_safe::{
    CompletionBatch, CompletionQueue, ConnectAttr, CqConfig, Endpoint, Gid, Mtu, QpControl,
    QueuePair, QueuePairConfig, RecvQueue, RecvSide, SendOp, SendQueue,
};
use serde::Serialize;

use crate::cli::Common;
use crate::figures::calibration::{self, Calibration};
use crate::measure::Spread;
use crate::outcome::{Outcome, as_usage};
use crate::progress;
use crate::session;
use crate::table::Table;

/// Requests, completions and receives of a batch; of lists of receives and requests, the thesis has 8.
const POLLED: u32 = 32;
const LISTED: u32 = 8;
/// Bytes of long messages, beside which all that a message costs besides is little.
const LONG: u32 = 64 << 10;
/// How often each is measured.
const ROUNDS: u32 = 400;
/// The PSN of either end: nothing of an earlier connection is under way.
const PSN: u32 = 7;

/// What is printed.
#[derive(Serialize, Debug)]
struct Line<'a> {
    device: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow: Option<f64>,
    #[serde(flatten)]
    parameters: Calibration,
}

pub(crate) fn run(common: &Common) -> Outcome {
    let open = || session::card::open(common.device.as_deref()).map_err(as_usage);
    let near = open()?;
    // The same device, where its name says more than what was asked for.
    let far = rdma_conn::device::open(Some(near.name())).map_err(as_usage)?;
    let slow = calibration::slow(near.name());
    let parameters = measure(common, &near, &far)?;
    if common.json {
        say!("{}", serde_json::to_string(&Line { device: near.name(), slow, parameters })?);
        return Ok(());
    }
    let mut table = Table::new(1, &["", "one, ns", "batched, ns"]);
    let Calibration { o_snd_ns, o_snd_batched_ns, o_rcv_ns, o_rcv_batched_ns, .. } = parameters;
    let Calibration { o_post_ns, o_post_batched_ns, g_ns, l_ns, gap_per_byte_ns, .. } = parameters;
    for (name, one, batched) in [
        ("o_snd: post a request", o_snd_ns, Some(o_snd_batched_ns)),
        ("o_rcv: take a completion", o_rcv_ns, Some(o_rcv_batched_ns)),
        ("o_post: post a receive", o_post_ns, Some(o_post_batched_ns)),
        ("g: until the completion", g_ns, None),
        ("L: until the arrival", l_ns, None),
        ("G: 1000 bytes", 1000.0 * gap_per_byte_ns, None),
    ] {
        let shown = |ns: f64| format!("{ns:.1}");
        table.add_row([name.into(), shown(one), batched.map_or(String::new(), shown)]);
    }
    say!("{}\n{table}", near.name());
    Ok(())
}

/// One end, of a device of its own.
struct End {
    cq: CompletionQueue,
    control: QpControl,
    send: SendQueue,
    recv: RecvQueue<()>,
    batch: CompletionBatch,
    here: Endpoint,
    gid: Gid,
}

impl End {
    fn new(device: &Device) -> Result<End> {
        let cq = device.context().create_cq(CqConfig::new(4 * POLLED))?;
        let shape = QueuePairConfig {
            max_send_wr: POLLED,
            send_slots: POLLED,
            send_slot_bytes: LONG as usize,
            recv: RecvSide::Own { slots: POLLED, slot_bytes: LONG as usize },
            ..QueuePairConfig::new(&cq, &cq)
        };
        let QueuePair { control, send, recv } = device.pd().create_qp(&shape, ())?;
        let gid = device.context().choose_gid(1, None)?;
        let here = control.endpoint(1, gid, PSN)?;
        let recv = recv.context("a queue pair without receives")?;
        let batch = CompletionBatch::new(POLLED as usize);
        Ok(End { cq, control, send, recv, batch, here, gid })
    }

    fn connect(&self, peer: &Endpoint) -> Result<()> {
        let attr = ConnectAttr {
            mtu: Mtu::from_bytes(1024).context("an MTU")?,
            ..ConnectAttr::new(self.gid.index as u8, PSN)
        };
        Ok(self.control.connect(peer, &attr)?)
    }

    /// Posts so many messages of `bytes` bytes: how long the post takes.
    fn send(&mut self, count: u32, bytes: u32) -> Result<f64> {
        for _ in 0..count {
            self.send.next_slot().context("no slot")?;
            self.send.stage(SendOp::Send { len: bytes }, true)?;
        }
        let start = host::time::now();
        self.send.post()?;
        Ok(nanoseconds(start))
    }

    /// Posts so many receives: how long that takes.
    fn receive(&mut self, count: u32) -> Result<f64> {
        let slots: Vec<u32> = (0..count).collect();
        let start = host::time::now();
        self.recv.post(&slots)?;
        Ok(nanoseconds(start))
    }

    /// Takes completions, as many as there are: how many, and how long the poll takes.
    fn poll(&mut self) -> Result<(u32, f64)> {
        let start = host::time::now();
        let polled = self.cq.poll(&mut self.batch)? as u32;
        let time = nanoseconds(start);
        for completion in self.batch.drain() {
            if let Some(error) = completion.error() {
                return Err(error).context("a message was not sent");
            }
            if completion.queue_id() == self.send.queue_id() {
                self.send.retire(&completion)?;
            } else {
                drop(self.recv.take(completion)?);
            }
        }
        Ok((polled, time))
    }

    /// Polls until so many completions have been taken.
    fn await_all(&mut self, count: u32) -> Result<()> {
        let mut left = count;
        while left > 0 {
            left -= self.poll()?.0.min(left);
        }
        Ok(())
    }
}

/// The time since `start`, without that of looking at the clock.
fn nanoseconds(start: Instant) -> f64 {
    static LOOK: OnceLock<f64> = OnceLock::new();
    let time = host::time::since(start).as_nanos() as f64;
    let look = LOOK.get_or_init(|| {
        let start = host::time::now();
        let last = (0..1000).fold(start, |_, _| host::time::now());
        last.duration_since(start).as_nanos() as f64 / 1000.0
    });
    (time - look).max(0.0)
}

/// Measures all, in turn: each round has a sample of each.
fn measure(common: &Common, near: &Device, far: &Device) -> Result<Calibration> {
    let (mut here, mut there) = (End::new(near)?, End::new(far)?);
    here.connect(&there.here)?;
    there.connect(&here.here)?;
    let mut samples: [Vec<f64>; 9] = Default::default();
    let bar = progress::bar(ROUNDS.into(), common.json);
    for _ in 0..ROUNDS {
        let [one, list, take, take_all, post, post_list, gap, arrival, long] = &mut samples;
        // One message: its post, its arrival, its completion.
        post.push(there.receive(1)?);
        let (time, found) = arrives(&mut here, &mut there)?;
        arrival.push(time);
        take.push(found);
        here.await_all(1)?;
        there.receive(1)?;
        let start = host::time::now();
        one.push(here.send(1, 1)?);
        here.await_all(1)?;
        gap.push(nanoseconds(start));
        there.await_all(1)?;
        // Long ones, one behind the other.
        there.receive(LISTED)?;
        let start = host::time::now();
        here.send(LISTED, LONG)?;
        there.await_all(LISTED)?;
        long.push((nanoseconds(start) - time) / f64::from(LISTED * LONG));
        here.await_all(LISTED)?;
        // Lists.
        post_list.push(there.receive(LISTED)? / f64::from(LISTED));
        list.push(here.send(LISTED, 1)? / f64::from(LISTED));
        here.await_all(LISTED)?;
        there.await_all(LISTED)?;
        // Completions that are there already: those of our own are the last to come.
        there.receive(POLLED)?;
        here.send(POLLED, 1)?;
        here.await_all(POLLED)?;
        let (polled, time) = there.poll()?;
        if polled == POLLED {
            take_all.push(time / f64::from(POLLED));
        }
        there.await_all(POLLED - polled)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let [.., take_all, _, _, _, _, _] = &samples;
    anyhow::ensure!(!take_all.is_empty(), "the device never had {POLLED} completions at a time");
    let [one, list, take, take_all, post, post_list, gap, arrival, long] =
        samples.map(|samples| Spread::of(samples).median);
    Ok(Calibration {
        o_snd_ns: one,
        o_snd_batched_ns: list,
        o_rcv_ns: take,
        o_rcv_batched_ns: take_all,
        o_post_ns: post,
        o_post_batched_ns: post_list,
        // Of a device that does its work in the post, nothing may be left.
        g_ns: (gap - one - take).max(0.0),
        l_ns: (arrival - one - take).max(0.0),
        gap_per_byte_ns: long,
    })
}

/// Sends a message, and looks for it at the other end: how long after the post began it was found, and
/// how long the poll took that found it.
fn arrives(here: &mut End, there: &mut End) -> Result<(f64, f64)> {
    let start = host::time::now();
    here.send(1, 1)?;
    loop {
        let (polled, time) = there.poll()?;
        if polled > 0 {
            return Ok((nanoseconds(start), time));
        }
    }
}
