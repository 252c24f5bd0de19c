//! Results: a table for people, or one JSON object a line.

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use rdma_conn::device::Device;
use rdma_conn::send_recv::Preset;
use serde::Serialize;

use super::crowd::Crowd;
use super::load::{Load, Receiving, Shape};
use super::run::Measured;
use crate::args::Bench;
use crate::protocol::{Described, Kind};

/// What was measured, with what.
pub(crate) struct Case<'a> {
    device: &'a Device,
    protocol: &'static str,
    settings: Described,
    /// The settings for people.
    title: String,
    preset: Option<Preset>,
    shape: Shape,
    load: &'a Load,
}

/// One line of `--json`. A figure that was not measured is absent.
#[derive(Serialize)]
struct Line<'a> {
    protocol: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    preset: Option<&'a str>,
    device: &'a str,
    transport: &'a str,
    size_bytes: u32,
    #[serde(flatten)]
    settings: Described,
    threads: u32,
    senders: u32,
    single_receiver: bool,
    /// `off`, or how buffers get back.
    srq: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_per_sender: Option<f64>,
    messages: u64,
    messages_per_s: f64,
    bytes_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma_ops_per_message: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_transfer_bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rnr_events: Option<u64>,
    #[serde(skip_serializing_if = "is_zero")]
    registered_bytes: u64,
    verified: bool,
    build: String,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Gathers results, and prints them: a table for each of the settings that there were. They may
/// depend on the size.
pub(crate) struct Report {
    json: bool,
    tables: Vec<(String, Table)>,
}

/// A table without rows.
fn table() -> Table {
    let header =
        ["size", "messages/s", "bytes/s", "RDMA ops/message", "RNR events", "receive memory"];
    right_aligned(&header)
}

impl Report {
    pub(crate) fn new(json: bool) -> Report {
        Report { json, tables: Vec::new() }
    }

    pub(crate) fn add(&mut self, case: Case<'_>, measured: &Measured) -> Result<()> {
        let settings = case.title.clone();
        let line = case.line(measured);
        if self.json {
            say!("{}", serde_json::to_string(&line)?);
            return Ok(());
        }
        let title = line.title(&settings);
        self.table_of(title).add_row([
            bytes(u64::from(line.size_bytes)),
            rate(line.messages_per_s),
            format!("{}/s", bytes(line.bytes_per_s as u64)),
            counted(line.rdma_ops_per_message.map(|n| format!("{n:.3}"))),
            counted(line.rnr_events.map(|n| n.to_string())),
            bytes(line.registered_bytes),
        ]);
        Ok(())
    }

    /// The table for results with these settings, if the last one is not.
    fn table_of(&mut self, title: String) -> &mut Table {
        if self.tables.last().is_none_or(|(last, _)| *last != title) {
            self.tables.push((title, table()));
        }
        let last = self.tables.len() - 1;
        &mut self.tables[last].1
    }

    pub(crate) fn finish(self) {
        for (title, table) in self.tables {
            say!("{title}");
            say!("{table}");
        }
    }

    /// How many results there are for people.
    #[cfg(test)]
    pub(crate) fn rows(&self) -> usize {
        self.tables.iter().map(|(_, table)| table.row_count()).sum()
    }
}

fn counted(figure: Option<String>) -> String {
    figure.unwrap_or_else(|| "not counted".into())
}

impl<'a> Case<'a> {
    /// What this end has asked for.
    pub(crate) fn new<K: Kind>(
        device: &'a Device,
        options: &Bench,
        config: &K::Config,
        load: &'a Load,
    ) -> Case<'a> {
        let (preset, shape) = (options.connection.preset, Shape::new(options));
        let (mut settings, mut title) = (K::describe(config), K::title(config));
        if let Some(crowd) = Crowd::asked(options) {
            crowd.describe(&mut settings, &mut title);
        }
        Case { device, protocol: K::NAME, settings, title, preset, shape, load }
    }

    /// What the connecting ends have asked for.
    pub(crate) fn hosted(self, preset: Option<Preset>, shape: Shape) -> Case<'a> {
        Case { preset, shape, ..self }
    }

    fn line(self, measured: &Measured) -> Line<'a> {
        let Case { device, protocol, settings, preset, shape, load, .. } = self;
        let per_s = measured.messages_per_s();
        let many_to_one = shape.receiving != Receiving::ThreadEach;
        Line {
            protocol,
            preset: preset.map(|p| p.name()),
            device: device.name(),
            transport: "rc",
            size_bytes: load.size,
            settings,
            threads: if many_to_one { 1 } else { shape.senders },
            senders: shape.senders,
            single_receiver: shape.receiving == Receiving::SingleReceiver,
            srq: shape.srq.map_or("off", |s| s.name()),
            rate_per_sender: load.rate,
            messages: measured.messages,
            messages_per_s: per_s,
            bytes_per_s: per_s * f64::from(load.size),
            rdma_ops_per_message: measured.whole.map(|whole| whole.operations_per_message()),
            mean_transfer_bytes: measured.whole.and_then(|whole| whole.work.mean_transfer_bytes()),
            rnr_events: measured.rnr_events,
            registered_bytes: measured.registered_bytes,
            verified: load.verify,
            build: rdma_conn::build::summary(),
        }
    }
}

impl Line<'_> {
    fn title(&self, settings: &str) -> String {
        let many = match (self.senders, self.single_receiver) {
            (1, _) => String::new(),
            (n, true) => format!(", {n} senders to one queue"),
            (n, false) => format!(", {n} senders, {} receiving threads", self.threads),
        };
        let srq = if self.srq == "off" { String::new() } else { format!(", SRQ ({})", self.srq) };
        let checked = if self.verified { "payloads checked" } else { "payloads not checked" };
        format!("{} on {}: {settings}{many}{srq}, {checked}", self.protocol, self.device)
    }
}

/// A table whose columns are numbers.
pub(crate) fn right_aligned(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(header);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Messages per second as people read them.
pub(crate) fn rate(per_s: f64) -> String {
    match per_s {
        n if n >= 1e6 => format!("{:.2} M", n / 1e6),
        n if n >= 1e3 => format!("{:.1} k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

/// Bytes as people read them, in powers of 1000.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        n if n >= 1_000_000_000 => format!("{:.2} GB", n as f64 / 1e9),
        n if n >= 1_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        n if n >= 10_000 => format!("{:.1} kB", n as f64 / 1e3),
        n => format!("{n} B"),
    }
}
