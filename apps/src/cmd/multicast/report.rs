//! Results: a table for people, or one JSON object a line.

use anyhow::Result;
use base::table::Table;
use rdma_conn::device::Device;
use rdma_conn::multicast::{Config, Policy, writes_per_multicast};
use serde::Serialize;

use super::traffic::Traffic;
use super::within::Measured;
use crate::measure::figures::{counted_as, rate, size};
use crate::measure::{Machine, Rates, Spread};
use crate::results::Results;

/// One line of `--json`. A figure that was not measured is absent.
#[derive(Serialize)]
struct Line<'a> {
    protocol: &'static str,
    device: &'a str,
    transport: &'static str,
    size_bytes: u32,
    members: u8,
    senders: u8,
    window: u32,
    push_policy: String,
    deadline_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flush_every: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_per_sender: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_of_last_sender: Option<f64>,
    /// One message at a time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    lone: bool,
    #[serde(flatten)]
    rates: Rates,
    #[serde(flatten)]
    latency: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma_ops_per_message: Option<f64>,
    /// RDMA operations per message by the formula: those of a push for each message, divided by the
    /// k of the policies that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    formula_ops_per_message: Option<f64>,
    forced_pushes: u64,
    /// Rate of the senders but the last, if that is a slow one.
    #[serde(skip_serializing_if = "Option::is_none")]
    others_messages_per_s: Option<f64>,
    /// The same where the slow one does not send.
    #[serde(skip_serializing_if = "Option::is_none")]
    others_messages_per_s_without_slow: Option<f64>,
    #[serde(flatten)]
    machine: Machine,
    verified: bool,
}

/// From sending to delivery, in nanoseconds: medians of the rounds, and how far these lie apart.
#[derive(Serialize)]
struct Latency {
    latency_ns_p50: u64,
    latency_ns_p50_min: u64,
    latency_ns_p50_max: u64,
    latency_ns_p99: u64,
    latency_ns_p99_min: u64,
    latency_ns_p99_max: u64,
}

impl Latency {
    /// Merges the latencies of all rounds in which something was timed.
    fn of_rounds(rounds: &[Measured]) -> Option<Latency> {
        let timed: Vec<_> = rounds.iter().filter(|round| !round.latency.is_empty()).collect();
        let of = |q| Spread::of_whole(timed.iter().map(|round| round.latency.value_at_quantile(q)));
        let (latency_ns_p50, latency_ns_p50_min, latency_ns_p50_max) = of(0.5);
        let (latency_ns_p99, latency_ns_p99_min, latency_ns_p99_max) = of(0.99);
        (!timed.is_empty()).then_some(Latency {
            latency_ns_p50,
            latency_ns_p50_min,
            latency_ns_p50_max,
            latency_ns_p99,
            latency_ns_p99_min,
            latency_ns_p99_max,
        })
    }
}

/// Formats `n` with at most `digits` decimals, fewer if it is large.
fn figure(n: f64, digits: usize) -> String {
    let digits = match n {
        n if n >= 1000.0 => 0,
        n if n >= 10.0 => digits.min(2),
        _ => digits,
    };
    format!("{n:.digits$}")
}

/// The table, whose columns are known with what is sent, which the leader tells.
fn table(has_slow: bool) -> Table {
    let header = ["mem-\nbers", "push", "msgs/s", "±", "p50\n(µs)", "p99\n(µs)", "RDMA\nops/\nmsg"];
    let of_all = ["for-\nmula", "forced\npushes"];
    let of_slow = ["others'\nmsgs/s", "alone\nmsgs/s", "ratio"];
    Table::new(2, &[&header[..], if has_slow { &of_slow } else { &of_all }].concat())
}

/// Adds a result. The title is that of the first one.
pub(super) fn add(
    results: &mut Results,
    device: &Device,
    traffic: &Traffic,
    config: &Config,
    rounds: &[Measured],
) -> Result<()> {
    let line = Line::new(device, traffic, config, rounds);
    let title = results.title().unwrap_or_else(|| line.title());
    let us = |ns: Option<u64>| ns.map_or("-".into(), |ns| figure(ns as f64 / 1e3, 1));
    let ops = |n: Option<f64>| n.map_or("-".into(), |n| figure(n, 4));
    let latency = line.latency.as_ref();
    let mut row = vec![
        line.members.to_string(),
        line.push_policy.clone(),
        rate(line.rates.messages_per_s),
        line.rates.spread(),
        us(latency.map(|latency| latency.latency_ns_p50)),
        us(latency.map(|latency| latency.latency_ns_p99)),
        ops(line.rdma_ops_per_message),
    ];
    if traffic.slow.is_none() {
        row.push(ops(line.formula_ops_per_message));
        row.push(line.forced_pushes.to_string());
    }
    if let Some(others) = line.others_messages_per_s {
        let alone = line.others_messages_per_s_without_slow;
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        row.push(rate(others));
        row.push(or_dash(alone.map(rate)));
        row.push(or_dash(alone.map(|alone| format!("{:.3}", others / alone))));
    }
    results.add(&line, title, table(traffic.slow.is_some()), row)
}

impl<'a> Line<'a> {
    fn new(
        device: &'a Device,
        traffic: &Traffic,
        config: &Config,
        rounds: &[Measured],
    ) -> Line<'a> {
        let rates = Spread::of(rounds.iter().map(Measured::per_s));
        let sum = |of: fn(&Measured) -> u64| rounds.iter().map(of).sum::<u64>();
        let messages = sum(|round| round.messages);
        let work: Option<u64> = rounds.iter().map(|round| round.work_requests).sum();
        let ops = |work: u64| work as f64 / messages as f64;
        let alone: Option<Vec<f64>> = rounds.iter().map(|round| round.others_alone_per_s).collect();
        let others = || Spread::of(rounds.iter().map(Measured::others_per_s)).median;
        let formula = |k: u32| f64::from(writes_per_multicast(config.members)) / f64::from(k);
        Line {
            protocol: "multicast",
            device: device.name(),
            transport: "rc",
            size_bytes: traffic.size,
            members: config.members,
            senders: config.senders,
            window: config.window,
            push_policy: config.policy.to_string(),
            deadline_us: config.deadline.as_micros() as u64,
            burst: traffic.burst,
            flush_every: traffic.flush_every,
            rate_per_sender: traffic.rate,
            rate_of_last_sender: traffic.slow,
            lone: traffic.lone_us.is_some(),
            rates: Rates::new(messages, rounds.len() as u32, rates, traffic.size),
            latency: Latency::of_rounds(rounds),
            rdma_ops_per_message: work.filter(|_| messages > 0).map(ops),
            formula_ops_per_message: match config.policy {
                Policy::Every(k) => Some(formula(k)),
                _ => None,
            },
            forced_pushes: sum(|round| round.forced),
            others_messages_per_s: traffic.slow.map(|_| others()),
            others_messages_per_s_without_slow: alone.map(|alone| Spread::of(alone).median),
            machine: Machine::here(),
            verified: traffic.verify,
        }
    }

    fn title(&self) -> String {
        let bursts = self.burst.map_or(String::new(), |size| format!("bursts of {size}, "));
        format!(
            "multicast on {}: {}, {} a message, {bursts}window {}, deadline {} µs, {}; latency from \
             sending to delivery, at all members",
            self.device,
            counted_as(self.senders.into(), "sender", "senders"),
            size(u64::from(self.size_bytes)),
            self.window,
            self.deadline_us,
            counted_as(self.rates.rounds.into(), "round", "rounds"),
        )
    }
}
