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

use std::net::SocketAddr;

use base::outcome::{CommandResult, usage};
use base::{remark, say, signals};

use crate::measure::figures::{self, TakenAt};
use crate::measure::rounds::in_turn;
use crate::measure::{Crowd, LoadShape, MessageLoad, ResultLine};
use anyhow::Result;
use rdma_conn::device::Device;
use rdma_conn::send_recv::SharedConfig;

use crate::cli::{BenchArgs, CommonArgs, SenderRate};
use crate::protocol::{MeasuredProtocol, With};
use crate::session;
use rounds::{cases, config, sizes};

pub(crate) fn run(common: &CommonArgs, options: &BenchArgs) -> CommandResult {
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
    protocol.with(BenchTask { common, options, device: &device })
}

/// Measurement to run over any kind of connection.
struct BenchTask<'a> {
    common: &'a CommonArgs,
    options: &'a BenchArgs,
    device: &'a Device,
}

impl With for BenchTask<'_> {
    type Out = CommandResult;

    fn with<K: MeasuredProtocol>(self) -> CommandResult {
        let BenchTask { common, options, device } = self;
        check::<K>(common, options, device)?;
        match (options.ends.listen, &options.input, options.ends.connect) {
            (Some(address), _, _) => listen::listen::<K>(common, options, device, address),
            (None, Some(file), _) => input::run::<K>(common, options, device, file),
            (None, None, Some(address)) => self.lead_each::<K>(address),
            (None, None, None) => self.measure_in_turn::<K>(),
        }
    }
}

impl BenchTask<'_> {
    /// One size after the other, with the listener at `address`.
    fn lead_each<K: MeasuredProtocol>(&self, address: SocketAddr) -> CommandResult {
        let BenchTask { common, options, device } = *self;
        let (cases, rounds) = (cases::<K>(common, options), rounds_of(options));
        let report = report::report(common.json, TakenAt::Sender);
        session::lead_each(common.json, &labels(&cases), rounds, report, |at, round, part| {
            let (config, load) = &cases[at];
            let traffic = connect::traffic::<K>(options, config, load, None);
            let case = (options, device, config);
            let load = load.of_round(round, rounds);
            Ok(vec![connect::connect::<K>(case, &load, (part, &traffic), address)?])
        })
    }

    /// All sizes in turn, with both ends in this process. A signal prints the rounds that are
    /// whole; of a size that has none, a part of the first one, if any message has arrived.
    fn measure_in_turn<K: MeasuredProtocol>(&self) -> CommandResult {
        let BenchTask { common, options, .. } = *self;
        let mut cases = cases::<K>(common, options);
        let (labels, rounds) = (labels(&cases), rounds_of(options));
        let (done, ended) = in_turn(common.json, &labels, rounds, |at, round, done| {
            let so_far = report::text(common.json, done)?;
            match done[at].is_empty() {
                true => signals::exits_before_first_message(so_far),
                false => signals::exits_with(so_far),
            }
            let (config, load) = &mut cases[at];
            let line = self.measure_round::<K>(config, load, round, rounds)?;
            tracing::info!("a round is over");
            Ok(vec![line])
        });
        signals::settles();
        if options.rate == Some(SenderRate::Auto) && !common.json {
            for (label, rate) in labels.iter().zip(&cases).filter_map(|(l, c)| Some((l, c.1.rate?)))
            {
                remark!("{label}: {}", found_rate(rate));
            }
        }
        let text = report::text(common.json, &done)?;
        if !text.is_empty() {
            say!("{text}");
        }
        ended.map_or(Ok(()), Err)
    }

    /// One round of a size. Of `--rate auto`, the first one finds the rate, which the load then
    /// has; and the least one of all rounds at last.
    fn measure_round<K: MeasuredProtocol>(
        &self,
        config: &K::Settings,
        load: &mut MessageLoad,
        round: u32,
        rounds: u32,
    ) -> Result<ResultLine> {
        let BenchTask { options, device, .. } = *self;
        let shape = LoadShape::new(options);
        let mut part = load.of_round(round, rounds);
        let measured = if options.rate == Some(SenderRate::Auto) {
            signals::settles();
            let rate = match load.rate {
                Some(rate) => rate,
                None => rate::find::<K>(device, config, shape, load)?,
            };
            let (rate, measured) = rate::measure::<K>(device, config, shape, &part, rate)?;
            load.rate = Some(load.rate.map_or(rate, |least| least.min(rate)));
            part.rate = Some(rate);
            measured
        } else if let Some(crowd) = Crowd::asked(options) {
            K::crowd(device, config, crowd, &part)?
        } else {
            run::within_process::<K>(device, config, shape, &part)?
        };
        Ok(report::BenchCase::<K>::new(device, options, config, &part).line(&measured))
    }
}

fn labels<C>(cases: &[(C, MessageLoad)]) -> Vec<String> {
    cases.iter().map(|(_, load)| format!("{} B", load.size)).collect()
}

/// Rounds of each size.
fn rounds_of(options: &BenchArgs) -> u32 {
    MessageLoad::new(options, 0).end.rounds(options.rounds.asked())
}

/// Sentence with the rate that `--rate auto` found.
fn found_rate(rate: f64) -> String {
    format!("the highest rate that was found is {} messages/s of each sender", figures::rate(rate))
}

/// Whatever cannot be, in one line, before anything is made.
fn check<K: MeasuredProtocol>(
    common: &CommonArgs,
    options: &BenchArgs,
    device: &Device,
) -> CommandResult {
    let limit = device.context().port(1).map(|p| p.max_msg_bytes).unwrap_or(u32::MAX);
    for size in sizes(options) {
        let config = config::<K>(common, options, size);
        K::check(&options.connection, &config, size)?;
        K::check_peers(&config, LoadShape::new(options).peers())?;
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
    let shape = LoadShape::new(options);
    let alone = options.ends.listen.is_none() && options.ends.connect.is_none();
    if options.single_receiver && shape.senders == 1 && alone {
        return Err(usage("--single-receiver is about many senders: add --senders N"));
    }
    if shape.senders == 0 || shape.senders > LoadShape::MAX_SENDERS {
        let flag = if options.threads > 1 { "--threads" } else { "--senders" };
        let (n, most) = (shape.senders, LoadShape::MAX_SENDERS);
        return Err(usage(format!("{flag} {n}: it may be 1 to {most}")));
    }
    if options.rate == Some(SenderRate::Auto) && options.ends.connect.is_some() {
        return Err(usage("--rate auto needs both ends in this process"));
    }
    check_shared_buffers(options, shape.senders, K::KEPT_BUFFERS)
}

/// Each sender keeps `kept` buffers of a shared queue.
fn check_shared_buffers(options: &BenchArgs, senders: u32, kept: u32) -> CommandResult {
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
