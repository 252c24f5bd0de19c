//! What a newcomer sees: the three presets over a few sizes, in about 20 s.

use std::time::Duration;

use anyhow::Result;
use rdma_conn::device::Device;
use rdma_conn::send_recv::{Preset, SendRecv};

use super::config;
use super::load::{End, Load, Shape};
use super::report::{Case, Report, bytes, rate, right_aligned};
use super::run::{Measured, within_process};
use crate::args::{Bench, Common};
use crate::outcome::Outcome;
use crate::progress;

const SIZES: [u32; 4] = [16, 512, 8192, 65_536];
/// Twelve measurements and two more, with set-up: about 20 s.
const EACH: Duration = Duration::from_millis(1300);

pub(crate) fn run(common: &Common, options: &Bench, device: &Device) -> Outcome {
    let bar = progress::bar((SIZES.len() * Preset::ALL.len()) as u64 + 1, common.json);
    let mut report = Report::new(common.json);
    let mut table =
        right_aligned(&["size", "sequential", "unbatched", "batched", "batched, bytes"]);
    for size in SIZES {
        let mut row = vec![bytes(size.into())];
        let mut last = None;
        for preset in Preset::ALL {
            bar.set_message(format!("{} at {size} B", preset.name()));
            let options = with_preset(options, preset);
            let load = load(size, !options.no_verify);
            let measured = measure(common, &options, device, &load)?;
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
    options.connection.preset = Some(preset);
    options
}

fn load(size: u32, verify: bool) -> Load {
    Load { size, end: End::After(EACH), verify, rate: None }
}

fn measure(common: &Common, options: &Bench, device: &Device, load: &Load) -> Result<Measured> {
    let config = config::<SendRecv>(common, options, load.size);
    within_process::<SendRecv>(device, &config, Shape::ONE, load)
}

const TURNS: u32 = 3;

/// The same with and without checking, in nanoseconds a message: the best of some runs in
/// turns, for the machine has other things to do as well.
fn cost_of_checking(common: &Common, options: &Bench, device: &Device) -> Result<String> {
    let options = with_preset(options, Preset::Batched);
    let ns = |verify| {
        let load = Load { end: End::After(EACH / (2 * TURNS)), ..load(16, verify) };
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
        "sequential: 1 message unacknowledged. unbatched: up to 64. batched: up to 256, 8 to a doorbell.\n\
         More short messages on their way hide the time that one of them takes (long ones then need\n\
         more memory than the caches have); one doorbell for several saves the cost of ringing. Credits keep the receiver ready, so nothing is ever retried.\n\
         Every payload was checked (--no-verify does not): {cost}."
    );
    say!("Next: rdma-conn pingpong, rdma-conn bench --help, rdma-conn devices");
}
