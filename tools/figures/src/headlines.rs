//! The figures that the papers state in their texts, and what the model makes of them.
//!
//! Each row is a sentence of a paper: what it is about, its number, whether that is about, at least or at
//! most what there is, and how the model predicts it: by a run of the command, by two of them, or by a
//! formula. Rows of [`Role::Fit`] have set a parameter of ours, and prove nothing. The thesis has
//! fitted its own parameters to its curves.
//!
//! The axes of the thesis are in Gibit/s: a number that the text has from a chart is 7 % more in Gbit/s.

use super::model::workload::Workload;
use super::model::{DeviceModel, operations};
use super::unit;
use By::{Formula, Ratio, Run};
use Compare::{About, AtLeast, AtMost};
use Role::{Fit, Prediction};

/// Comparison of a paper's number with what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    About,
    AtLeast,
    AtMost,
}

impl Compare {
    /// As the JSON has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Compare::About => "about",
            Compare::AtLeast => "at_least",
            Compare::AtMost => "at_most",
        }
    }

    /// Before a number of the table.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Compare::About => "",
            Compare::AtLeast => "≥ ",
            Compare::AtMost => "≤ ",
        }
    }
}

/// Role of a number: it has set a parameter, or is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Prediction,
    Fit,
}

/// Prediction of a number by the model.
#[derive(Clone, Copy)]
pub(crate) enum By {
    /// A key of the result of a run.
    Run(&'static str, &'static str),
    /// A run beside another one.
    Ratio(&'static str, &'static str, &'static str),
    Formula(fn(&DeviceModel) -> f64),
}

/// A number that a paper states.
#[derive(Clone, Copy)]
pub(crate) struct Headline {
    pub(crate) source: &'static str,
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) paper: f64,
    pub(crate) compare: Compare,
    pub(crate) role: Role,
    by: By,
    /// The reason why the model differs, and what was tried; empty if it does not differ.
    pub(crate) why: &'static str,
}

const RATE: &str = "messages_per_s";
const BYTES: &str = "bytes_per_s";
const LATENCY: &str = "latency_ns_p50";
const OPERATIONS: &str = "rdma_ops_per_message";

const fn row(
    source: &'static str,
    what: &'static str,
    (compare, paper, unit): (Compare, f64, &'static str),
    role: Role,
    by: By,
) -> Headline {
    Headline { source, what, unit, paper, compare, role, by, why: "" }
}

impl Headline {
    const fn but(self, why: &'static str) -> Headline {
        Headline { why, ..self }
    }

    /// Beyond this, the model does not explain a number.
    const EXPLAINS: f64 = 0.15;

    /// The model's value; not a number where a row is wrong.
    pub(crate) fn predicted(&self, model: &DeviceModel) -> f64 {
        let run = |line: &str, key: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let load = Workload::parse(&words);
            load.and_then(|load| model.predict(&load, key)).unwrap_or(f64::NAN)
        };
        match self.by {
            By::Run(line, key) => {
                run(line, key) / unit::divisor(key, self.unit).unwrap_or(f64::NAN)
            }
            By::Ratio(line, to, key) => run(line, key) / run(to, key),
            By::Formula(formula) => formula(model),
        }
    }

    /// The distance of a value from the paper's, as a part of that.
    pub(crate) fn error(&self, value: f64) -> f64 {
        (value - self.paper) / self.paper
    }

    /// Compares a value with the paper's: near it, or on the side that it names.
    pub(crate) fn is_explained(&self, value: f64) -> bool {
        let error = self.error(value);
        match self.compare {
            Compare::About => error.abs() <= Self::EXPLAINS,
            Compare::AtLeast => error >= 0.0,
            Compare::AtMost => error <= 0.0,
        }
    }
}

const SR: &str = "Send/Receive";
const DR: &str = "Direct Read";
const BR: &str = "Buffered Read";
const SMC: &str = "Derecho";
const RT: &str = "RDMA tutorial";

/// Gibit/s of an axis of the thesis, in Gbit/s.
const fn gibit(value: f64) -> f64 {
    value * 1.073_741_824
}

/// Those of the five texts.
#[rustfmt::skip]
pub(crate) const HEADLINES: &[Headline] = &[
    row(SR, "half a round trip, 16 B", (About, 2.0, "µs"), Prediction,
        Run("pingpong --size 16", LATENCY)),
    row(SR, "unacknowledged messages that saturate a connection, 16 B, one by one", (About, 32.0, "messages"), Prediction,
        Formula(|m| (m.o_snd.one + m.g(16.0)) / m.o_snd.one)),
    row(SR, "unacknowledged messages beside one at a time, 16 B", (AtLeast, 5.0, "times"), Prediction,
        Ratio("bench --preset unbatched --size 16", "bench --preset sequential --size 16", RATE)),
    row(SR, "8 requests to a doorbell beside 1, 16 B", (AtMost, 2.0, "times"), Prediction,
        Ratio("bench --preset batched --size 16", "bench --preset unbatched --size 16", RATE)),
    row(SR, "32 requests to a doorbell beside 8: nothing is gained, 16 B", (About, 1.0, "times"), Prediction,
        Ratio("bench --unacked 256 --batch 32 --size 16", "bench --unacked 256 --batch 8 --size 16", RATE)),
    row(SR, "a receiver that polls 32 completions beside 1, 16 B", (About, 1.5, "times"), Prediction,
        Ratio("bench --preset unbatched --senders 8 --poll-batch 32 --size 16",
            "bench --preset unbatched --senders 8 --poll-batch 1 --size 16", RATE)),
    row(SR, "a receiver without batches beside its one sender, 16 B", (AtLeast, 1.0, "times"), Prediction,
        Formula(|m| m.o_snd.one / m.receives(16.0, 1.0, 1.0))),
    row(SR, "unbatched, 1 MiB: the link", (About, 100.0, "Gbit/s"), Prediction,
        Run("bench --preset unbatched --size 1M", BYTES)),
    row(SR, "batched, 1 MiB: the link", (About, 100.0, "Gbit/s"), Prediction,
        Run("bench --preset batched --size 1M", BYTES)),
    row(SR, "many connections, 16 B, beside a single one's most", (AtLeast, 14.0, "M msg/s"), Prediction,
        Run("bench --preset unbatched --threads 16 --size 16", RATE)),
    row(SR, "many connections, 16 B beside 512 B", (AtLeast, 2.0, "times"), Prediction,
        Ratio("bench --preset unbatched --threads 16 --size 16",
            "bench --preset unbatched --threads 16 --size 512", RATE)),
    row(SR, "many connections, 8 KiB: the link", (About, 100.0, "Gbit/s"), Prediction,
        Run("bench --preset unbatched --threads 16 --size 8k", BYTES)),
    row(SR, "many connections, a shared queue, 512 B: senders are held to", (About, 1.8, "M msg/s"), Prediction,
        Run("bench --preset unbatched --srq --threads 16 --size 512", RATE)),
    row(SR, "N senders, 512 B", (About, 16.0, "M msg/s"), Prediction,
        Run("bench --preset unbatched --senders 8 --size 512", RATE)),
    row(SR, "N senders, 8 KiB: the link", (About, 100.0, "Gbit/s"), Prediction,
        Run("bench --preset unbatched --senders 8 --size 8k", BYTES)),
    row(SR, "a shared queue no longer limits messages of", (About, 6800.0, "B"), Prediction,
        Formula(|m| 1.0 + m.o_srq / m.byte)),
    row(SR, "queues of their own beside a shared one, 512 B", (About, 10.0, "times"), Prediction,
        Ratio("bench --preset unbatched --threads 16 --size 512",
            "bench --preset unbatched --srq --threads 16 --size 512", RATE))
        .but("the text's own rates of N senders, 16 and 2 M msg/s, are 8 times. Tried: N senders, 7.4; \
            256 B instead of 512, 12"),
    row(SR, "one connection, 16 B, batched: o_queue", (About, 14.0, "M msg/s"), Fit,
        Run("bench --preset batched --size 16", RATE)),
    row(SR, "the same as a bandwidth: o_queue", (AtLeast, 1.7, "Gbit/s"), Fit,
        Run("bench --preset batched --size 16", BYTES)),
    row(SR, "N senders, 16 B: o_small", (About, 11.0, "M msg/s"), Fit,
        Run("bench --preset unbatched --senders 8 --size 16", RATE)),
    row(SR, "N senders, a shared queue, 512 B: o_srq", (About, 2.0, "M msg/s"), Fit,
        Run("bench --preset unbatched --srq --senders 8 --size 512", RATE)),
    row(SR, "N senders, a shared queue beside queues of their own, 32 B: o_srq", (About, 1.0, "times"), Fit,
        Ratio("bench --preset unbatched --srq --senders 8 --size 32",
            "bench --preset unbatched --senders 8 --size 32", RATE)),
    row(SR, "one queue pair alone with a shared queue beside its own, 512 B: o_srq", (About, 1.0, "times"), Fit,
        Ratio("bench --preset unbatched --srq --size 512", "bench --preset unbatched --size 512", RATE)),

    row(DR, "latency, 1 KiB beside 16 B: constant", (About, 1.0, "times"), Prediction,
        Ratio("pingpong --protocol direct-read --size 1k", "pingpong --protocol direct-read --size 16", LATENCY)),
    // The fenced receiver waits for the acknowledgement of its own WRITE.
    row(DR, "latency that the fence adds", (About, 3.0, "µs"), Prediction, Formula(|m| m.g(1.0))),
    row(DR, "64 unacknowledged messages beside 32, 16 B: nothing is gained", (About, 1.0, "times"), Prediction,
        Ratio("bench --protocol direct-read --unacked 64 --size 16",
            "bench --protocol direct-read --unacked 32 --size 16", RATE)),
    row(DR, "many connections, 512 B: 70 Gibit/s", (About, gibit(70.0), "Gbit/s"), Prediction,
        Run("bench --protocol direct-read --threads 32 --size 512", BYTES)),
    row(DR, "many connections, 8 KiB: the link", (About, 100.0, "Gbit/s"), Prediction,
        Run("bench --protocol direct-read --threads 32 --size 8k", BYTES)),
    row(DR, "N senders", (About, 2.6, "M msg/s"), Prediction,
        Run("bench --protocol direct-read --senders 8 --size 16", RATE)),
    row(DR, "N senders, 512 B: 10 Gibit/s", (About, gibit(10.0), "Gbit/s"), Prediction,
        Run("bench --protocol direct-read --senders 8 --size 512", BYTES)),
    row(DR, "N senders, 16 B: 0.3 Gibit/s", (About, gibit(0.3), "Gbit/s"), Prediction,
        Run("bench --protocol direct-read --senders 8 --size 16", BYTES)),
    row(DR, "8 senders beside 1, 16 B: nothing is gained", (About, 1.0, "times"), Prediction,
        Ratio("bench --protocol direct-read --senders 8 --size 16", "bench --protocol direct-read --size 16", RATE)),

    row(BR, "latency, 1 KiB beside 16 B: constant", (About, 1.0, "times"), Prediction,
        Ratio("pingpong --protocol buffered-read --size 1k", "pingpong --protocol buffered-read --size 16", LATENCY)),
    row(BR, "one connection at its best, transfers of 100 KB: 70 Gibit/s", (About, gibit(70.0), "Gbit/s"), Prediction,
        Formula(|m| m.fetched(100e3) * 8e-3))
        .but("the link takes 8.4 of the 10.6 µs of such a transfer: 2.2 are left for two READs one behind the \
            other, and a message alone takes 2. Tried: a READ of 3.4 µs (g), 51; without that of the tail, or \
            with the mean over both READs, 64 (-15 %)"),
    row(BR, "16 B, transfers of 100 KB, beside the most of Send/Receive", (AtLeast, 14.0, "M msg/s"), Prediction,
        Run("bench --protocol buffered-read --no-prefetch --max-read-bytes 100000 --size 16", RATE)),
    row(BR, "two connections beside one, 8 KiB, transfers of 100 KB: linear", (About, 2.0, "times"), Prediction,
        Ratio("bench --protocol buffered-read --no-prefetch --max-read-bytes 100000 --threads 2 --size 8k",
            "bench --protocol buffered-read --no-prefetch --max-read-bytes 100000 --size 8k", RATE)),
    row(BR, "8 senders beside 1, 512 B: the same", (About, 1.0, "times"), Prediction,
        Ratio("bench --protocol buffered-read --no-prefetch --max-read-bytes 100000 --senders 8 --size 512",
            "bench --protocol buffered-read --no-prefetch --max-read-bytes 100000 --size 512", RATE)),

    row(SMC, "a multicast to 3 members, each pushed", (About, 10.0, "operations"), Prediction,
        Run("multicast --members 3 --burst 1 --push every:1", OPERATIONS)),
    row(SMC, "3 members, each pushed", (About, 7.5, "M msg/s"), Prediction,
        Formula(|m| m.multicasts(3.0, 1.0, 100.0))),
    row(SMC, "fewer operations with k = 25, 3 members: by k", (About, 25.0, "times"), Prediction,
        Formula(|_| operations(3.0, 1.0) / operations(3.0, 25.0))),
    row(SMC, "3 members, k = 250, by operations alone", (About, 1900.0, "M msg/s"), Prediction,
        Formula(|m| m.requests / operations(3.0, 250.0))),
    row(SMC, "the same, 100 B", (About, 190.0, "GB/s"), Prediction,
        Formula(|m| m.requests / operations(3.0, 250.0) * 0.1)),
    row(SMC, "3 members, k = 250, 100 B: the link in both directions", (AtMost, 250.0, "M msg/s"), Prediction,
        Formula(|m| m.multicasts(3.0, 250.0, 100.0))),
    row(SMC, "k = 250 beside 1, 3 members, 100 B", (About, 4.0, "times"), Prediction,
        Formula(|m| m.multicasts(3.0, 250.0, 100.0) / m.multicasts(3.0, 1.0, 100.0)))
        .but("the text's own rates, 250 and 7.5 M msg/s, are 33 times. Tried: one sender to two others: its \
            12.5 GB/s out are 62 M msg/s, 8"),
    row(SMC, "a message that is inhibited, alone, 3 members", (About, 150.0, "µs"), Prediction,
        Run("multicast --lone --members 3 --push every:25", LATENCY)),

    row(RT, "4 WRITEs to a doorbell beside 1, 8 B, 4 under way", (AtLeast, 1.0, "times"), Prediction,
        Ratio("bench --op write --batch 4 --unacked 4 --size 8", "bench --op write --batch 1 --unacked 4 --size 8", RATE)),
    row(RT, "WRITE beside SEND, 8 B, 64 under way", (AtLeast, 1.0, "times"), Prediction,
        Ratio("bench --op write --batch 1 --unacked 64 --size 8", "bench --op send --batch 1 --unacked 64 --size 8", RATE)),
];

#[cfg(test)]
mod tests;
