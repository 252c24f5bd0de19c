//! `rdma-conn bench`: throughput ("Send Receive", sections Bandwidth,
//! Multithreading and Single Receiver).

pub(crate) mod crowd;
mod demonstration;
mod ends;
mod gather;
mod input;
mod load;
mod rate;
mod report;
mod run;

use anyhow::Result;
use rdma_conn::device::Device;
use rdma_conn::send_recv::SharedConfig;

use crate::args::{Bench, Common, Rate};
use crate::outcome::{Outcome, usage};
use crate::progress;
use crate::protocol::{Kind, Purpose, With};
use crate::session;
pub(crate) use crowd::Crowd;
pub(crate) use load::{End as EndOfLoad, Load, Receiving, Shape};
use report::Report;
pub(crate) use report::{bytes, rate, right_aligned};
pub(crate) use run::{HAS_COME, Measured};

pub(crate) fn run(common: &Common, options: &Bench) -> Outcome {
    if let Some(op) = options.raw.op {
        options.connection.check_raw()?;
        return crate::raw::bench(common, options, op);
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
            (Some(address), _) => ends::listen::<K>(common, options, device, address),
            (None, Some(file)) => input::run::<K>(common, options, device, file),
            (None, None) => self.measure::<K>(),
        }
    }
}

impl Task<'_> {
    /// All sizes, one after the other.
    fn measure<K: Kind>(&self) -> Outcome {
        let Task { common, options, device } = *self;
        let mut report = Report::new(common.json);
        let sizes = sizes(options);
        let bar = progress::bar(sizes.len() as u64, common.json);
        let (run, of) = (session::run_number(), sizes.len() as u32);
        for (at, size) in (0..).zip(sizes) {
            bar.set_message(format!("{size} B"));
            let config = config::<K>(common, options, size);
            let mut load = Load::new(options, size);
            let measured = match options.ends.connect {
                Some(address) => {
                    let part = ends::Part { run, at, of };
                    ends::connect::<K>(options, device, &config, &load, part, address)?
                }
                None if options.rate == Some(Rate::Auto) => {
                    let measured = self.measure_at_found_rate::<K>(&config, &mut load)?;
                    if let Some(rate) = load.rate.filter(|_| !common.json) {
                        bar.suspend(|| remark!("{size} B: {}", found_rate(rate)));
                    }
                    measured
                }
                None => match Crowd::asked(options) {
                    Some(crowd) => K::crowd(device, &config, crowd, &load)?,
                    None => run::within_process::<K>(device, &config, Shape::new(options), &load)?,
                },
            };
            let case = report::Case::new::<K>(device, options, &config, &load);
            report.add(case, &measured)?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        report.finish();
        Ok(())
    }

    /// At the highest rate without RNR events, which the load then has.
    fn measure_at_found_rate<K: Kind>(
        &self,
        config: &K::Config,
        load: &mut Load,
    ) -> Result<Measured> {
        let shape = Shape::new(self.options);
        let found = rate::find::<K>(self.device, config, shape, load)?;
        let (rate, measured) = rate::measure::<K>(self.device, config, shape, load, found)?;
        load.rate = Some(rate);
        Ok(measured)
    }
}

/// What `--rate auto` has come to.
fn found_rate(rate: f64) -> String {
    format!("the highest rate that was found is {} messages/s of each sender", report::rate(rate))
}

fn sizes(options: &Bench) -> Vec<u32> {
    if options.size.is_empty() { vec![16] } else { options.size.clone() }
}

fn config<K: Kind>(common: &Common, options: &Bench, size: u32) -> K::Config {
    K::config(common, &options.connection, Purpose::Throughput, size)
}

/// Whatever cannot be, in one line, before anything is made.
fn check<K: Kind>(common: &Common, options: &Bench, device: &Device) -> Outcome {
    let limit = device.context().port(1).map(|p| p.max_msg_bytes).unwrap_or(u32::MAX);
    for size in sizes(options) {
        let config = config::<K>(common, options, size);
        K::check(&options.connection, &config, size)?;
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
        return Err(usage(format!("1 to {} senders or threads", Shape::MAX_SENDERS)));
    }
    if options.rate == Some(Rate::Auto) && options.ends.connect.is_some() {
        return Err(usage("--rate auto needs both ends in this process"));
    }
    let window = K::shared_window(&config::<K>(common, options, sizes(options)[0]));
    check_shared_buffers(options, shape.senders, window)
}

/// Of a shared queue every sender's `window` has to be a part.
fn check_shared_buffers(options: &Bench, senders: u32, window: u32) -> Outcome {
    match options.srq_buffers {
        Some(n) if n > SharedConfig::MAX_BUFFERS => Err(usage(format!(
            "--srq-buffers {n} is too many: {} at most",
            SharedConfig::MAX_BUFFERS
        ))),
        Some(n) if u64::from(n) < u64::from(window) * u64::from(senders) => Err(usage(format!(
            "--srq-buffers {n} is too few for {senders} senders with {window} each: {} or a smaller --recv-window",
            window * senders
        ))),
        _ => Ok(()),
    }
}
