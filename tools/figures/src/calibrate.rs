//! `rdma-conn calibrate`: the parameters of the performance model, of the device at hand.
//!
//! One thread drives both ends, each of an opened device of its own, which send to each other: one
//! queue pair for what a message costs, and one or several for streams of messages.

mod end;

use anyhow::Result;
use base::cli::CommonArgs;
use base::outcome::{CommandResult, as_usage};
use base::spread::Spread;
use base::table::ResultTable;
use base::{progress, say, session};
use rdma_conn::device::Device;
use serde::Serialize;

use crate::calibration::Calibration;
use end::{CalibrationEnd, POLLED, Queues, nanoseconds};

/// Receives and requests of a list: the thesis has 8.
const LISTED: u32 = 8;
/// Bytes of long messages, beside which all that a message costs besides is little.
const LONG: u32 = 64 << 10;
/// Messages of a stream, and queue pairs of those that have several.
const STREAM: u32 = 512;
const SEVERAL: u32 = 4;
/// Bytes of most messages: those of up to 32 may cost more at their receiver, and less in a shared
/// queue.
const SHORT: u32 = 64;
/// Rounds, in each of which each is measured; streams, which are long, in one of
/// [`ROUNDS_OF_STREAM`] rounds.
const ROUNDS: u32 = 400;
const ROUNDS_OF_STREAM: u32 = 8;

/// Line of `--json`.
#[derive(Serialize, Debug)]
struct CalibrationLine<'a> {
    device: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow: Option<f64>,
    #[serde(flatten)]
    parameters: Calibration,
}

/// Measures the parameters of the device, and prints them.
pub fn run(common: &CommonArgs) -> CommandResult {
    let open = || session::card::open(common.device.as_deref()).map_err(as_usage);
    let near = open()?;
    // The same device, where its name says more than what was asked for.
    let far = rdma_conn::device::open(Some(near.name())).map_err(as_usage)?;
    let slow = session::card::slow(near.name());
    let parameters = measure(&near, &far, ROUNDS, common.json)?;
    if common.json {
        say!(
            "{}",
            serde_json::to_string(&CalibrationLine { device: near.name(), slow, parameters })?
        );
        return Ok(());
    }
    let mut table = ResultTable::new(1, &["", "one, ns", "batched, ns"]);
    let of = parameters;
    for (name, one, batched) in [
        ("o_snd: post a request", of.o_snd_ns, Some(of.o_snd_batched_ns)),
        ("o_rcv: take a completion", of.o_rcv_ns, Some(of.o_rcv_batched_ns)),
        ("o_small: take a message of up to 32 bytes, in addition", of.o_small_ns, None),
        ("o_post: post a receive", of.o_post_ns, Some(of.o_post_batched_ns)),
        ("o_nic: a message, of several queue pairs", of.o_nic_ns, None),
        ("o_queue: a message, of one queue pair", of.o_queue_ns, None),
        ("o_srq: a message, to a shared receive queue", of.o_srq_ns, None),
        ("g: until the completion", of.g_ns, None),
        ("g_read: until the completion of a READ", of.g_read_ns, None),
        ("L: until the arrival", of.l_ns, None),
        (
            "G: 1000 bytes, of one message and of a stream",
            1000.0 * of.gap_per_byte_alone_ns,
            Some(1000.0 * of.gap_per_byte_ns),
        ),
    ] {
        let shown = |ns: f64| format!("{ns:.1}");
        table.add_row([name.into(), shown(one), batched.map_or(String::new(), shown)]);
    }
    say!("{}, {} READs under way at most\n{table}", near.name(), of.reads);
    Ok(())
}

/// Both ends of some queue pairs.
struct CalibrationEnds {
    here: CalibrationEnd,
    there: CalibrationEnd,
}

impl CalibrationEnds {
    fn new(near: &Device, far: &Device, queues: Queues) -> Result<CalibrationEnds> {
        let (here, there) = (CalibrationEnd::new(near, queues)?, CalibrationEnd::new(far, queues)?);
        here.connect(&there)?;
        there.connect(&here)?;
        Ok(CalibrationEnds { here, there })
    }

    /// Those of a stream.
    fn stream(near: &Device, far: &Device, pairs: u32, is_shared: bool) -> Result<CalibrationEnds> {
        CalibrationEnds::new(
            near,
            far,
            Queues { pairs, depth: STREAM / pairs, bytes: SHORT, is_shared },
        )
    }

    /// Sends a message, and looks for it at the other end: returns the time from the post to the
    /// poll that found it, and the duration of that poll.
    fn send_one(&mut self, bytes: u32) -> Result<(f64, f64)> {
        let start = host::time::now();
        self.here.send(1, bytes)?;
        loop {
            let (polled, time) = self.there.poll()?;
            if polled > 0 {
                return Ok((nanoseconds(start), time));
            }
        }
    }

    /// Sends a stream: the time of each message but the first, which takes `alone`.
    fn send_stream(&mut self, pairs: u32, alone: f64) -> Result<f64> {
        self.there.receive_all()?;
        let start = host::time::now();
        self.here.send_all()?;
        self.there.await_all(STREAM)?;
        let time = nanoseconds(start);
        self.here.await_all(pairs)?;
        Ok((time - alone) / f64::from(STREAM - 1))
    }
}

/// Samples: at most one of each round.
#[derive(Default)]
struct CostSamples {
    post: Vec<f64>,
    post_of_list: Vec<f64>,
    take: Vec<f64>,
    take_of_list: Vec<f64>,
    /// Samples of taking messages of one byte.
    take_of_small: Vec<f64>,
    receive: Vec<f64>,
    receive_of_list: Vec<f64>,
    completion: Vec<f64>,
    arrival: Vec<f64>,
    read: Vec<f64>,
    byte: Vec<f64>,
    byte_alone: Vec<f64>,
    several_queues: Vec<f64>,
    one_queue: Vec<f64>,
    shared_queue: Vec<f64>,
}

/// Measures all, in turn.
fn measure(near: &Device, far: &Device, rounds: u32, json: bool) -> Result<Calibration> {
    let queues = Queues { pairs: 1, depth: POLLED, bytes: LONG, is_shared: false };
    let mut ends = CalibrationEnds::new(near, far, queues)?;
    let mut one = CalibrationEnds::stream(near, far, 1, false)?;
    let mut several = CalibrationEnds::stream(near, far, SEVERAL, false)?;
    let mut shared = CalibrationEnds::stream(near, far, SEVERAL, true)?;
    let reads = ends.here.reads.min(ends.there.reads);
    let mut samples = CostSamples::default();
    let bar = progress::bar(rounds.into(), json);
    for round in 0..rounds {
        let alone = ends.round(&mut samples)?;
        if round % ROUNDS_OF_STREAM == 0 {
            samples.one_queue.push(one.send_stream(1, alone)?);
            samples.several_queues.push(several.send_stream(SEVERAL, alone)?);
            samples.shared_queue.push(shared.send_stream(SEVERAL, alone)?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    anyhow::ensure!(
        !samples.take_of_list.is_empty() && !samples.take_of_small.is_empty(),
        "the device never had {POLLED} completions at a time"
    );
    let median = |samples: Vec<f64>| Spread::of(samples).median;
    let (post, take) = (median(samples.post), median(samples.take));
    let take_of_list = median(samples.take_of_list);
    let (byte, byte_alone) = (median(samples.byte), median(samples.byte_alone).max(0.0));
    // The model's are of one byte.
    let others = f64::from(SHORT - 1) * byte_alone;
    Ok(Calibration {
        o_snd_ns: post,
        o_snd_batched_ns: median(samples.post_of_list),
        o_rcv_ns: take,
        o_rcv_batched_ns: take_of_list,
        o_small_ns: (median(samples.take_of_small) - take_of_list).max(0.0),
        o_post_ns: median(samples.receive),
        o_post_batched_ns: median(samples.receive_of_list),
        // Of a device that does its work in the post, nothing may be left.
        g_ns: (median(samples.completion) - post - take - others).max(0.0),
        l_ns: (median(samples.arrival) - post - take - others).max(0.0),
        g_read_ns: (median(samples.read) - post - take).max(0.0),
        gap_per_byte_ns: byte,
        gap_per_byte_alone_ns: byte_alone,
        o_nic_ns: (median(samples.several_queues) - f64::from(SHORT) * byte).max(0.0),
        o_queue_ns: median(samples.one_queue).max(0.0),
        o_srq_ns: median(samples.shared_queue).max(0.0),
        reads: reads.into(),
    })
}

impl CalibrationEnds {
    /// One sample of what a message costs: how long one alone takes to its receiver's poll.
    fn round(&mut self, samples: &mut CostSamples) -> Result<f64> {
        // One message: its post, its arrival, its completion.
        samples.receive.push(self.there.receive(1)?);
        let (alone, found) = self.send_one(SHORT)?;
        samples.arrival.push(alone);
        samples.take.push(found);
        self.here.await_all(1)?;
        self.there.receive(1)?;
        let start = host::time::now();
        samples.post.push(self.here.send(1, SHORT)?);
        self.here.await_all(1)?;
        samples.completion.push(nanoseconds(start));
        self.there.await_all(1)?;
        samples.read.push(self.here.read(&self.there)?);
        // A long one; several, one behind the other.
        self.there.receive(1)?;
        let (time, _) = self.send_one(LONG)?;
        samples.byte_alone.push((time - alone) / f64::from(LONG));
        self.here.await_all(1)?;
        self.there.receive(LISTED)?;
        let start = host::time::now();
        self.here.send(LISTED, LONG)?;
        self.there.await_all(LISTED)?;
        samples.byte.push((nanoseconds(start) - alone) / f64::from(LISTED * LONG));
        self.here.await_all(LISTED)?;
        // Lists.
        let listed = f64::from(LISTED);
        samples.receive_of_list.push(self.there.receive(LISTED)? / listed);
        samples.post_of_list.push(self.here.send(LISTED, SHORT)? / listed);
        self.here.await_all(LISTED)?;
        self.there.await_all(LISTED)?;
        samples.take_of_list.extend(self.take_list(SHORT)?);
        samples.take_of_small.extend(self.take_list(1)?);
        Ok(alone)
    }

    /// The time of each of a full list of completions, if all are there at the poll.
    fn take_list(&mut self, bytes: u32) -> Result<Option<f64>> {
        self.there.receive(POLLED)?;
        self.here.send(POLLED, bytes)?;
        // Our own completions arrive last.
        self.here.await_all(POLLED)?;
        let (polled, time) = self.there.poll()?;
        self.there.await_all(POLLED - polled)?;
        Ok((polled == POLLED).then_some(time / f64::from(POLLED)))
    }
}

#[cfg(test)]
mod tests;
