//! Results: a table for people, or one JSON object a line.

use anyhow::Result;
use comfy_table::Table;
use rdma_conn::device::Device;
use rdma_conn::multicast::{Config, Policy, writes_per_multicast};
use serde::Serialize;

use super::Traffic;
use super::within::Measured;
use crate::bench::{bytes, rate, right_aligned};

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
    flush_every: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_per_sender: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_of_last_sender: Option<f64>,
    /// One message at a time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    lone: bool,
    messages: u64,
    messages_per_s: f64,
    bytes_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ns_p50: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ns_p99: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma_ops_per_message: Option<f64>,
    /// What a push of its own for every message takes, for the policies that have a k:
    /// divided by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    formula_ops_per_message: Option<f64>,
    forced_pushes: u64,
    /// Of the senders but the last, where that is a slow one.
    #[serde(skip_serializing_if = "Option::is_none")]
    others_messages_per_s: Option<f64>,
    /// The same where the slow one does not send.
    #[serde(skip_serializing_if = "Option::is_none")]
    others_messages_per_s_without_slow: Option<f64>,
    verified: bool,
    build: String,
}

/// Gathers results, and prints them.
pub(super) struct Report {
    json: bool,
    title: Option<String>,
    /// Its columns are known with what is sent, which the leader tells.
    table: Option<Table>,
}

impl Report {
    pub(super) fn new(json: bool) -> Report {
        Report { json, title: None, table: None }
    }

    fn table(has_slow: bool) -> Table {
        let header = [
            "members",
            "push",
            "messages/s",
            "bytes/s",
            "latency p50",
            "p99",
            "RDMA ops/message",
            "formula",
            "forced",
        ];
        let of_slow = ["others' messages/s", "without the slow one", "ratio"];
        let header = if has_slow { [&header[..], &of_slow].concat() } else { header.to_vec() };
        right_aligned(&header)
    }

    pub(super) fn add(
        &mut self,
        device: &Device,
        traffic: &Traffic,
        config: &Config,
        measured: &Measured,
    ) -> Result<()> {
        let line = Line::new(device, traffic, config, measured);
        if self.json {
            say!("{}", serde_json::to_string(&line)?);
            return Ok(());
        }
        self.title.get_or_insert_with(|| line.title());
        let us = |ns: Option<u64>| ns.map_or("-".into(), |ns| format!("{:.1} µs", ns as f64 / 1e3));
        let ops = |n: Option<f64>| n.map_or("-".into(), |n| format!("{n:.4}"));
        let mut row = vec![
            line.members.to_string(),
            line.push_policy.clone(),
            rate(line.messages_per_s),
            format!("{}/s", bytes(line.bytes_per_s as u64)),
            us(line.latency_ns_p50),
            us(line.latency_ns_p99),
            ops(line.rdma_ops_per_message),
            ops(line.formula_ops_per_message),
            line.forced_pushes.to_string(),
        ];
        if let Some(others) = line.others_messages_per_s {
            let alone = line.others_messages_per_s_without_slow;
            let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
            row.push(rate(others));
            row.push(or_dash(alone.map(rate)));
            row.push(or_dash(alone.map(|alone| format!("{:.3}", others / alone))));
        }
        let table = self.table.get_or_insert_with(|| Report::table(traffic.slow.is_some()));
        table.add_row(row);
        Ok(())
    }

    pub(super) fn finish(self) {
        if let (Some(title), Some(table)) = (self.title, self.table) {
            say!("{title}");
            say!("{table}");
        }
    }
}

impl<'a> Line<'a> {
    fn new(
        device: &'a Device,
        traffic: &Traffic,
        config: &Config,
        measured: &Measured,
    ) -> Line<'a> {
        let per_s = measured.per_s();
        let latency =
            |q| (!measured.latency.is_empty()).then(|| measured.latency.value_at_quantile(q));
        let ops = measured.work_requests as f64 / measured.messages as f64;
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
            flush_every: traffic.flush_every,
            rate_per_sender: traffic.rate,
            rate_of_last_sender: traffic.slow,
            lone: traffic.lone_us.is_some(),
            messages: measured.messages,
            messages_per_s: per_s,
            bytes_per_s: per_s * f64::from(traffic.size),
            latency_ns_p50: latency(0.5),
            latency_ns_p99: latency(0.99),
            rdma_ops_per_message: (measured.messages > 0).then_some(ops),
            formula_ops_per_message: match config.policy {
                Policy::Every(k) => Some(formula(k)),
                _ => None,
            },
            forced_pushes: measured.forced,
            others_messages_per_s: traffic.slow.map(|_| measured.others_per_s()),
            others_messages_per_s_without_slow: measured.others_alone_per_s,
            verified: traffic.verify,
            build: rdma_conn::build::summary(),
        }
    }

    fn title(&self) -> String {
        format!(
            "multicast on {}: {} senders, {} a message, window {}, deadline {} µs; latency from \
             sending to delivery, at all members",
            self.device,
            self.senders,
            bytes(u64::from(self.size_bytes)),
            self.window,
            self.deadline_us,
        )
    }
}
