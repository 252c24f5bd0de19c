//! Results: a table for people, or one JSON object a line.

use base::table::ResultTable;
use rdma_conn::device::Device;
use rdma_conn::multicast::{Config, Policy, writes_per_multicast};

use super::traffic::GroupTraffic;
use super::within::GroupMeasurement;
use crate::measure::ResultLine;
use crate::measure::figures::{counted_as, rate};
use crate::results::{ResultReport, ResultStyle};

/// A report without results. Its columns are known with what is sent, which the leader tells.
pub(super) fn report(json: bool, traffic: &GroupTraffic) -> ResultReport {
    let header = ["mem-\nbers", "push", "msgs/s", "±", "p50\n(µs)", "p99\n(µs)", "RDMA\nops/\nmsg"];
    let of_all = ["for-\nmula", "forced\npushes"];
    let of_slow = ["others'\nmsgs/s", "alone\nmsgs/s", "ratio"];
    let more = if traffic.slow.is_some() { &of_slow[..] } else { &of_all[..] };
    let empty = ResultTable::new(2, &[&header[..], more].concat());
    ResultReport::new(
        json,
        ResultStyle { empty, title, row, note: |_| String::new(), is_one: true },
    )
}

/// The result of one round.
pub(super) fn line(
    device: &Device,
    traffic: &GroupTraffic,
    config: &Config,
    round: &GroupMeasurement,
) -> ResultLine {
    let messages = round.messages;
    let ops = |work: u64| work as f64 / messages as f64;
    let formula = |k: u32| f64::from(writes_per_multicast(config.members)) / f64::from(k);
    let line = ResultLine::new("multicast", device.name(), "rc", traffic.size)
        .with("members", config.members)
        .with("senders", config.senders)
        .with("window", config.window)
        .with("push_policy", config.policy.to_string())
        .with("deadline_us", config.deadline.as_micros() as u64)
        .with("burst", traffic.burst)
        .with("flush_every", traffic.flush_every)
        .with("rate_per_sender", traffic.rate)
        .with("rate_of_last_sender", traffic.slow)
        .with("lone", traffic.lone_us.map(|_| true))
        .with_rates(messages, round.per_s())
        .with("rdma_ops_per_message", round.work_requests.filter(|_| messages > 0).map(ops))
        .with("forced_pushes", round.forced)
        .with("others_messages_per_s", traffic.slow.map(|_| round.others_per_s()))
        .with("others_messages_per_s_without_slow", round.others_alone_per_s)
        .with("verified", traffic.verify);
    let line = match config.policy {
        Policy::Every(k) => line.with("formula_ops_per_message", formula(k)),
        _ => line,
    };
    if round.latency.is_empty() { line } else { line.with_medians(&round.latency) }
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

fn row(line: &ResultLine) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let us = |key: &str| or_dash(line.number(key).map(|ns| figure(ns / 1e3, 1)));
    let ops = |key: &str| or_dash(line.number(key).map(|n| figure(n, 4)));
    let mut row = vec![
        line.figure("members").to_string(),
        line.text("push_policy").to_owned(),
        rate(line.figure("messages_per_s")),
        line.spread("messages_per_s"),
        us("latency_ns_p50"),
        us("latency_ns_p99"),
        ops("rdma_ops_per_message"),
    ];
    match line.number("others_messages_per_s") {
        None => {
            row.extend([ops("formula_ops_per_message"), line.figure("forced_pushes").to_string()])
        }
        Some(others) => {
            let alone = line.number("others_messages_per_s_without_slow");
            let ratio = alone.map(|alone| format!("{:.3}", others / alone));
            row.extend([rate(others), or_dash(alone.map(rate)), or_dash(ratio)]);
        }
    }
    row
}

fn title(line: &ResultLine) -> String {
    let bursts = line.count("burst").map_or(String::new(), |size| format!("bursts of {size}, "));
    let [senders, window, deadline] =
        ["senders", "window", "deadline_us"].map(|key| line.count(key).unwrap_or_default());
    format!(
        "multicast on {}: {}, {} a message, {bursts}window {window}, deadline {deadline} µs, {}; \
         latency from sending to delivery, at all members",
        line.text("device"),
        counted_as(senders, "sender", "senders"),
        line.size(),
        line.rounds(),
    )
}
