//! `rdma-conn bench`: throughput ("Send Receive", sections Bandwidth,
//! Multithreading and Single Receiver).

mod connect;
mod demonstration;
mod gather;
mod input;
mod listen;
mod rate;
mod report;
mod rounds;
mod run;

use crate::measure::figures::{self, TakenAt};
use crate::measure::{Crowd, Load, Measured, Shape};
use rdma_conn::device::Device;
use rdma_conn::send_recv::SharedConfig;

use crate::cli::{Bench, Common, Rate};
use crate::outcome::{Outcome, usage};
use crate::protocol::{Kind, With};
use crate::{progress, session, signals};
use report::Report;
use rounds::{SoFar, config, in_rounds, sizes};

pub(crate) fn run(common: &Common, options: &Bench) -> Outcome {
    crate::measure::rounds::check(options.rounds.rounds, "--messages", options.messages)?;
    if let Some(op) = options.raw.op {
        return crate::cmd::raw::bench(common, options, op);
    }
    let protocol = options.connection.protocol();
    protocol.check_flags(&options.given())?;
    let device = session::open_device(common, &options.ends)?;
    if options.is_demonstration() {
        return demonstration::run(common, options, &device);
    }
    protocol.with(Task { common, options, device: &device })
}

/// What is to be measured, with whichever connection.
struct Task<'a> {
    common: &'a Common,
    options: &'a Bench,
    device: &'a Device,
}

impl With for Task<'_> {
    type Out = Outcome;

    fn with<K: Kind>(self) -> Outcome {
        let Task { common, options, device } = self;
        check::<K>(common, options, device)?;
        match (options.ends.listen, &options.input) {
            (Some(address), _) => listen::listen::<K>(common, options, device, address),
            (None, Some(file)) => input::run::<K>(common, options, device, file),
            (None, None) => self.measure::<K>(),
        }
    }
}

impl Task<'_> {
    /// All sizes, one after the other.
    fn measure<K: Kind>(&self) -> Outcome {
        let Task { common, options, device } = *self;
        let taken = options.ends.connect.map_or(TakenAt::Both, |_| TakenAt::Sender);
        let mut report = Report::new(common.json, taken);
        let sizes: Vec<_> = (0..).zip(sizes(options)).collect();
        let (run, of) = (session::run_number(), sizes.len() as u32);
        let label = |(_, size): &(u32, u32)| format!("{size} B");
        let ran = progress::each(common.json, sizes, label, |(at, size), bar| {
            let config = config::<K>(common, options, size);
            let mut load = Load::new(options, size);
            let (measured, ended) = match options.ends.connect {
                Some(address) => {
                    let part = session::Part { run, at, of };
                    connect::connect::<K>(options, device, &config, &load, part, address)
                }
                None if options.rate == Some(Rate::Auto) => {
                    let measured = self.measure_at_found_rate::<K>(&config, &mut load);
                    if let Some(rate) = load.rate.filter(|_| !common.json) {
                        bar.suspend(|| remark!("{size} B: {}", found_rate(rate)));
                    }
                    measured
                }
                None => self.measure_within_process::<K>(&config, &load, &report),
            };
            signals::settles();
            let case = report::Case::new::<K>(device, options, &config, &load);
            measured.iter().try_for_each(|measured| report.add(case.clone(), measured))?;
            Ok(ended)
        });
        report.results.finish();
        ran
    }

    /// With both ends in this process: a signal prints the rounds that are whole, or a part of the
    /// first one, if any message has arrived.
    fn measure_within_process<K: Kind>(
        &self,
        config: &K::Settings,
        load: &Load,
        report: &Report,
    ) -> SoFar {
        let Task { options, device, .. } = *self;
        let case = report::Case::new::<K>(device, options, config, load);
        let mut whole: Vec<Measured> = Vec::new();
        in_rounds(options, load, |load| {
            match Measured::of_rounds(&whole) {
                Ok(measured) => signals::exits_with(report.with(case.clone(), &measured)?),
                Err(_) => signals::exits_before_first_message(report.results.text()),
            }
            let measured = match Crowd::asked(options) {
                Some(crowd) => K::crowd(device, config, crowd, load),
                None => run::within_process::<K>(device, config, Shape::new(options), load),
            }?;
            whole.push(measured);
            tracing::info!("a round is over");
            Ok(measured)
        })
    }

    /// At the highest rate without RNR events, which the load then has.
    fn measure_at_found_rate<K: Kind>(&self, config: &K::Settings, load: &mut Load) -> SoFar {
        let shape = Shape::new(self.options);
        let found = match rate::find::<K>(self.device, config, shape, load) {
            Ok(found) => found,
            Err(e) => return (None, Some(e)),
        };
        let mut lowest = found;
        let measured = in_rounds(self.options, load, |load| {
            let (rate, measured) = rate::measure::<K>(self.device, config, shape, load, lowest)?;
            lowest = lowest.min(rate);
            Ok(measured)
        });
        load.rate = Some(lowest);
        measured
    }
}

/// What `--rate auto` has come to.
fn found_rate(rate: f64) -> String {
    format!("the highest rate that was found is {} messages/s of each sender", figures::rate(rate))
}

/// Whatever cannot be, in one line, before anything is made.
fn check<K: Kind>(common: &Common, options: &Bench, device: &Device) -> Outcome {
    let limit = device.context().port(1).map(|p| p.max_msg_bytes).unwrap_or(u32::MAX);
    for size in sizes(options) {
        let config = config::<K>(common, options, size);
        K::check(&options.connection, &config, size)?;
        K::check_peers(&config, Shape::new(options).peers())?;
        if size > limit {
            return Err(usage(format!(
                "--size {size} is over what {} sends in one message ({limit} bytes)",
                device.name()
            )));
        }
    }
    if let Some(crowd) = Crowd::asked(options) {
        crowd.check(options)?;
    }
    let shape = Shape::new(options);
    let alone = options.ends.listen.is_none() && options.ends.connect.is_none();
    if options.single_receiver && shape.senders == 1 && alone {
        return Err(usage("--single-receiver is about many senders: add --senders N"));
    }
    if shape.senders == 0 || shape.senders > Shape::MAX_SENDERS {
        let flag = if options.threads > 1 { "--threads" } else { "--senders" };
        let (n, most) = (shape.senders, Shape::MAX_SENDERS);
        return Err(usage(format!("{flag} {n}: it may be 1 to {most}")));
    }
    if options.rate == Some(Rate::Auto) && options.ends.connect.is_some() {
        return Err(usage("--rate auto needs both ends in this process"));
    }
    check_shared_buffers(options, shape.senders, K::KEPT_BUFFERS)
}

/// Each sender keeps `kept` buffers of a shared queue.
fn check_shared_buffers(options: &Bench, senders: u32, kept: u32) -> Outcome {
    match options.srq_buffers {
        Some(n) if n > SharedConfig::MAX_BUFFERS => Err(usage(format!(
            "--srq-buffers {n} is too many: {} at most",
            SharedConfig::MAX_BUFFERS
        ))),
        Some(n) if n / kept.max(1) < senders => Err(usage(format!(
            "--srq-buffers {n} is too few for {senders} senders, which keep {kept} each: at least {}",
            kept * senders
        ))),
        _ => Ok(()),
    }
}
