//! The request of a command line, the plans that it makes, and the refusal of what is impossible.

use std::net::SocketAddr;

use anyhow::Result;
use base::outcome::{CommandError, CommandResult, as_usage, usage};
use rdma_conn::device::{Device, SOFT, set_network_faults};
use rdma_conn::verbs_safe::{CqConfig, QueuePairConfig};

use super::plan::{QUEUES, RawPlan, RawTask};
use crate::cli::{
    BenchArgs, CommonArgs, ConnectionArgs, EndsArgs, Means, PingpongArgs, RawArgs, RawOp,
    RawTransport, SeededFaults, WaitFlag,
};
use crate::measure::EndOfLoad;
use crate::settings::{Flag, number, switch};
use crate::{session, settings};

/// Measurements that the command line asks for.
pub(super) struct MeasurementRequest<'a> {
    pub(super) task: RawTask,
    pub(super) op: RawOp,
    pub(super) common: &'a CommonArgs,
    pub(super) raw: &'a RawArgs,
    pub(super) connection: &'a ConnectionArgs,
    pub(super) ends: &'a EndsArgs,
    /// Sizes that were asked for; empty if the command chooses them.
    pub(super) sizes: &'a [u32],
    /// Sizes that the command chooses then: over datagrams, those of them that fit into the MTU.
    pub(super) usual_sizes: &'static [u32],
    pub(super) srq: bool,
    pub(super) verify: bool,
    /// End of the measured messages or round trips.
    pub(super) until: EndOfLoad,
    /// As many as were asked for, and as there are.
    pub(super) rounds_asked: Option<u32>,
    pub(super) rounds: u32,
}

/// The verb; flags that mean nothing without a connection are refused. Plain UDP has no queues
/// either, and is most like SEND.
fn verb(means: Means, connection: &ConnectionArgs, raw: &RawArgs) -> Result<RawOp> {
    match means {
        Means::Verb(op) => {
            let known: Vec<&str> = QUEUES.iter().map(|setting| setting.flag).collect();
            connection.check_raw(&known)?;
            Ok(op)
        }
        Means::Udp => {
            connection.check_raw(&[])?;
            let queues = raw.qps.is_some() || raw.peers.is_some();
            let queues = queues || raw.srq_classes || raw.polling_threads;
            let datagrams = raw.transport != RawTransport::Rc || raw.reliable;
            if queues || datagrams || raw.faults.is_some() {
                return Err(usage(
                    "--op udp has no queue pairs: leave --transport, --qps, --peers, --faults, \
                     --reliable, --srq-classes and --polling-threads out",
                ));
            }
            Ok(RawOp::Send)
        }
    }
}

pub(super) fn pingpong_request<'a>(
    common: &'a CommonArgs,
    options: &'a PingpongArgs,
    means: Means,
) -> Result<MeasurementRequest<'a>> {
    let op = verb(means, &options.connection, &options.raw)?;
    let until = options.end();
    Ok(MeasurementRequest {
        task: RawTask::Pingpong,
        op,
        common,
        raw: &options.raw,
        connection: &options.connection,
        ends: &options.ends,
        sizes: &options.size,
        usual_sizes: PingpongArgs::SIZES,
        srq: options.srq,
        verify: !options.no_verify,
        until,
        rounds_asked: options.rounds.rounds,
        rounds: until.rounds(options.rounds.asked()),
    })
}

pub(super) fn bench_request<'a>(
    common: &'a CommonArgs,
    options: &'a BenchArgs,
    means: Means,
) -> Result<MeasurementRequest<'a>> {
    let op = verb(means, &options.connection, &options.raw)?;
    let until = EndOfLoad::asked(options).unwrap_or(EndOfLoad::After(BenchArgs::SECONDS));
    let foreign = options.threads > 1
        || options.senders > 1
        || options.single_receiver
        || options.single_sender
        || options.rate.is_some()
        || options.input.is_some()
        || options.srq_buffers.is_some();
    if foreign {
        return Err(usage(
            "--threads, --senders, --single-receiver, --single-sender, --rate, --input and \
             --srq-buffers are about connections: with --op there are --qps and --recv-depth",
        ));
    }
    Ok(MeasurementRequest {
        task: RawTask::Bench,
        op,
        common,
        raw: &options.raw,
        connection: &options.connection,
        ends: &options.ends,
        sizes: &options.size,
        usual_sizes: &[16],
        srq: options.srq.is_some(),
        verify: !options.no_verify,
        until,
        rounds_asked: options.rounds.rounds,
        rounds: until.rounds(options.rounds.asked()),
    })
}

impl MeasurementRequest<'_> {
    /// The end of a round.
    pub(super) fn until_round(&self, round: u32) -> EndOfLoad {
        self.until.of_round(round, self.rounds)
    }

    /// The network of soft0, if it is to have faults.
    pub(super) fn let_the_network_fail(&self, device: &Device) -> CommandResult {
        let Some(SeededFaults { network, seed }) = self.raw.faults else { return Ok(()) };
        if device.name() != SOFT || self.raw.transport == RawTransport::Rc {
            return Err(usage("--faults are of soft0, with --transport uc or ud"));
        }
        set_network_faults(seed, network);
        Ok(())
    }

    /// One plan for each size, of its first round, and the sizes that cannot share a line.
    pub(super) fn plans(&self, device: &Device) -> Result<Vec<RawPlan>> {
        if self.connection.wait == WaitFlag::Block {
            return Err(usage("--op polls: it waits by --wait spin, or gives way with adaptive"));
        }
        match (self.raw.transport, self.raw.peers, self.raw.qps) {
            (RawTransport::Ud, _, Some(_)) => {
                return Err(usage("--transport ud has --peers, all served by one queue pair"));
            }
            (RawTransport::Ud, ..) | (_, None, _) => {}
            _ => return Err(usage("--peers is for --transport ud; others have --qps")),
        }
        let is_reliable = self.raw.transport == RawTransport::Rc;
        if self.raw.polling_threads && !(self.polls_memory() && is_reliable) {
            return Err(usage("--polling-threads is for pingpong --op write with --transport rc"));
        }
        let assumed = self.in_order_assumed(device)?;
        let port = device.context().port(1);
        let limit = port.as_ref().map_or(u32::MAX, |port| port.max_msg_bytes);
        let mtu = port.as_ref().map_or(u32::MAX, |port| port.active_mtu.bytes());
        let sizes = self.sizes(mtu)?;
        let of = sizes.len() as u32 * self.rounds;
        let plan = |(nth, (size, large)): (u32, (u32, Option<u32>))| {
            let largest = large.unwrap_or(size);
            let new =
                RawPlan::new(self.task, self.op, self.raw, self.connection, largest, self.srq);
            let assumed_in_order = assumed;
            let (rounds, datagram) = (self.rounds, self.raw.reliable.then_some(mtu));
            let at = nth * rounds;
            let plan = RawPlan { size, large, assumed_in_order, datagram, at, of, rounds, ..new };
            let plan = RawPlan { verify: self.verify && plan.can_verify(), ..plan };
            plan.check().map_err(as_usage)?;
            if self.raw.transport == RawTransport::Ud && plan.slot_bytes() > mtu {
                return Err(usage(format!(
                    "--size {largest} is over the MTU of {}, {mtu} bytes, and a datagram has one \
                     at most: use --transport rc or uc, or --reliable",
                    device.name()
                )));
            }
            if plan.slot_bytes() > limit {
                return Err(usage(format!(
                    "--size {largest} is over what {} sends in one message ({limit} bytes)",
                    device.name()
                )));
            }
            Ok(plan)
        };
        (0..).zip(sizes).map(plan).collect()
    }

    /// The size of each measurement, and its second one where there are two classes.
    fn sizes(&self, mtu: u32) -> Result<Vec<(u32, Option<u32>)>> {
        let is_datagram = self.raw.transport == RawTransport::Ud && !self.raw.reliable;
        let one = |size: &u32| (*size, None);
        match (self.raw.srq_classes, self.sizes) {
            (true, [small, large]) if small < large => Ok(vec![(*small, Some(*large))]),
            // The connecting end tells them.
            (true, []) if self.ends.listen.is_some() => Ok(Vec::new()),
            (true, _) => Err(usage("--srq-classes takes two sizes: --size SMALL,LARGE")),
            (false, []) if is_datagram => {
                Ok(self.usual_sizes.iter().filter(|size| **size <= mtu).map(one).collect())
            }
            (false, []) => Ok(self.usual_sizes.iter().map(one).collect()),
            (false, sizes) => Ok(sizes.iter().map(one).collect()),
        }
    }

    /// Reports whether messages are found by polling memory.
    fn polls_memory(&self) -> bool {
        self.op == RawOp::Write && self.task == RawTask::Pingpong
    }

    /// Reports whether memory is to be polled on a device that does not promise to deliver the
    /// bytes of a write in order. Without `--assume-in-order` this is an error, except for a
    /// listener.
    fn in_order_assumed(&self, device: &Device) -> Result<bool> {
        if !self.polls_memory() || delivers_in_order(device)? {
            return Ok(false);
        }
        if !self.raw.assume_in_order && self.ends.listen.is_none() {
            return Err(usage(format!(
                "{} does not promise to deliver the bytes of a write in order, which polling \
                 memory takes: use --op write-imm, or --assume-in-order",
                device.name()
            )));
        }
        Ok(true)
    }

    /// Adds advice to the error of the end at `address`, if that did not let this end join it.
    pub(super) fn explain(&self, error: CommandError, address: SocketAddr) -> CommandError {
        match error.downcast() {
            Ok(error) => {
                let op = self.op.protocol().trim_start_matches("raw-");
                let command = format!("{} --op {op}", self.task.name());
                session::explain(error, address, &command)
            }
            Err(error) => error,
        }
    }

    /// The connecting end's parameters hold; what was said here and is not so there is
    /// refused, not overruled.
    pub(super) fn contradicts(&self, plan: &RawPlan) -> Result<()> {
        let differs = |what: &str, here: &str, there: &str| {
            Err(usage(session::differs(what, there, here, "give both ends the same")))
        };
        if plan.task != self.task {
            return differs("the command", self.task.name(), plan.task.name());
        }
        if plan.op != self.op {
            return differs("--op", self.op.flag(), plan.op.flag());
        }
        // rc is what is meant where nothing is said.
        if self.raw.transport != plan.transport && self.raw.transport != RawTransport::Rc {
            return differs("--transport", self.raw.transport.name(), plan.transport.name());
        }
        if self.raw.polling_threads && !plan.is_reliable() {
            return differs("--transport", "rc (--polling-threads)", plan.transport.name());
        }
        let sizes = if self.raw.srq_classes { &[] } else { self.sizes };
        let contradiction =
            session::contradiction(&self.asked(plan.at / plan.rounds), &plan.flags());
        match contradiction.or_else(|| session::other_sizes(sizes, plan.of / plan.rounds)) {
            Some(why) => Err(usage(why)),
            None => Ok(()),
        }
    }

    /// Returns the settings that were asked for here, although the connecting end chooses them.
    fn asked(&self, at: u32) -> Vec<Flag> {
        let (raw, connection) = (self.raw, self.connection);
        let size = match self.sizes {
            [small, large] if raw.srq_classes => Some(format!("{small},{large}")),
            // As many as there are, told in the same order.
            sizes => sizes.get(at as usize).map(u32::to_string),
        };
        let numbers = [("--qps", raw.qps), ("--peers", raw.peers), ("--rounds", self.rounds_asked)];
        let switches = [
            ("--srq-classes", raw.srq_classes),
            ("--srq", self.srq),
            ("--reliable", raw.reliable),
            ("--no-verify", !self.verify),
        ];
        let switched = switches.into_iter().filter(|(_, on)| *on);
        let mut flags: Vec<Flag> = switched.map(|(flag, on)| (flag, switch(on))).collect();
        flags.extend(size.map(|size| ("--size", size)));
        flags.extend(numbers.into_iter().filter_map(|(flag, value)| number(flag, value)));
        flags.extend(settings::asked(QUEUES, &connection.given));
        flags
    }
}

/// Asks a queue pair whether the device promises to deliver the bytes of a write in order.
fn delivers_in_order(device: &Device) -> Result<bool> {
    let cq = device.context().create_cq(CqConfig::new(2))?;
    let config =
        QueuePairConfig { max_send_wr: 1, send_slots: 0, ..QueuePairConfig::new(&cq, &cq) };
    Ok(device.pd().create_qp(&config, ())?.control.data_in_order())
}
