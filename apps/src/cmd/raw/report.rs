//! Results of raw verbs: a table for people, or one JSON object a line.

use anyhow::{Context, Result};
use base::table::Table;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::plan::{Plan, Task};
use crate::cli::{Ends, Op, RawTransport};
use crate::measure::figures::{TakenAt, rate, rates_table, size};
use crate::measure::{Machine, Quantiles, Rates};
use crate::results::Results;

/// One line of `--json`. A figure that was not measured is absent.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) protocol: String,
    pub(super) device: String,
    pub(super) transport: String,
    pub(super) size_bytes: u32,
    pub(super) unacked: u32,
    pub(super) batch: u32,
    pub(super) signal_every: u32,
    /// True if messages were handed over inline.
    pub(super) inline: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) recv_depth: Option<u32>,
    pub(super) threads: u32,
    /// Queue pairs that send.
    pub(super) senders: u32,
    /// `off`, `one`, or `classes`.
    pub(super) srq: String,
    #[serde(flatten)]
    pub(super) rates: Rates,
    #[serde(flatten)]
    pub(super) latency: Option<Latency>,
    /// Queue pairs that the one of the receiving end serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) peers: Option<u32>,
    /// Counts of what an unreliable transport did; absent where nothing counts it.
    #[serde(flatten)]
    pub(super) faults: Counted,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rdma_ops_per_message: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rnr_events: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) registered_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) assumed_in_order: bool,
    /// The program at the other end, where it is not this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) compat: Option<String>,
    pub(super) verified: bool,
    #[serde(flatten)]
    pub(super) machine: Machine,
}

/// Counts of what an unreliable transport did to messages.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Counted {
    /// Messages (pingpong: or answers) that did not arrive, or not in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lost: Option<u64>,
    /// Bench: those of the lost that arrived where no receive was posted for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) dropped: Option<u64>,
    /// Messages (pingpong: answers) that arrived after a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reordered: Option<u64>,
    /// Pingpong: answers to messages that no longer wait for one: late, or repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) late: Option<u64>,
    /// Bench: messages that arrived more than once, each time after the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) repeated: Option<u64>,
    /// `--reliable`: datagrams that were sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) resent: Option<u64>,
}

impl Counted {
    /// Takes over the device's count of messages that found no posted receive: a second copy of a
    /// message may be among them, and is no loss.
    pub(super) fn count_dropped(&mut self, task: Task, dropped: Option<u64>) {
        if let (Task::Bench, Some(lost)) = (task, self.lost) {
            self.dropped = dropped.map(|dropped| dropped.min(lost));
        }
    }

    /// In words, with commas in between.
    fn text(&self) -> String {
        let (lost, dropped) = match (self.lost, self.dropped) {
            (Some(lost), Some(dropped)) => (Some(lost.saturating_sub(dropped)), Some(dropped)),
            known => known,
        };
        let on = if dropped.is_some() { "lost on the network" } else { "lost" };
        let named = [
            (lost, on),
            (dropped, "dropped for want of a receive"),
            (self.reordered, "reordered"),
            (self.late, "late"),
            (self.repeated, "repeated"),
            (self.resent, "datagrams sent again"),
        ];
        let words = named.iter().filter_map(|(count, name)| Some(format!("{} {name}", (*count)?)));
        let which = match (lost, dropped) {
            (_, Some(1..)) => "",
            // Pingpong counts late answers, and never has more in flight than receives.
            (Some(1..), None) if self.late.is_none() => {
                "on the way, or for want of a receive, this device does not tell: "
            }
            _ => return words.collect::<Vec<_>>().join(", "),
        };
        words.collect::<Vec<_>>().join(", ")
            + &format!(
                " ({which}nothing holds the sender back when the receiver is slower, and nothing \
                 is repeated: give a larger --recv-depth, or fewer --messages; --transport rc \
                 loses none, and bench --transport ud --reliable repairs it)"
            )
    }
}

/// Times that messages took, in nanoseconds.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(super) struct Latency {
    /// `half round trip`, or `operation`.
    pub(super) latency_of: String,
    #[serde(flatten)]
    pub(super) quantiles: Quantiles,
}

impl Latency {
    /// Returns the latency of halves of round trips.
    pub(super) fn of_half(h: &Histogram<u64>) -> Latency {
        Latency::new(Op::Send, h)
    }

    pub(super) fn new(op: Op, h: &Histogram<u64>) -> Latency {
        Latency {
            latency_of: if op == Op::Read { "operation" } else { "half round trip" }.into(),
            quantiles: Quantiles::of(h),
        }
    }
}

impl Counted {
    /// Returns the sums of the counts that both have.
    fn and(self, other: Counted) -> Counted {
        let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_add(b));
        Counted {
            lost: sum(self.lost, other.lost),
            dropped: sum(self.dropped, other.dropped),
            reordered: sum(self.reordered, other.reordered),
            late: sum(self.late, other.late),
            repeated: sum(self.repeated, other.repeated),
            resent: sum(self.resent, other.resent),
        }
    }
}

impl Line {
    /// Merges several rounds; counts are of all of them together.
    ///
    /// # Errors
    /// There was none.
    pub(super) fn of_rounds(rounds: &[Line]) -> Result<Line> {
        let first = rounds.first().context("nothing was measured")?.clone();
        let rates = Rates::of_rounds(rounds.iter().map(|line| line.rates), first.size_bytes);
        let all = rates.messages.max(1) as f64;
        let ops = |line: &Line| Some(line.rdma_ops_per_message? * line.rates.messages as f64);
        let latency = |latency: Latency| {
            let each = rounds.iter().filter_map(|line| Some(line.latency.as_ref()?.quantiles));
            Latency { quantiles: Quantiles::of_rounds(each), ..latency }
        };
        let faults = rounds.iter().map(|line| line.faults).reduce(Counted::and);
        Ok(Line {
            rates,
            latency: first.latency.clone().map(latency),
            faults: faults.unwrap_or_default(),
            rdma_ops_per_message: rounds.iter().map(ops).sum::<Option<f64>>().map(|sum| sum / all),
            rnr_events: rounds.iter().map(|line| line.rnr_events).sum(),
            ..first
        })
    }
}

impl Line {
    /// Returns the line of plain UDP from an address, with `unacked` packets under way, and up to
    /// `batch` of them to a call; it has no figures yet.
    pub(super) fn of_udp(ip: &str, size_bytes: u32, unacked: u32, batch: u32) -> Line {
        Line {
            protocol: UDP.into(),
            device: ip.into(),
            transport: UDP.into(),
            size_bytes,
            unacked,
            batch,
            signal_every: 1,
            inline: false,
            recv_depth: None,
            threads: 1,
            senders: 1,
            srq: "off".into(),
            rates: Rates::default(),
            latency: None,
            peers: None,
            faults: Counted::default(),
            rdma_ops_per_message: None,
            rnr_events: None,
            registered_bytes: None,
            assumed_in_order: false,
            compat: None,
            verified: false,
            machine: Machine::here(),
        }
    }

    /// Returns the line of one class of a plan; it has no figures yet.
    pub(super) fn new(plan: &Plan, class: usize, device: &str, inline: bool) -> Line {
        Line {
            protocol: plan.op.protocol().into(),
            device: device.into(),
            transport: plan.transport.name().into(),
            size_bytes: plan.class_size(class),
            unacked: plan.unacked,
            batch: plan.batch,
            signal_every: plan.signal_every,
            inline,
            recv_depth: plan.receives().then_some(plan.recv_depth),
            threads: 1,
            senders: plan.qps,
            srq: match (plan.srq, plan.large) {
                (false, _) => "off",
                (true, None) => "one",
                (true, Some(_)) => "classes",
            }
            .into(),
            rates: Rates::default(),
            latency: None,
            peers: (plan.transport == RawTransport::Ud).then_some(plan.qps),
            faults: Counted::default(),
            rdma_ops_per_message: None,
            rnr_events: None,
            registered_bytes: Some(plan.registered_bytes()).filter(|bytes| *bytes > 0),
            assumed_in_order: plan.assumed_in_order,
            compat: None,
            verified: plan.verify,
            machine: Machine::here(),
        }
    }
}

/// Protocol and transport of a measurement without verbs.
const UDP: &str = "udp";

/// Gathers results, and prints them.
pub(super) struct Report {
    task: Task,
    empty: Table,
    results: Results,
}

const LATENCY: [&str; 8] =
    ["size", "min", "50 %", "± of\nrounds", "99 %", "99.9 %", "max", "mes-\nsages/s"];

impl Report {
    pub(super) fn new(json: bool, task: Task, ends: &Ends) -> Report {
        let taken = match (ends.listen, ends.connect) {
            (Some(_), _) => TakenAt::Listening,
            (_, Some(_)) => TakenAt::Connecting,
            (None, None) => TakenAt::Both,
        };
        let empty = match task {
            Task::Pingpong => Table::new(1, &LATENCY),
            Task::Bench => rates_table(taken),
        };
        Report { task, empty, results: Results::new(json) }
    }

    /// Adds what each of several rounds has brought, a line for each class.
    pub(super) fn add_rounds(&mut self, rounds: Vec<Vec<Line>>) -> Result<()> {
        let classes = rounds.first().map_or(0, Vec::len);
        for class in 0..classes {
            let lines = rounds.iter().filter_map(|lines| lines.get(class).cloned());
            self.add(&Line::of_rounds(&lines.collect::<Vec<_>>())?)?;
        }
        Ok(())
    }

    /// The title is that of the first result; what was lost is said by size.
    fn add(&mut self, line: &Line) -> Result<()> {
        let title = self.results.title().unwrap_or_else(|| self.title(line));
        let faults = match line.faults.lost {
            Some(lost) if line.protocol == UDP => format!("{lost} lost"),
            _ => line.faults.text(),
        };
        if !faults.is_empty() {
            self.results.note(format!("{}: {faults}", size(u64::from(line.size_bytes))));
        }
        self.results.add(line, title, self.empty.clone(), self.row(line))
    }

    fn row(&self, line: &Line) -> Vec<String> {
        match (self.task, &line.latency) {
            (Task::Pingpong, Some(latency)) => {
                let us = latency.quantiles.columns().map(|ns| format!("{:.2}", ns as f64 / 1e3));
                let [min, p50, _, p99, p999, max] = us;
                let size = size(u64::from(line.size_bytes));
                let per_s = rate(line.rates.messages_per_s);
                vec![size, min, p50, latency.quantiles.spread(), p99, p999, max, per_s]
            }
            _ => line.rates.row(
                line.size_bytes,
                line.rdma_ops_per_message,
                line.rnr_events,
                line.registered_bytes.unwrap_or(0),
            ),
        }
    }

    fn title(&self, line: &Line) -> String {
        let what = match (self.task, line.protocol.as_str()) {
            (Task::Bench, _) if line.compat.is_some() => "There and back",
            (Task::Bench, _) => "One way",
            (Task::Pingpong, "raw-read") => "The whole operation in µs",
            (Task::Pingpong, _) => "Half of a round trip in µs",
        };
        if line.protocol == UDP {
            return format!(
                "{what}, plain UDP from {}: {} packets in flight, {} to a call at most, nothing \
                 repeated or checked",
                line.device, line.unacked, line.batch
            );
        }
        let with =
            line.compat.as_ref().map(|program| format!(" with {program}")).unwrap_or_default();
        let qps = match line.senders {
            1 => String::new(),
            n if line.peers.is_some() => format!(", {n} peers of one queue pair"),
            n => format!(", {n} queue pairs"),
        };
        let srq = match line.srq.as_str() {
            "off" => String::new(),
            "one" => ", one shared receive queue".into(),
            _ => ", a shared receive queue for each size".into(),
        };
        let checked = if line.verified { "payloads checked" } else { "payloads not checked" };
        let repaired =
            if line.faults.resent.is_some() { ", cut into datagrams, losses repaired" } else { "" };
        let assumed = if line.assumed_in_order {
            "; that bytes arrive in order is assumed: the device does not promise it"
        } else {
            ""
        };
        format!(
            "{what}, {}{with} over {} on {}: {} in flight, {} to a doorbell{qps}{srq}{repaired}, {checked}{assumed}",
            line.protocol, line.transport, line.device, line.unacked, line.batch
        )
    }

    pub(super) fn finish(self) {
        self.results.finish();
    }
}

#[cfg(test)]
mod tests;
