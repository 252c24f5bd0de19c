//! The performance model of the thesis ("Know Your Memory: RDMA-Based Protocols for Data Exchange",
//! Fischer, 2021): LogGP, with the costs of processor and card apart; and what the other texts say
//! of cards and switches. docs/figures.md has the formulas.
//!
//! A rate is the least of what the window, the processors, the cards and the link permit. A time is
//! the sum of what a message passes. Of messages that follow each other a byte costs `byte`; of one
//! alone it costs `byte_alone`. A prediction says what the parameters imply, and no more: where a
//! measurement differs, the model does not explain it.

pub(crate) mod workload;

use base::spread::Spread;

use super::calibration::Calibration;
use super::experiment::{CommandRun, Experiment, MODELS};
use super::report::{Figure, Predicted};
use workload::{Carrier, Pattern, Workload};

/// Cost of a call to its processor, in microseconds: for one item, and for each of a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CallCost {
    pub(crate) one: f64,
    pub(crate) listed: f64,
    /// Items of that list.
    list: f64,
}

impl CallCost {
    /// The cost of an item of a list of `items`: a part of the call, and its own.
    pub(crate) fn each(&self, items: f64) -> f64 {
        let own = (self.list * self.listed - self.one) / (self.list - 1.0);
        own + (self.one - own) / items
    }
}

/// The parameters of a device: times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DeviceModel {
    /// The processor posts a request. The thesis' fit.
    pub(crate) o_snd: CallCost,
    /// The processor takes a completion. The thesis' fit.
    pub(crate) o_rcv: CallCost,
    /// The processor posts a receive. The thesis' fit.
    pub(crate) o_post: CallCost,
    /// The processor takes a message of at most [`SMALL`] bytes, in addition: it arrives inside its
    /// completion ("inline receives"). Our fit to 11 M/s of N senders, 16 B.
    pub(crate) o_small: f64,
    /// The card handles a message, at either end, of any queue pair. The thesis' fit.
    pub(crate) o_nic: f64,
    /// The card handles a message of one queue pair: that is work of one of its units. Our fit to
    /// the 14 M/s of one connection, 16 B, batched.
    pub(crate) o_queue: f64,
    /// The card takes a receive from a queue that queue pairs share, for a message of more than
    /// [`SMALL`] bytes. Our fit to the 2 M/s of N senders.
    pub(crate) o_srq: f64,
    /// The network carries a packet. The thesis' fit.
    pub(crate) latency: f64,
    /// From a post to the acknowledgement of a message of no bytes. The thesis' fit.
    pub(crate) g_fix: f64,
    /// From the post of a READ of no bytes to its answer: over the network and back.
    pub(crate) g_read: f64,
    /// READs of a queue pair under way: the limit of mlx5 cards, about which the texts say nothing.
    pub(crate) reads: f64,
    /// A byte of messages that follow each other (G, batched). The thesis' fit.
    pub(crate) byte: f64,
    /// A byte of a message alone (G, single). The thesis' fit.
    pub(crate) byte_alone: f64,
    /// Requests that the network carries, per microsecond: Derecho's 75 M/s of a switch.
    pub(crate) requests: f64,
    /// Bytes that a card carries per microsecond, both directions together: Derecho's 25 GB/s.
    pub(crate) both_ways: f64,
}

/// The longest message that arrives inside its completion, by the thesis ("32 bytes or lower").
const SMALL: f64 = 32.0;
/// The longest time for which Derecho's proposal inhibits a push.
const DEADLINE: f64 = 150.0;

/// A ConnectX-5 with 100 Gbit/s; switch and link as in Derecho's text.
pub(crate) const CONNECTX5: DeviceModel = DeviceModel {
    o_snd: CallCost { one: 0.12, listed: 0.016, list: 8.0 },
    o_rcv: CallCost { one: 0.052, listed: 0.017, list: 32.0 },
    o_post: CallCost { one: 0.016, listed: 0.007, list: 8.0 },
    o_small: 0.023,
    o_nic: 0.02,
    o_queue: 1.0 / 14.0,
    o_srq: 0.5,
    latency: 1.9,
    g_fix: 3.4,
    g_read: 2.0 * (0.02 + 1.9 + 0.02),
    reads: 16.0,
    byte: 0.084e-3,
    byte_alone: 0.2e-3,
    requests: 75.0,
    both_ways: 25e3,
};

/// The model of this name, one of [`MODELS`].
pub(crate) fn named(name: &str) -> Option<DeviceModel> {
    (name == MODELS[0]).then_some(CONNECTX5)
}

fn least(limits: impl IntoIterator<Item = f64>) -> f64 {
    limits.into_iter().fold(f64::INFINITY, f64::min)
}

/// Bytes of a record of a ring: a header of 8, and the message in multiples of 8.
fn record(bytes: f64) -> f64 {
    8.0 + 8.0 * (bytes / 8.0).ceil()
}

/// The limits of a stream of messages, in messages per microsecond.
struct StreamLimits {
    /// One connection: its window, its sender's processor, its unit of the card.
    connection: f64,
    /// A thread that receives.
    receiver: f64,
    /// The cards and the link, of all connections together.
    card: f64,
}

/// Times in microseconds.
impl DeviceModel {
    /// From a post to its completion, of a message alone.
    pub(crate) fn g(&self, bytes: f64) -> f64 {
        self.g_fix + bytes * self.byte_alone
    }

    /// From card to card.
    fn trip(&self) -> f64 {
        self.o_nic + self.latency + self.o_nic
    }

    /// From the post of a SEND to its receiver's poll.
    fn hop(&self) -> f64 {
        self.o_snd.one + self.trip() + self.o_rcv.one
    }

    /// From the post of a READ to the poll that finds it.
    fn read(&self) -> f64 {
        self.o_snd.one + self.g_read + self.o_rcv.one
    }

    /// Time of the receiver's processor for a message of Send/Receive.
    pub(crate) fn receives(&self, bytes: f64, polled: f64, reposted: f64) -> f64 {
        let small = if bytes <= SMALL { self.o_small } else { 0.0 };
        self.o_rcv.each(polled) + self.o_post.each(reposted) + small
    }

    /// Time of a card for a message of a stream.
    fn carries(&self, bytes: f64) -> f64 {
        self.o_nic + (bytes - 1.0).max(0.0) * self.byte
    }

    /// Half a round trip.
    fn half_trip(&self, load: &Workload) -> f64 {
        let bytes = (load.bytes - 1.0).max(0.0) * self.byte_alone;
        bytes
            + match load.carrier {
                Carrier::SendRecv => self.hop(),
                // The receiver polls memory.
                Carrier::Write => self.o_snd.one + self.trip(),
                Carrier::BufferedWrite => {
                    let found = if load.is_tail_written { 0.0 } else { self.o_rcv.one };
                    self.o_snd.one + self.trip() + found
                }
                // A SEND that names the buffer, and the READ.
                Carrier::DirectRead => self.hop() + self.read(),
                // A READ of the tail, and one of the data.
                Carrier::BufferedRead => 2.0 * self.read(),
            }
    }

    /// A multicast without company, until all have delivered it: its pushes, and the receivers'.
    fn lone_multicast(&self, load: &Workload) -> f64 {
        let posts = 3.0 * (load.members - 1.0) * self.o_snd.one;
        let inhibited = if load.every > 1.0 && !load.is_flushed { DEADLINE } else { 0.0 };
        inhibited + posts + 2.0 * self.trip()
    }
}

/// Rates per microsecond.
impl DeviceModel {
    fn rate(&self, load: &Workload) -> Option<f64> {
        let StreamLimits { connection, receiver, card } = self.limits(load)?;
        let shared = load.shares() && load.bytes > SMALL && load.carrier == Carrier::SendRecv;
        Some(least([
            load.senders * load.threads * connection,
            load.threads * receiver,
            card,
            if shared { 1.0 / self.o_srq } else { f64::INFINITY },
        ]))
    }

    fn limits(&self, load: &Workload) -> Option<StreamLimits> {
        match load.carrier {
            Carrier::SendRecv | Carrier::Write => Some(self.messages(load)),
            Carrier::DirectRead => Some(self.direct_read(load)),
            Carrier::BufferedRead => load.transfer.map(|bytes| self.buffered_read(load, bytes)),
            Carrier::BufferedWrite => load.transfer.map(|bytes| self.buffered_write(load, bytes)),
        }
    }

    fn messages(&self, load: &Workload) -> StreamLimits {
        let o_snd = self.o_snd.each(load.batch);
        let window = load.unacked / (o_snd + self.g(load.bytes));
        let receiver = match load.carrier {
            Carrier::Write => f64::INFINITY,
            _ => 1.0 / self.receives(load.bytes, load.polled, load.reposted),
        };
        StreamLimits {
            connection: least([window, 1.0 / o_snd, 1.0 / self.o_queue]),
            receiver,
            card: 1.0 / self.carries(load.bytes),
        }
    }

    /// The receiver takes the request, posts its receive again, posts the READ, takes its
    /// completion, and posts the acknowledgement, a WRITE. Behind a fence, one READ follows the
    /// other.
    fn direct_read(&self, load: &Workload) -> StreamLimits {
        let read = self.read() + load.bytes * self.byte_alone;
        let all = self.hop() + read + self.o_snd.one + self.trip();
        let reads = if load.is_fenced { 1.0 } else { self.reads.min(load.unacked) };
        let works = 2.0 * self.o_rcv.one + self.o_post.one + 2.0 * self.o_snd.one;
        StreamLimits {
            connection: least([load.unacked / all, reads / read]),
            receiver: 1.0 / works,
            card: 1.0 / self.carries(load.bytes),
        }
    }

    /// Transfers of `transfer` bytes: one after the other, each with a READ of the tail before it;
    /// or several READs under way. Processors cost nothing: the texts have no number of a copy.
    fn buffered_read(&self, load: &Workload, transfer: f64) -> StreamLimits {
        let link = transfer * self.byte;
        let (reads, time) = match load.is_ahead {
            true => (load.reads.min(self.reads), self.read() + link),
            false => (1.0, 2.0 * self.read() + link),
        };
        let connection = reads * transfer / time / record(load.bytes);
        StreamLimits {
            connection,
            // A receiver that waits for each READ has one under way, of one connection or another.
            receiver: if load.is_ahead { f64::INFINITY } else { connection },
            card: transfer / (self.o_nic + link) / record(load.bytes),
        }
    }

    /// WRITEs of at least `transfer` bytes. Processors cost nothing but the posts.
    fn buffered_write(&self, load: &Workload, transfer: f64) -> StreamLimits {
        let transfer = transfer.max(record(load.bytes));
        let writes = if load.is_tail_written { 2.0 } else { 1.0 };
        let messages = transfer / record(load.bytes);
        let posts = writes * self.o_snd.each(writes);
        StreamLimits {
            connection: messages / posts.max(writes * self.o_queue),
            receiver: f64::INFINITY,
            card: messages / (writes * self.o_nic + transfer * self.byte),
        }
    }

    /// The bandwidth of Buffered Read as the paper has it, by the bytes of a transfer, in bytes.
    pub(crate) fn fetched(&self, transfer: f64) -> f64 {
        transfer / (2.0 * self.read() + transfer * self.byte)
    }

    /// Multicasts of `bytes` bytes in a group, with a push for each `every` of them.
    pub(crate) fn multicasts(&self, members: f64, every: f64, bytes: f64) -> f64 {
        least([self.requests / operations(members, every), self.both_ways / bytes])
    }
}

/// RDMA operations of a multicast, at all members: its data and its counter from the sender to each
/// other member, and each member's count of what it has received to each other one.
pub(crate) fn operations(members: f64, every: f64) -> f64 {
    (members - 1.0) * (members + 2.0) / every
}

/// Predictions of results.
impl DeviceModel {
    /// The network and both cards, of a device that was measured; nothing is known of its switch.
    fn calibrated(of: &Calibration) -> DeviceModel {
        let call = |one, listed, list| CallCost { one: one / 1e3, listed: listed / 1e3, list };
        DeviceModel {
            o_snd: call(of.o_snd_ns, of.o_snd_batched_ns, 8.0),
            o_rcv: call(of.o_rcv_ns, of.o_rcv_batched_ns, 32.0),
            o_post: call(of.o_post_ns, of.o_post_batched_ns, 8.0),
            o_small: of.o_small_ns / 1e3,
            o_nic: of.o_nic_ns / 1e3,
            o_queue: of.o_queue_ns / 1e3,
            o_srq: of.o_srq_ns / 1e3,
            latency: (of.l_ns - 2.0 * of.o_nic_ns).max(0.0) / 1e3,
            g_fix: of.g_ns / 1e3,
            g_read: of.g_read_ns / 1e3,
            reads: of.reads.max(1.0),
            byte: of.gap_per_byte_ns / 1e3,
            byte_alone: of.gap_per_byte_alone_ns / 1e3,
            requests: f64::INFINITY,
            both_ways: f64::INFINITY,
        }
    }

    /// Predicts the result of this key, in the unit of the key.
    pub(crate) fn predict(&self, load: &Workload, key: &str) -> Option<f64> {
        match (load.pattern, key) {
            (Pattern::PingPong, "latency_ns_p50") => Some(self.half_trip(load) * 1e3),
            (Pattern::Stream, "messages_per_s") => Some(self.rate(load)? * 1e6),
            (Pattern::Stream, "bytes_per_s") => Some(self.rate(load)? * 1e6 * load.bytes),
            (Pattern::Multicast, "rdma_ops_per_message") => {
                Some(operations(load.members, load.every))
            }
            (Pattern::LoneMulticast, "latency_ns_p50") => Some(self.lone_multicast(load) * 1e3),
            _ => None,
        }
    }

    /// Adds what it predicts of a figure: a curve for each case that it is about.
    pub(crate) fn draw(&self, figure: &mut Figure, quick: bool) {
        let experiment = figure.experiment.clone();
        for y in &experiment.y {
            for case in &experiment.cases {
                let points = self.curve(&experiment, &case.label, &y.key, y.divisor(), quick);
                if !points.is_empty() {
                    figure.predicted.push(Predicted {
                        label: format!("model: {}", case.label),
                        case: Some(case.label.clone()),
                        y: y.key.clone(),
                        points,
                    });
                }
            }
        }
    }

    fn curve(
        &self,
        experiment: &Experiment,
        case: &str,
        key: &str,
        divisor: f64,
        quick: bool,
    ) -> Vec<(f64, f64)> {
        let point = |run: CommandRun<'_>| {
            let value = self.predict(&Workload::parse(&run.words)?, key)?;
            Some((run.x as f64, value / divisor)).filter(|_| value.is_finite())
        };
        experiment.runs(quick).filter(|run| run.case == case).filter_map(point).collect()
    }
}

/// Differences of a curve from what was measured, as parts of that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CurveError {
    pub(crate) median: f64,
    pub(crate) largest: f64,
    /// Place of the largest one.
    pub(crate) at: u64,
}

impl CurveError {
    /// That of a curve which predicts a case; nothing without points to compare.
    pub(crate) fn compare(figure: &Figure, curve: &Predicted) -> Option<CurveError> {
        let series = figure.series(curve.case.as_deref()?)?;
        let divisor = figure.experiment.axis(Some(&curve.y))?.divisor();
        let errors: Vec<(f64, u64)> = curve
            .points
            .iter()
            .filter_map(|(x, predicted)| {
                let at = *x as u64;
                let measured = series.at(at)?.median(&curve.y)? / divisor;
                Some(((predicted / measured - 1.0).abs(), at)).filter(|(e, _)| e.is_finite())
            })
            .collect();
        let (largest, at) = errors.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))?;
        let median = Spread::of(errors.iter().map(|(error, _)| *error)).median;
        Some(CurveError { median, largest, at })
    }
}

/// Adds the curves that the experiment of a figure asks for, and those of its device, if that was
/// calibrated.
pub(crate) fn add_curves(figure: &mut Figure, quick: bool, device: Option<&Calibration>) {
    let experiment = figure.experiment.clone();
    figure.predicted.clear();
    for asked in &experiment.curves {
        let (Some(model), Some(y)) = (named(&asked.model), experiment.axis(asked.y.as_deref()))
        else {
            continue;
        };
        let first = experiment.cases.first().map(|case| &case.label);
        let Some(case) = asked.case.as_ref().or(first) else { continue };
        let points = model.curve(&experiment, case, &y.key, y.divisor(), quick);
        let (label, case) = (asked.label.clone(), Some(case.clone()));
        figure.predicted.push(Predicted { label, case, y: y.key.clone(), points });
    }
    if let Some(calibration) = device {
        DeviceModel::calibrated(calibration).draw(figure, quick);
    }
}

#[cfg(test)]
mod tests;
