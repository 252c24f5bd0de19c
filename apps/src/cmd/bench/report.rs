//! Results: a table for people, or one JSON object a line.

use crate::measure::figures::{TakenAt, counted_as, rates_table};
use anyhow::Result;
use rdma_conn::device::Device;
use rdma_conn::send_recv::Preset;
use serde::Serialize;

use crate::cli::Bench;
use crate::measure::{Crowd, Described, Load, Machine, Measured, Rates, Receivers, Shape, Spread};
use crate::protocol::Kind;
use crate::results::Results;
use crate::settings;
use crate::settings::send_recv::PRESET;

/// Configuration that was measured: device, connection, settings and load.
#[derive(Clone)]
pub(crate) struct Case<'a> {
    device: &'a Device,
    protocol: &'static str,
    settings: Described,
    /// The settings for people.
    title: String,
    preset: Option<Preset>,
    shape: Shape,
    load: &'a Load,
    line_ns: Option<f64>,
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
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    single_sender: bool,
    /// `off`, or how buffers get back.
    srq: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_per_sender: Option<f64>,
    #[serde(flatten)]
    rates: Rates,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma_ops_per_message: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_transfer_bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rnr_events: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receiver_processor_use: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sender_fairness: Option<f64>,
    #[serde(skip_serializing_if = "is_zero")]
    registered_bytes: u64,
    /// From one processor to the other, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    line_ns: Option<f64>,
    #[serde(flatten)]
    machine: Machine,
    verified: bool,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Gathers results, and prints them: a table for each of the settings that there were. They may
/// depend on the size.
pub(crate) struct Report {
    taken: TakenAt,
    pub(crate) results: Results,
}

impl Report {
    pub(crate) fn new(json: bool, taken: TakenAt) -> Report {
        Report { taken, results: Results::new(json) }
    }

    pub(crate) fn add(&mut self, case: Case<'_>, measured: &Measured) -> Result<()> {
        let settings = case.title.clone();
        let line = case.line(measured);
        let (ops, rnr_events) = (line.rdma_ops_per_message, line.rnr_events);
        let row = line.rates.row(line.size_bytes, ops, rnr_events, line.registered_bytes);
        self.results.add(&line, line.title(&settings), rates_table(self.taken), row)
    }
}

/// All results with both ends in this process, as they are printed.
pub(crate) fn text(json: bool, results: &[(Case<'_>, Measured)]) -> Result<String> {
    if json {
        let line = |(case, measured): &(Case<'_>, Measured)| {
            serde_json::to_string(&case.clone().line(measured))
        };
        return Ok(results.iter().map(line).collect::<Result<Vec<_>, _>>()?.join("\n"));
    }
    let mut report = Report::new(json, TakenAt::Both);
    results.iter().try_for_each(|(case, measured)| report.add(case.clone(), measured))?;
    Ok(report.results.text())
}

impl<'a> Case<'a> {
    /// Describes the measurement that this end asked for.
    pub(crate) fn new<K: Kind>(
        device: &'a Device,
        options: &Bench,
        config: &K::Settings,
        load: &'a Load,
    ) -> Case<'a> {
        let preset = options.connection.given.word(&PRESET).and_then(|name| name.parse().ok());
        let shape = Shape::new(options);
        let (mut settings, mut title) =
            (settings::describe(K::SETTINGS, config), settings::title(K::SETTINGS, config));
        if let Some(crowd) = Crowd::asked(options) {
            crowd.describe(&mut settings, &mut title);
        }
        Case { device, protocol: K::WORD, settings, title, preset, shape, load, line_ns: None }
    }

    /// Sets the time that a line of memory took between the processors meanwhile.
    pub(crate) fn with_line(self, line_ns: Option<f64>) -> Case<'a> {
        Case { line_ns, ..self }
    }

    /// Takes over the preset and the shape that the connecting ends asked for.
    pub(crate) fn hosted(self, preset: Option<Preset>, shape: Shape) -> Case<'a> {
        Case { preset, shape, ..self }
    }

    fn line(self, measured: &Measured) -> Line<'a> {
        let Case { device, protocol, settings, preset, shape, load, line_ns, .. } = self;
        let per_s = measured.messages_per_s();
        let (rounds, rates) = measured.rounds.unwrap_or_else(|| (1, Spread::of([per_s])));
        let many_to_one = shape.receiving != Receivers::ThreadEach;
        Line {
            protocol,
            preset: preset.map(|p| p.name()),
            device: device.name(),
            transport: "rc",
            size_bytes: load.size,
            settings,
            threads: if many_to_one { 1 } else { shape.senders },
            senders: shape.senders,
            single_receiver: shape.receiving == Receivers::SingleReceiver,
            single_sender: load.in_turn,
            srq: shape.srq.map_or("off", |s| s.name()),
            rate_per_sender: load.rate,
            rates: Rates::new(measured.messages, rounds, rates, load.size),
            rdma_ops_per_message: measured.whole.map(|whole| whole.operations_per_message()),
            mean_transfer_bytes: measured.whole.and_then(|whole| whole.work.mean_transfer_bytes()),
            rnr_events: measured.rnr_events,
            receiver_processor_use: measured.receiver_processor_use(),
            sender_fairness: measured.fairness,
            registered_bytes: measured.registered_bytes,
            line_ns,
            machine: Machine::here(),
            verified: load.verify,
        }
    }
}

impl Line<'_> {
    fn title(&self, settings: &str) -> String {
        let many = match (self.senders, self.single_receiver) {
            (1, _) => String::new(),
            (n, true) => format!(", {n} senders to one queue"),
            (n, false) if self.single_sender => format!(", one thread to {n} receivers"),
            (n, false) => {
                let threads = u64::from(self.threads);
                let threads = counted_as(threads, "receiving thread", "receiving threads");
                format!(", {n} senders, {threads}")
            }
        };
        let srq = if self.srq == "off" { String::new() } else { format!(", SRQ ({})", self.srq) };
        let checked = if self.verified { "payloads checked" } else { "payloads not checked" };
        let rounds = counted_as(self.rates.rounds.into(), "round", "rounds");
        format!("{} on {}: {settings}{many}{srq}, {checked}, {rounds}", self.protocol, self.device)
    }
}
