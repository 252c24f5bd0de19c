//! What a newcomer sees: the three presets over a few sizes, in about 20 s.

use std::time::Duration;

use anyhow::{Context, Result};
use rdma_conn::device::Device;
use rdma_conn::send_recv::{Config, Preset, SendRecv};

use super::report::{Case, Report};
use super::rounds::{config, in_rounds};
use super::run::within_process;
use crate::cli::{Bench, Common};
use crate::measure::figures::{TakenAt, bytes, rate, size as shown};
use crate::measure::{EndOfLoad, Load, Measured, Shape};
use crate::outcome::Outcome;
use crate::progress;
use crate::settings::send_recv::PRESET;
use crate::table::Table;

const SIZES: [u32; 4] = [16, 512, 8192, 65_536];
/// Twelve measurements and two more, with set-up: about 20 s.
const EACH: Duration = Duration::from_millis(1300);

pub(crate) fn run(common: &Common, options: &Bench, device: &Device) -> Outcome {
    let bar = progress::bar((SIZES.len() * Preset::ALL.len()) as u64 + 1, common.json);
    let mut report = Report::new(common.json, TakenAt::Both);
    let mut table =
        Table::new(1, &["size", "sequential", "unbatched", "batched", "batched,\nbytes"]);
    for size in SIZES {
        let mut row = vec![shown(size.into())];
        let mut last = None;
        for preset in Preset::ALL {
            bar.set_message(format!("{} at {size} B", preset.name()));
            let options = with_preset(options, preset);
            let load = load(size, !options.no_verify);
            let measured = match measure(common, &options, device, &load) {
                Ok(measured) => measured,
                Err(ended) => {
                    bar.finish_and_clear();
                    if !common.json {
                        table.add_row(row);
                        say!("{table}");
                    }
                    return Err(ended);
                }
            };
            if common.json {
                let config = config::<SendRecv>(common, &options, size);
                report.add(Case::new::<SendRecv>(device, &options, &config, &load), &measured)?;
            }
            row.push(format!("{}/s", rate(measured.messages_per_s())));
            last = Some(measured);
            bar.inc(1);
        }
        row.extend(
            last.map(|m| format!("{}/s", bytes((m.messages_per_s() * f64::from(size)) as u64))),
        );
        table.add_row(row);
    }
    bar.set_message("the cost of checking payloads");
    let cost = cost_of_checking(common, options, device)?;
    bar.finish_and_clear();
    if !common.json {
        explain(device, &table.to_string(), &cost);
    }
    Ok(())
}

fn with_preset(options: &Bench, preset: Preset) -> Bench {
    let mut options = options.clone();
    options.connection.given.set(&PRESET, preset.name().into());
    options
}

fn load(size: u32, verify: bool) -> Load {
    Load { size, end: EndOfLoad::After(EACH), verify, rate: None, in_turn: false }
}

fn measure(common: &Common, options: &Bench, device: &Device, load: &Load) -> Result<Measured> {
    let config = config::<SendRecv>(common, options, load.size);
    let (measured, ended) = in_rounds(options, load, |load| {
        within_process::<SendRecv>(device, &config, Shape::ONE, load)
    });
    match (measured, ended) {
        (_, Some(ended)) => Err(ended),
        (measured, None) => measured.context("nothing was measured"),
    }
}

const TURNS: u32 = 3;

/// The same with and without checking, in nanoseconds a message: the best of some runs in
/// turns, for the machine has other things to do as well.
fn cost_of_checking(common: &Common, options: &Bench, device: &Device) -> Result<String> {
    let options = with_preset(options, Preset::Batched);
    let ns = |verify| {
        let load = Load { end: EndOfLoad::After(EACH / (2 * TURNS)), ..load(16, verify) };
        measure(common, &options, device, &load).map(|m| 1e9 / m.messages_per_s())
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

/// What the presets are, at the sizes that are measured: long messages have smaller windows.
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
mod tests {
    use super::*;

    #[test]
    fn the_legend_says_what_each_size_had() {
        let legend = legend();
        for (preset, line) in Preset::ALL.into_iter().zip(legend.lines()) {
            assert!(line.starts_with(preset.name()), "{legend}");
            for size in SIZES {
                let usual = Config::preset_for(preset, SIZES[0]);
                let config = Config::preset_for(preset, size);
                let named = line.contains(&format!("at {} {}", shown(size.into()), config.unacked));
                let differs = (config.unacked, config.batch) != (usual.unacked, usual.batch);
                assert_eq!(named, differs, "{size}: {legend}");
            }
        }
    }
}
