//! Results of raw verbs: a table for people, or one JSON object a line.

use anyhow::Result;
use comfy_table::Table;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::plan::{Plan, Task};
use crate::args::{Op, RawTransport};
use crate::bench::{bytes, rate, right_aligned};

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
    /// Whether messages were handed over inline.
    pub(super) inline: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) recv_window: Option<u32>,
    pub(super) threads: u32,
    /// Queue pairs that send.
    pub(super) senders: u32,
    /// `off`, `one`, or `classes`.
    pub(super) srq: String,
    pub(super) messages: u64,
    pub(super) messages_per_s: f64,
    pub(super) bytes_per_s: f64,
    #[serde(flatten)]
    pub(super) latency: Option<Latency>,
    /// Queue pairs that the one of the receiving end serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) peers: Option<u32>,
    /// What an unreliable transport did; absent where that is not counted.
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
    pub(super) build: String,
}

/// What an unreliable transport did to messages.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Counted {
    /// Messages (pingpong: or answers) that did not come, or not in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lost: Option<u64>,
    /// Bench: those of the lost that arrived where no receive was posted for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) dropped: Option<u64>,
    /// Messages (pingpong: answers) that came after a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reordered: Option<u64>,
    /// Pingpong: answers that nobody waited for any more, late or repeated ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) late: Option<u64>,
    /// Bench: messages that came more than once, each time after the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) repeated: Option<u64>,
}

impl Counted {
    /// Takes note of what the device has counted as taken by nobody: a second copy of a
    /// message may be among it, and is no loss.
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
                 is repeated: give a larger --recv-window, or fewer --messages; --transport rc \
                 loses none)"
            )
    }
}

/// How long messages took, in nanoseconds.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(super) struct Latency {
    /// `half round trip`, or `operation`.
    pub(super) latency_of: String,
    pub(super) latency_ns_min: u64,
    pub(super) latency_ns_p50: u64,
    pub(super) latency_ns_p90: u64,
    pub(super) latency_ns_p99: u64,
    pub(super) latency_ns_p999: u64,
    pub(super) latency_ns_max: u64,
}

impl Latency {
    pub(super) fn new(op: Op, h: &Histogram<u64>) -> Latency {
        Latency {
            latency_of: if op == Op::Read { "operation" } else { "half round trip" }.into(),
            latency_ns_min: h.min(),
            latency_ns_p50: h.value_at_quantile(0.5),
            latency_ns_p90: h.value_at_quantile(0.9),
            latency_ns_p99: h.value_at_quantile(0.99),
            latency_ns_p999: h.value_at_quantile(0.999),
            latency_ns_max: h.max(),
        }
    }

    fn columns(&self) -> [u64; 6] {
        [
            self.latency_ns_min,
            self.latency_ns_p50,
            self.latency_ns_p90,
            self.latency_ns_p99,
            self.latency_ns_p999,
            self.latency_ns_max,
        ]
    }
}

impl Line {
    /// What the plan says; the figures are nothing yet.
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
            recv_window: plan.receives().then_some(plan.recv_window),
            threads: 1,
            senders: plan.qps,
            srq: match (plan.srq, plan.large) {
                (false, _) => "off",
                (true, None) => "one",
                (true, Some(_)) => "classes",
            }
            .into(),
            messages: 0,
            messages_per_s: 0.0,
            bytes_per_s: 0.0,
            latency: None,
            peers: (plan.transport == RawTransport::Ud).then_some(plan.qps),
            faults: Counted::default(),
            rdma_ops_per_message: None,
            rnr_events: None,
            registered_bytes: Some(plan.registered_bytes()).filter(|bytes| *bytes > 0),
            assumed_in_order: plan.assumed_in_order,
            compat: None,
            verified: plan.verify,
            build: rdma_conn::build::summary(),
        }
    }
}

/// Gathers results, and prints them.
pub(super) struct Report {
    json: bool,
    task: Task,
    table: Table,
    /// What is said below the table, by size.
    faults: Vec<String>,
}

const LATENCY: [&str; 8] = ["size", "min", "50 %", "90 %", "99 %", "99.9 %", "max", "messages/s"];
const RATE: [&str; 6] =
    ["size", "messages/s", "bytes/s", "RDMA ops/message", "RNR events", "receive memory"];

impl Report {
    pub(super) fn new(json: bool, task: Task) -> Report {
        let table = match task {
            Task::Pingpong => right_aligned(&LATENCY),
            Task::Bench => right_aligned(&RATE),
        };
        Report { json, task, table, faults: Vec::new() }
    }

    pub(super) fn add(&mut self, line: &Line) -> Result<()> {
        if self.json {
            say!("{}", serde_json::to_string(line)?);
            return Ok(());
        }
        if self.table.row_count() == 0 {
            say!("{}", self.title(line));
        }
        self.table.add_row(self.row(line));
        let faults = line.faults.text();
        if !faults.is_empty() {
            self.faults.push(format!("{}: {faults}", bytes(u64::from(line.size_bytes))));
        }
        Ok(())
    }

    fn row(&self, line: &Line) -> Vec<String> {
        let size = bytes(u64::from(line.size_bytes));
        let per_s = rate(line.messages_per_s);
        let counted = |figure: Option<String>| figure.unwrap_or_else(|| "not counted".into());
        match (self.task, &line.latency) {
            (Task::Pingpong, Some(latency)) => {
                let us = latency.columns().map(|ns| format!("{:.2}", ns as f64 / 1e3));
                [size].into_iter().chain(us).chain([per_s]).collect()
            }
            _ => vec![
                size,
                per_s,
                format!("{}/s", bytes(line.bytes_per_s as u64)),
                counted(line.rdma_ops_per_message.map(|n| format!("{n:.3}"))),
                counted(line.rnr_events.map(|n| n.to_string())),
                bytes(line.registered_bytes.unwrap_or(0)),
            ],
        }
    }

    fn title(&self, line: &Line) -> String {
        let what = match (self.task, line.protocol.as_str()) {
            (Task::Bench, _) if line.compat.is_some() => "There and back",
            (Task::Bench, _) => "One way",
            (Task::Pingpong, "raw-read") => "The whole operation in µs",
            (Task::Pingpong, _) => "Half of a round trip in µs",
        };
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
        let assumed = if line.assumed_in_order {
            "; that bytes arrive in order is assumed: the device does not promise it"
        } else {
            ""
        };
        format!(
            "{what}, {}{with} over {} on {}: {} in flight, {} to a doorbell{qps}{srq}, {checked}{assumed}",
            line.protocol, line.transport, line.device, line.unacked, line.batch
        )
    }

    pub(super) fn finish(self) {
        if !self.json && self.table.row_count() > 0 {
            say!("{}", self.table);
            self.faults.iter().for_each(|line| say!("{line}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_for_want_of_a_receive_is_said_and_what_to_do() {
        let bench = |lost, dropped| Counted {
            lost: Some(lost),
            dropped,
            reordered: Some(0),
            repeated: Some(0),
            ..Counted::default()
        };
        let says = bench(9, Some(7)).text();
        assert!(
            says.starts_with("2 lost on the network, 7 dropped for want of a receive"),
            "{says}"
        );
        assert!(says.contains("(nothing holds the sender back"), "{says}");
        // Which it was, not every device counts.
        let says = bench(9, None).text();
        assert!(says.starts_with("9 lost, ") && says.contains("does not tell"), "{says}");
        for nothing in
            [bench(9, Some(0)), bench(0, None), Counted { late: Some(1), ..bench(9, None) }]
        {
            let says = nothing.text();
            assert!(!says.contains('('), "{says}");
        }
    }
}
