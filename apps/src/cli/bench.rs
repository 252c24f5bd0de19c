//! The flags of `bench`.

use std::path::PathBuf;
use std::time::Duration;

use base::cli::{MEASURED, MOST, seconds, values};
use clap::{Args as ClapArgs, ValueEnum};
use rdma_conn::send_recv::Reposting;

use super::{ConnectionArgs, EndsArgs, ProtocolKind, RawArgs, RoundsArgs};

#[derive(ClapArgs, Debug, Clone)]
#[command(next_help_heading = MEASURED)]
pub(crate) struct BenchArgs {
    /// Message sizes in bytes (4096, 4k, 1M, as all BYTES), with commas in between [default: 16]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = values::byte_count)]
    pub(crate) size: Vec<u32>,
    /// Messages of each sender [default: as many as fit into --seconds]
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    pub(crate) messages: Option<u64>,
    /// Time that each measurement takes [default: 2]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Connections, each with a sending and a receiving thread
    #[arg(long, value_name = "T", default_value_t = 1, conflicts_with = "senders", value_parser = at_least_one())]
    pub(crate) threads: u32,
    /// Senders to one receiving thread; with --listen, those of all connecting processes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one())]
    pub(crate) senders: u32,
    /// All senders' completions in one queue, instead of a round robin over the queues; implied by
    /// --senders N over Shared Write, with one ring for all
    #[arg(long)]
    pub(crate) single_receiver: bool,
    /// One thread sends over all connections of --threads in turn, each with a receiving thread:
    /// one to many
    #[arg(long, requires = "threads", conflicts_with_all = ["listen", "connect", "rate", "input", "sending_threads", "receiving_threads"])]
    pub(crate) single_sender: bool,
    /// One shared receive queue for all senders, and how buffers get back into it
    /// [default: each sender has a queue of its own; of --srq alone: combining]
    #[arg(long, value_name = "HOW", num_args = 0..=1, default_missing_value = "combining", value_enum)]
    pub(crate) srq: Option<SrqReposting>,
    /// Receive buffers in the shared queue [default: 3 a sender and 3 times --recv-depth, or half
    /// of what separate queues have, if that is less]
    #[arg(long, value_name = "N", requires = "srq")]
    pub(crate) srq_buffers: Option<u32>,
    /// Messages per second of each sender, or auto: the highest rate without RNR events
    #[arg(long, value_name = "R")]
    pub(crate) rate: Option<SenderRate>,
    /// Threads that share the sender of one connection, both ends in this process
    #[arg(long, value_name = "S", conflicts_with_all = NO_CROWD, value_parser = at_least_one())]
    pub(crate) sending_threads: Option<u32>,
    /// Threads that share the receiver of one connection, both ends in this process
    #[arg(long, value_name = "R", conflicts_with_all = NO_CROWD, value_parser = at_least_one())]
    pub(crate) receiving_threads: Option<u32>,
    /// The receiving threads only take what a thread of its own has brought
    #[arg(long, requires = "receiving_threads")]
    pub(crate) transfer_thread: bool,
    /// Send this file once, cut into messages, and compare what arrives with it: that is one round,
    /// and --rounds is refused
    #[arg(long, value_name = "FILE", conflicts_with_all = ["messages", "seconds", "senders", "threads", "rate", "srq", "single_receiver"])]
    pub(crate) input: Option<PathBuf>,
    /// Do not check the payloads (as other benchmarks do not)
    #[arg(long)]
    pub(crate) no_verify: bool,
    #[command(flatten)]
    pub(crate) rounds: RoundsArgs,
    #[command(flatten)]
    pub(crate) ends: EndsArgs,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) raw: RawArgs,
}

/// Rule for reposting buffers to a shared receive queue (`--srq`).
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SrqReposting {
    /// Post in the thread that frees, under a lock
    Lock,
    /// Post in one thread for all
    Thread,
    /// Post in the thread that frees, for all, unless another thread is posting
    Combining,
}

impl SrqReposting {
    pub(crate) fn reposting(self) -> Reposting {
        match self {
            SrqReposting::Lock => Reposting::Lock,
            SrqReposting::Thread => Reposting::Thread,
            SrqReposting::Combining => Reposting::Combining,
        }
    }
}

/// Rate of each sender (`--rate`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SenderRate {
    PerSecond(f64),
    Auto,
}

impl std::str::FromStr for SenderRate {
    type Err = String;

    fn from_str(text: &str) -> Result<SenderRate, String> {
        if text == "auto" {
            return Ok(SenderRate::Auto);
        }
        match text.parse::<f64>() {
            Ok(rate) if rate.is_finite() && rate >= 1.0 => Ok(SenderRate::PerSecond(rate)),
            _ => Err("a number of messages per second from 1, or auto".into()),
        }
    }
}

/// Flags that conflict with threads that share an end.
const NO_CROWD: [&str; 8] =
    ["listen", "connect", "senders", "threads", "single_receiver", "srq", "rate", "input"];

fn at_least_one() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

impl BenchArgs {
    /// The flags that were given, of those that not every connection has.
    pub(crate) fn given(&self) -> Vec<String> {
        let own = [
            ("--srq", self.srq.is_some()),
            ("--srq-buffers", self.srq_buffers.is_some()),
            ("--rate auto", self.rate == Some(SenderRate::Auto)),
            ("--sending-threads", self.sending_threads.is_some()),
            ("--receiving-threads", self.receiving_threads.is_some()),
        ];
        let own = own.into_iter().filter(|(_, is_given)| *is_given);
        let own = own.map(|(flag, _)| flag.to_owned());
        self.connection.given.names().into_iter().chain(own).collect()
    }

    /// Default time of a measurement.
    pub(crate) const SECONDS: Duration = Duration::from_secs(2);

    /// Reports whether the command line asks for nothing in particular: then the demonstration
    /// runs.
    pub(crate) fn is_demonstration(&self) -> bool {
        let asked =
            self.connection.protocol() != ProtocolKind::SendRecv || !self.given().is_empty();
        let shaped = self.threads > 1 || self.senders > 1;
        let ended = self.ends.listen.is_some() || self.ends.connect.is_some();
        let time = self.messages.is_some() || self.seconds.is_some() || self.rate.is_some();
        let measured = !self.size.is_empty() || time;
        !(asked || shaped || ended || measured || self.single_receiver || self.input.is_some())
    }
}
