//! The flags of raw verbs.

use clap::builder::PossibleValue;
use clap::{Args as ClapArgs, ValueEnum};
use rdma_conn::device::NetworkFaults;
use serde::{Deserialize, Serialize};

/// Raw verbs instead of a connection.
#[derive(ClapArgs, Debug, Clone)]
#[command(next_help_heading = "Raw verbs")]
pub(crate) struct RawArgs {
    /// Use this verb, without a connection's flow control; the receiving end sees a
    /// message by a completion (send, write-imm), by polling memory (write), or not at
    /// all (read); it polls, and gives way to other threads unless there is --wait spin.
    /// The queues' settings hold for it, too, with defaults of its own
    #[arg(long, value_enum, value_name = "VERB", conflicts_with_all = ["protocol", "preset", "pack", "no_credits"])]
    pub(crate) op: Option<Means>,
    /// Service of the queue pairs
    #[arg(long, value_enum, value_name = "SERVICE", requires = "op", default_value_t)]
    pub(crate) transport: RawTransport,
    /// Queue pairs at each end, used in turn by one thread; up to 1024, with --srq, or a
    /// --transport other than rc, up to 256 [default: 1; with --srq: 4]
    #[arg(long, value_name = "N", requires = "op", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) qps: Option<u32>,
    /// With --transport ud: queue pairs of the connecting end, which the one of the other
    /// end serves all [default: 1]
    #[arg(long, value_name = "N", requires = "op", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) peers: Option<u32>,
    /// With --transport ud: cut messages into datagrams, and repair order and loss in software,
    /// so that they may be longer than the MTU and all arrive; --unacked is of datagrams then
    #[arg(long, requires = "op")]
    pub(crate) reliable: bool,
    /// With uc and ud: how long an answer may take before its message counts as lost
    #[arg(long, value_name = "MS", requires = "op", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) answer_timeout: u32,
    /// With uc and ud on soft0: what its network does to messages, as probabilities drawn
    /// from a seed: loss=0.01,reordering=0.02,duplication=0.01,seed=7
    #[arg(long, value_name = "FAULTS", requires = "op", value_parser = faults)]
    pub(crate) faults: Option<SeededFaults>,
    /// Two shared receive queues for two classes of sizes: --size SMALL,LARGE; messages
    /// of both sizes are sent in turn, each to the queue whose buffers fit it
    #[arg(long, requires = "op")]
    pub(crate) srq_classes: bool,
    /// Let --op write poll memory although the device does not promise to deliver the
    /// bytes of a write in order
    #[arg(long, requires = "op")]
    pub(crate) assume_in_order: bool,
    /// With pingpong --op write: a thread for each queue pair polls its memory, and one thread
    /// answers; without it, that one polls all of them in turn
    #[arg(long, requires = "op")]
    pub(crate) polling_threads: bool,
}

/// Value of `--op`: a verb, or plain UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    Verb(RawOp),
    /// No verb: the baseline of devices on the network.
    Udp,
}

impl ValueEnum for Means {
    fn value_variants<'a>() -> &'a [Means] {
        use RawOp::{Read, Send, Write, WriteImm};
        const ALL: [Means; 5] = [
            Means::Verb(Send),
            Means::Verb(Write),
            Means::Verb(WriteImm),
            Means::Verb(Read),
            Means::Udp,
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Means::Verb(op) => op.to_possible_value(),
            Means::Udp => Some(PossibleValue::new("udp").help(
                "No verb and no device: plain UDP datagrams, as long as the packets of a roce: device, \
                 as its baseline",
            )),
        }
    }
}

/// A raw verb.
#[derive(ValueEnum, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RawOp {
    /// SEND, into a posted receive buffer
    Send,
    /// RDMA WRITE, found by polling its first and its last byte
    Write,
    /// RDMA WRITE with immediate: the immediate carries the length, and completes a
    /// posted receive
    WriteImm,
    /// RDMA READ
    Read,
}

impl RawOp {
    /// Value of `protocol` in the JSON.
    pub(crate) fn protocol(self) -> &'static str {
        match self {
            RawOp::Send => "raw-send",
            RawOp::Write => "raw-write",
            RawOp::WriteImm => "raw-write-imm",
            RawOp::Read => "raw-read",
        }
    }

    /// As people write it.
    pub(crate) fn flag(self) -> &'static str {
        let protocol = self.protocol();
        protocol.strip_prefix("raw-").unwrap_or(protocol)
    }
}

/// The service of raw queue pairs.
#[derive(ValueEnum, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RawTransport {
    /// Reliable connection
    #[default]
    Rc,
    /// Unreliable connection: nothing is repeated, and nothing holds the sender back; what is
    /// lost, or finds no receive posted, is counted
    Uc,
    /// Unreliable datagrams: as uc, one MTU at most (unless --reliable), one queue pair for all
    /// peers
    Ud,
}

impl RawTransport {
    pub(crate) fn name(self) -> &'static str {
        match self {
            RawTransport::Rc => "rc",
            RawTransport::Uc => "uc",
            RawTransport::Ud => "ud",
        }
    }
}

/// Faults of soft0's network, and the seed that they are drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct SeededFaults {
    pub(crate) network: NetworkFaults,
    pub(crate) seed: u64,
}

fn faults(text: &str) -> Result<SeededFaults, String> {
    let mut faults = SeededFaults::default();
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or("NAME=VALUE, with commas in between")?;
        if name == "seed" {
            faults.seed = value.parse().map_err(|_| "seed is a number from 0")?;
            continue;
        }
        let probability = value.parse::<f64>().ok().filter(|p| (0.0..=1.0).contains(p));
        let probability = probability.ok_or_else(|| format!("{name} is a number from 0 to 1"))?;
        match name {
            "loss" => faults.network.loss = probability,
            "reordering" => faults.network.reordering = probability,
            "duplication" => faults.network.duplication = probability,
            _ => return Err("there are loss, reordering, duplication and seed".into()),
        }
    }
    Ok(faults)
}
