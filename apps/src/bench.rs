//! `rdma-conn bench`: throughput ("Send Receive", sections Bandwidth,
//! Multithreading and Single Receiver).

mod demonstration;
mod ends;
mod gather;
mod input;
mod load;
mod rate;
mod report;
mod run;

use rdma_conn::send_recv::{Config, Preset, SharedConfig};

use crate::args::{Bench, Common, Rate};
use crate::outcome::{Outcome, by_flag, usage};
use crate::progress;
use crate::session;
use load::Load;
pub(crate) use load::{End as EndOfLoad, Receiving, Shape};
use report::Report;
pub(crate) use report::{bytes, rate, right_aligned};
pub(crate) use run::HAS_COME;

pub(crate) fn run(common: &Common, options: &Bench) -> Outcome {
    if let Some(op) = options.raw.op {
        return crate::raw::bench(common, options, op);
    }
    let device = session::open_device(common, &options.ends)?;
    if options.is_demonstration() {
        return demonstration::run(common, options, &device);
    }
    check(common, options, &device)?;
    if let Some(address) = options.ends.listen {
        return ends::listen(common, options, &device, address);
    }
    if let Some(file) = &options.input {
        return input::run(common, options, &device, file);
    }
    let mut report = Report::new(common.json);
    let sizes = sizes(options);
    let bar = progress::bar(sizes.len() as u64, common.json);
    let (run, of) = (session::run_number(), sizes.len() as u32);
    for (at, size) in (0..).zip(sizes) {
        let config = config(common, options, size);
        let mut load = Load::new(options, size);
        bar.set_message(format!("{size} B"));
        let shape = Shape::new(options);
        let measured = match options.ends.connect {
            Some(address) => {
                let part = ends::Part { run, at, of };
                ends::connect(options, &device, &config, &load, part, address)?
            }
            None if options.rate == Some(Rate::Auto) => {
                let found = rate::find(&device, &config, shape, &load)?;
                let (rate, measured) = rate::measure(&device, &config, shape, &load, found)?;
                load.rate = Some(rate);
                if !common.json {
                    bar.suspend(|| eprintln!("{size} B: {}", found_rate(rate)));
                }
                measured
            }
            None => run::within_process(&device, &config, shape, &load)?,
        };
        report.add(report::Case::new(&device, options, &config, &load), &measured)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    report.finish();
    Ok(())
}

/// What `--rate auto` has come to.
fn found_rate(rate: f64) -> String {
    format!("the highest rate that was found is {} messages/s of each sender", report::rate(rate))
}

fn sizes(options: &Bench) -> Vec<u32> {
    if options.size.is_empty() { vec![16] } else { options.size.clone() }
}

/// Receive and send buffers of a large message are many bytes: without other wishes
/// the windows shrink so that they stay below this.
const BUFFER_BUDGET_BYTES: u64 = 128 << 20;

fn config(common: &Common, options: &Bench, size: u32) -> Config {
    let mut config = options.connection.config(common, Preset::Batched, size);
    // With two unacknowledged, there are five receive buffers.
    let has_room = u64::from(size) * 5 <= session::MOST_BUFFER_BYTES;
    let least = if has_room { 2 } else { 1 };
    let fits = (BUFFER_BUDGET_BYTES / u64::from(size.max(1)) / 3).max(least) as u32;
    if options.connection.unacked.is_none() && config.unacked > fits {
        config.unacked = fits;
        config.batch = config.batch.min(fits);
        if options.connection.recv_window.is_none() {
            config.recv_window = 2 * fits;
        }
    }
    config
}

/// Whatever cannot be, in one line, before anything is made.
fn check(common: &Common, options: &Bench, device: &rdma_conn::device::Device) -> Outcome {
    let limit = device.context().port(1).map(|p| p.max_msg_bytes).unwrap_or(u32::MAX);
    for size in sizes(options) {
        let config = config(common, options, size);
        config.validate().map_err(|e| by_flag(&e, &config))?;
        options.connection.check_pack(size)?;
        if size > limit {
            return Err(usage(format!(
                "--size {size} is over what {} sends in one message ({limit} bytes)",
                device.name()
            )));
        }
    }
    let shape = Shape::new(options);
    let alone = options.ends.listen.is_none() && options.ends.connect.is_none();
    if options.single_receiver && shape.senders == 1 && alone {
        return Err(usage("--single-receiver is about many senders: add --senders N"));
    }
    if shape.senders == 0 || shape.senders > Shape::MAX_SENDERS {
        return Err(usage(format!("1 to {} senders or threads", Shape::MAX_SENDERS)));
    }
    if options.rate == Some(Rate::Auto) && options.ends.connect.is_some() {
        return Err(usage("--rate auto needs both ends in this process"));
    }
    let window = config(common, options, sizes(options)[0]).recv_window + 1;
    match options.srq_buffers {
        Some(n) if n > SharedConfig::MAX_BUFFERS => Err(usage(format!(
            "--srq-buffers {n} is too many: {} at most",
            SharedConfig::MAX_BUFFERS
        ))),
        Some(n) if u64::from(n) < u64::from(window) * u64::from(shape.senders) => {
            Err(usage(format!(
                "--srq-buffers {n} is too few for {} senders with {window} each: {} or a smaller --recv-window",
                shape.senders,
                window * shape.senders
            )))
        }
        _ => Ok(()),
    }
}
