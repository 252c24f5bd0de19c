//! Results, as the JSON and the table have them.

use anyhow::Result;
use rdma_conn::device::Device;
use rdma_conn::send_recv::Preset;

use crate::cli::BenchArgs;
use crate::measure::figures::{TakenAt, counted_as, rates_table};
use crate::measure::{Crowd, LoadShape, MessageLoad, ReceiverThreads, ResultLine, RoundResult};
use crate::protocol::MeasuredProtocol;
use crate::results::{ResultReport, ResultStyle};
use crate::settings;

/// Configuration that was measured: device, connection, settings and load.
pub(crate) struct BenchCase<'a, K: MeasuredProtocol> {
    device: &'a Device,
    config: &'a K::Settings,
    load: &'a MessageLoad,
    crowd: Option<Crowd>,
    preset: Option<Preset>,
    shape: LoadShape,
}

/// A report without results. Each of the settings that there were has a table: they may depend on
/// the size.
pub(crate) fn report(json: bool, taken: TakenAt) -> ResultReport {
    let (empty, row) = (rates_table(taken), ResultLine::rates_row);
    ResultReport::new(
        json,
        ResultStyle { empty, title, row, note: |_| String::new(), is_one: false },
    )
}

/// All results with both ends in this process, as they are printed.
pub(crate) fn text(json: bool, done: &[Vec<Vec<ResultLine>>]) -> Result<String> {
    let lines = done.iter().flat_map(|rounds| ResultLine::merged(rounds));
    if json {
        let lines = lines.map(|line| serde_json::to_string(&line));
        return Ok(lines.collect::<Result<Vec<_>, _>>()?.join("\n"));
    }
    let mut report = report(json, TakenAt::Both);
    for line in lines {
        report.add(&line)?;
    }
    Ok(report.text())
}

impl<'a, K: MeasuredProtocol> BenchCase<'a, K> {
    /// Describes the measurement that this end asked for.
    pub(crate) fn new(
        device: &'a Device,
        options: &BenchArgs,
        config: &'a K::Settings,
        load: &'a MessageLoad,
    ) -> BenchCase<'a, K> {
        let preset = options.connection.given.preset();
        let (crowd, shape) = (Crowd::asked(options), LoadShape::new(options));
        BenchCase { device, config, load, crowd, preset, shape }
    }

    /// Takes over the preset and the shape that the connecting ends asked for.
    pub(crate) fn hosted(self, preset: Option<Preset>, shape: LoadShape) -> BenchCase<'a, K> {
        BenchCase { preset, shape, ..self }
    }

    /// The result of one round.
    pub(crate) fn line(&self, measured: &RoundResult) -> ResultLine {
        let BenchCase { device, config, load, crowd, preset, shape } = self;
        let (whole, registered) = (measured.whole, measured.registered_bytes);
        let many_to_one = shape.receiving != ReceiverThreads::ThreadEach;
        let is_single = shape.receiving == ReceiverThreads::SingleReceiver;
        let line = ResultLine::new(K::WORD, device.name(), "rc", load.size)
            .with("preset", preset.map(|preset| preset.name()))
            .with_settings(settings::describe(K::SETTINGS, config))
            .with("threads", if many_to_one { 1 } else { shape.senders })
            .with("senders", shape.senders)
            .with("single_receiver", is_single)
            .with("single_sender", load.in_turn.then_some(true))
            .with("srq", shape.srq.map_or("off", |srq| srq.name()))
            .with("rate_per_sender", load.rate)
            .with_rates(measured.messages, measured.messages_per_s())
            .with("rdma_ops_per_message", whole.map(|whole| whole.operations_per_message()))
            .with("mean_transfer_bytes", whole.and_then(|whole| whole.work.mean_transfer_bytes()))
            .with("rnr_events", measured.rnr_events)
            .with("receiver_processor_use", measured.receiver_processor_use())
            .with("sender_fairness", measured.fairness)
            .with("registered_bytes", Some(registered).filter(|bytes| *bytes > 0))
            .with("verified", load.verify)
            .with_words(&settings::title(K::SETTINGS, config));
        crowd.iter().fold(line, |line, crowd| crowd.describe(line))
    }
}

fn title(line: &ResultLine) -> String {
    let many = match (line.count("senders").unwrap_or(1), line.is_true("single_receiver")) {
        (1, _) => String::new(),
        (n, true) => format!(", {n} senders to one queue"),
        (n, false) if line.is_true("single_sender") => format!(", one thread to {n} receivers"),
        (n, false) => {
            let threads = line.count("threads").unwrap_or(1);
            let threads = counted_as(threads, "receiving thread", "receiving threads");
            format!(", {n} senders, {threads}")
        }
    };
    let srq = match line.text("srq") {
        "off" => String::new(),
        reposting => format!(", SRQ ({reposting})"),
    };
    let (protocol, device) = (line.text("protocol"), line.text("device"));
    let (settings, checked, rounds) = (&line.words, line.checked(), line.rounds());
    format!("{protocol} on {device}: {settings}{many}{srq}, {checked}, {rounds}")
}
