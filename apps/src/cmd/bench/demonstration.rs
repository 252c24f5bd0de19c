//! Demonstration for newcomers: the three presets over a few sizes, in about 20 s.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use base::outcome::CommandResult;
use base::say;
use base::table::ResultTable;
use rdma_conn::device::Device;
use rdma_conn::send_recv::{Config, Preset, SendRecv};

use super::report::{BenchCase, report};
use super::rounds::config;
use super::run::within_process;
use crate::cli::{BenchArgs, CommonArgs};
use crate::measure::figures::{TakenAt, bytes, rate, size as shown};
use crate::measure::line::{ProcessorDistance, line_ns};
use crate::measure::rounds::{self, in_turn};
use crate::measure::{EndOfLoad, LoadShape, MessageLoad, ResultLine, Spread};

const SIZES: [u32; 4] = [16, 512, 8192, 65_536];
/// Twelve measurements and two more, with set-up: about 20 s.
const EACH: Duration = Duration::from_millis(1300);
/// Rounds of each, which go over all in turn: what disturbs the machine for a while disturbs no
/// case alone.
const ROUNDS: u32 = 5;
/// Rounds that lie further apart, as a part of their median, are marked.
const APART: f64 = 1.0 / 3.0;

/// A round of a case, and how far apart the processors were before and after it.
#[derive(Clone)]
struct Sample {
    line: ResultLine,
    line_ns: [Option<f64>; 2],
}

impl Sample {
    /// The same before and after.
    fn distance(&self) -> Option<ProcessorDistance> {
        let [before, after] = self.line_ns.map(|ns| ns.map(ProcessorDistance::from_line_ns));
        before.filter(|_| before == after)
    }
}

pub(crate) fn run(common: &CommonArgs, options: &BenchArgs, device: &Device) -> CommandResult {
    let cases: Vec<(u32, Preset)> =
        SIZES.iter().flat_map(|size| Preset::ALL.map(|preset| (*size, preset))).collect();
    let labels: Vec<String> =
        cases.iter().map(|(size, preset)| format!("{} at {size} B", preset.name())).collect();
    let rounds = options.rounds.rounds.unwrap_or(ROUNDS);
    let (done, ended) = in_turn(common.json, &labels, rounds, |at, round, _| {
        let (size, preset) = cases[at];
        let options = with_preset(options, preset);
        let config = config::<SendRecv>(common, &options, size);
        let load = load(size, !options.no_verify).of_round(round, rounds);
        let before = line_ns();
        let measured = within_process::<SendRecv>(device, &config, LoadShape::ONE, &load)?;
        let line = BenchCase::<SendRecv>::new(device, &options, &config, &load).line(&measured);
        Ok(Sample { line, line_ns: [before, line_ns()] })
    });
    let rows = Rows::new(&done);
    if common.json {
        let mut report = report(true, TakenAt::Both);
        for line in rows.measured.iter().flatten() {
            report.add(&line.clone().with("line_ns", rows.line_ns))?;
        }
        return ended.map_or(Ok(()), Err);
    }
    let (table, notes) = rows.table();
    if let Some(ended) = ended {
        if rows.measured.iter().any(Option::is_some) {
            say!("{table}{notes}");
        }
        return Err(ended);
    }
    let cost = cost_of_checking(common, options, device)?;
    explain(device, &format!("{table}{notes}"), &cost);
    Ok(())
}

/// The result of the rounds in which the processors were as far apart as in most of them.
struct Rows {
    /// A result for each case; `None` where it has none.
    measured: Vec<Option<ResultLine>>,
    /// The median of the rounds that count.
    line_ns: Option<f64>,
    /// Rounds that do not count.
    left_out: usize,
    /// All rounds of all cases.
    all: usize,
}

impl Rows {
    fn new(done: &[Vec<Sample>]) -> Rows {
        let samples = || done.iter().flatten();
        let of = |distance| samples().filter(|sample| sample.distance() == Some(distance)).count();
        let (near, far) = (of(ProcessorDistance::Near), of(ProcessorDistance::Far));
        let most = if near >= far { ProcessorDistance::Near } else { ProcessorDistance::Far };
        // Where nothing is known, all rounds count.
        let counts = |sample: &&Sample| near + far == 0 || sample.distance() == Some(most);
        let measured = done.iter().map(|samples| {
            let kept = samples.iter().filter(counts).map(|sample| sample.line.clone());
            let kept: Vec<ResultLine> = kept.collect();
            (!kept.is_empty()).then(|| ResultLine::of_rounds(&kept))
        });
        let lines: Vec<f64> =
            samples().filter(counts).flat_map(|sample| sample.line_ns).flatten().collect();
        Rows {
            measured: measured.collect(),
            line_ns: (!lines.is_empty()).then(|| Spread::of(lines).median),
            left_out: samples().filter(|sample| !counts(sample)).count(),
            all: samples().count(),
        }
    }

    /// The table for people, and what is to be said of it.
    fn table(&self) -> (ResultTable, String) {
        let mut table =
            ResultTable::new(1, &["size", "sequential", "unbatched", "batched", "batched,\nbytes"]);
        let mut notes = String::new();
        if let Some(ns) = self.line_ns {
            let name = ProcessorDistance::from_line_ns(ns).name();
            let _ = write!(
                notes,
                "\nA line of memory goes from one processor to the other in {ns:.0} ns ({name})."
            );
        }
        if self.left_out > 0 {
            let (left_out, all) = (self.left_out, self.all);
            let _ = write!(
                notes,
                " {left_out} of {all} rounds do not count: the host had moved a processor, so that the distance was another."
            );
        }
        for (size, row) in SIZES.iter().zip(self.measured.chunks(Preset::ALL.len())) {
            let marks = marks(*size, row, self.line_ns);
            let mut cells = vec![match marks.is_empty() {
                true => shown((*size).into()),
                false => format!("{} *", shown((*size).into())),
            }];
            cells.extend(row.iter().map(|line| match line {
                None => String::new(),
                Some(line) => format!("{}/s", rate(line.figure("messages_per_s"))),
            }));
            cells.extend(
                row.last()
                    .and_then(Option::as_ref)
                    .map(|line| format!("{}/s", bytes(line.figure("bytes_per_s") as u64))),
            );
            table.add_row(cells);
            notes.extend(marks);
        }
        (table, notes)
    }
}

/// Reasons why a row is not to be taken at its word.
fn marks(size: u32, row: &[Option<ResultLine>], line_ns: Option<f64>) -> Vec<String> {
    let size = shown(size.into());
    let mut marks = Vec::new();
    let spreads = Preset::ALL.iter().zip(row).filter_map(|(preset, line)| {
        let per_s = |end: &str| Some(line.as_ref()?.figure(&format!("messages_per_s{end}")));
        let (median, min, max) = (per_s("")?, per_s("_min")?, per_s("_max")?);
        let is_wide = max - min > median * APART;
        is_wide.then(|| format!("{} {} to {}/s", preset.name(), rate(min), rate(max)))
    });
    let spreads: Vec<String> = spreads.collect();
    if !spreads.is_empty() {
        marks.push(format!(
            "\n* {size}: its rounds lie far apart, as where something else runs on this machine: {}.",
            spreads.join(", ")
        ));
    }
    let of = |wanted| {
        let at = Preset::ALL.iter().position(|preset| *preset == wanted)?;
        row.get(at)?.as_ref().map(|line| line.figure("messages_per_s"))
    };
    if let (Some(sequential), Some(batched)) = (of(Preset::Sequential), of(Preset::Batched))
        && batched < sequential
    {
        let apart = line_ns.map_or_else(String::new, |ns| format!(", over {ns:.0} ns each line"));
        marks.push(format!(
            "\n* {size}: batched is behind sequential: its one buffer stays in a cache, and those of batched are read from the \
             other processor{apart}."
        ));
    }
    marks
}

fn with_preset(options: &BenchArgs, preset: Preset) -> BenchArgs {
    let mut options = options.clone();
    options.connection.given.preset = Some(preset.name().to_owned());
    options
}

fn load(size: u32, verify: bool) -> MessageLoad {
    MessageLoad { size, end: EndOfLoad::After(EACH), verify, rate: None, in_turn: false }
}

/// Messages a second.
fn measure(
    common: &CommonArgs,
    options: &BenchArgs,
    device: &Device,
    load: &MessageLoad,
) -> Result<f64> {
    let config = config::<SendRecv>(common, options, load.size);
    let rounds = options.rounds.asked();
    let (done, ended) = rounds::each(rounds, |round| {
        let load = load.of_round(round, rounds);
        let measured = within_process::<SendRecv>(device, &config, LoadShape::ONE, &load)?;
        Ok(measured.messages_per_s())
    });
    ended.map_or(Ok(Spread::of(done).median), Err)
}

const TURNS: u32 = 3;

/// The same with and without checking, in nanoseconds a message: the best of some runs in
/// turns, for the machine has other things to do as well.
fn cost_of_checking(common: &CommonArgs, options: &BenchArgs, device: &Device) -> Result<String> {
    let options = with_preset(options, Preset::Batched);
    let ns = |verify| {
        let load = MessageLoad { end: EndOfLoad::After(EACH / (2 * TURNS)), ..load(16, verify) };
        measure(common, &options, device, &load).map(|per_s| 1e9 / per_s)
    };
    let (mut with, mut without) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..TURNS {
        (with, without) = (with.min(ns(true)?), without.min(ns(false)?));
    }
    Ok(format!("{with:.0} ns a message with it, {without:.0} ns without (16 B, batched)"))
}

fn explain(device: &Device, table: &str, cost: &str) {
    say!("Send/Receive between two threads over {}, messages per second:", device.name());
    say!("{table}");
    say!(
        "{}\n\
         More short messages on their way hide the time that one of them takes (long ones then need\n\
         more memory than the caches have); one doorbell for several saves the cost of ringing. Credits keep the receiver ready, so nothing is ever retried.\n\
         Every payload was checked (--no-verify does not): {cost}.",
        legend()
    );
    say!("Next: rdma-conn pingpong, rdma-conn bench --help, rdma-conn devices");
}

/// Describes the presets at the sizes that are measured: long messages have smaller windows.
fn legend() -> String {
    let of = |preset, size| {
        let Config { unacked, batch, .. } = Config::preset_for(preset, size);
        (unacked, batch)
    };
    let words = |(unacked, batch): (u32, u32)| match (unacked, batch) {
        (1, _) => "1 message unacknowledged".to_owned(),
        (unacked, 1) => format!("up to {unacked}"),
        (unacked, batch) => format!("up to {unacked}, {batch} to a doorbell"),
    };
    let line = |preset: Preset| {
        let usual = of(preset, SIZES[0]);
        let others = SIZES.into_iter().filter(|size| of(preset, *size) != usual);
        let others = others.map(|size| {
            let (unacked, batch) = of(preset, size);
            let doorbell = if usual.1 == 1 { String::new() } else { format!(" and {batch}") };
            format!("at {} {unacked}{doorbell}", shown(size.into()))
        });
        let others = others.collect::<Vec<_>>().join(", ");
        let others = if others.is_empty() { others } else { format!(" ({others})") };
        format!("{}: {}{others}.", preset.name(), words(usual))
    };
    Preset::ALL.map(line).join("\n")
}

#[cfg(test)]
mod tests;
