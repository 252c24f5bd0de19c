//! The command line.

mod connection;
mod copy;
mod multicast;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use rdma_conn::device::NetworkFaults;
use rdma_conn::send_recv::Reposting;
use serde::{Deserialize, Serialize};

use crate::protocol::Protocol;
pub(crate) use connection::{ConnectionArgs, Tail, Wait};
pub(crate) use copy::Copy;
pub(crate) use multicast::Multicast;

/// Messages over RDMA: over a card where there is one, over the embedded software
/// device soft0 everywhere else.
#[derive(Parser, Debug)]
#[command(
    name = "rdma-conn",
    version = rdma_conn::build::VERSION,
    long_version = long_version(),
    after_help = "To install it: `cargo install --locked --path apps` in the repository, which takes a \
                  minute or two.\n\
                  Start with `rdma-conn bench`: it needs no card and no set-up.\n\
                  BYTES may have a suffix: 64k, 1M and 1G are 65536, 1048576 and 1073741824.\n\
                  Exit status: 0 done, 1 failed, 2 the command line asks for something that cannot be."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

fn long_version() -> &'static str {
    static LINE: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    LINE.get_or_init(rdma_conn::build::summary)
}

/// What every command understands.
#[derive(ClapArgs, Debug, Clone)]
pub(crate) struct Common {
    /// Device to use; soft0@5us is like soft0, in one process, with a network's round trip of
    /// 5 µs (or as many us or ns as you say) [default: the first active card, else soft0]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Print one JSON object a line on standard output, and nothing else there
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Index in the port's GID table [default: the IPv4-mapped RoCE v2 GID]
    #[arg(long, global = true, value_name = "INDEX")]
    pub(crate) gid_index: Option<u32>,
    /// Say more on standard error (-vv: still more)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Args {
    pub(crate) fn log_level(&self) -> tracing::Level {
        match self.common.verbose {
            0 => tracing::Level::WARN,
            1 => tracing::Level::INFO,
            2 => tracing::Level::DEBUG,
            _ => tracing::Level::TRACE,
        }
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Show the devices that there are, and what keeps more from being used
    Devices,
    /// Measure latency: half of a round trip, over message sizes
    #[command(
        after_help = "Latency is half of a round trip; of --op read, the whole operation. With \
        --unacked N, N round trips are under way at a time, and the messages per second are of \
        interest, too.\n\n\
        --op write polls the first and the last byte of a message, and resets them: that takes a \
        device which delivers the bytes of a write in order, or --assume-in-order. --op write-imm \
        does not: its immediate carries the length.\n\n\
        With --transport uc or ud a message without an answer in --answer-timeout is lost; lost, \
        reordered (overtaken) and late (or repeated) ones are counted by their numbers.\n\n\
        Examples:\n  \
        rdma-conn pingpong --size 16,4096\n  \
        rdma-conn pingpong --op write --size 64\n  \
        rdma-conn pingpong --op send --srq --qps 8 --unacked 8\n  \
        rdma-conn pingpong --op send --srq-classes --size 64,8192\n  \
        rdma-conn pingpong --op send --transport ud --peers 3 --size 64 --iterations 2000 --faults loss=0.01,seed=7\n  \
        rdma-conn pingpong --compat ibv_rc_pingpong --listen 0.0.0.0   # ibv_rc_pingpong -g 1 HOST"
    )]
    Pingpong(Pingpong),
    /// Measure throughput; without arguments, a demonstration of about 20 s
    #[command(after_help = "Examples:\n  \
        rdma-conn bench\n  \
        rdma-conn bench --preset batched --size 16\n  \
        rdma-conn bench --senders 4 --single-receiver --srq --size 512 --json\n  \
        rdma-conn bench --protocol buffered-read --size 16,4096 --json\n  \
        rdma-conn bench --listen 127.0.0.1    # and in another terminal: rdma-conn bench --connect 127.0.0.1\n  \
        rdma-conn bench --input FILE\n  \
        rdma-conn bench --no-credits --rate auto --size 512\n  \
        rdma-conn bench --op write --batch 8 --signal-every 32 --size 16\n  \
        rdma-conn bench --op send --transport ud --size 1024\n  \
        rdma-conn bench --op send --transport ud --peers 3 --messages 5000 --recv-window 16384 --faults loss=0.01,seed=7")]
    Bench(Bench),
    /// Send a stream of bytes to another process: standard input of the end that connects,
    /// standard output of the end that listens
    #[command(after_help = "Both ends compare the checksum at the end. Whatever ends the stream \
        early (a signal, an end that vanishes, a reader that leaves) is a failure at both: exit \
        status 1.\n\n\
        With --json the listening end prints its result on standard error: its standard output \
        is the stream.\n\n\
        Examples:\n  \
        rdma-conn pipe --listen 0.0.0.0:4711 > FILE\n  \
        rdma-conn pipe --connect HOST:4711 < FILE\n  \
        tar c DIRECTORY | rdma-conn pipe --connect HOST")]
    Pipe(Pipe),
    /// Send small messages to all members of a group, in one order
    #[command(after_help = "A message is delivered when all members have received it. With \
        --push every:1, that takes (n-1)(n+2) RDMA operations; with every:K, messages share \
        them, and the last ones wait for the deadline.\n\n\
        Examples:\n  \
        rdma-conn multicast\n  \
        rdma-conn multicast --members 2,3,5,8 --push every:1,every:25,every:250,opportunistic,opportunistic-null\n  \
        rdma-conn multicast --senders 3 --slow 1000 --push opportunistic,opportunistic-null\n  \
        rdma-conn multicast --rate 1000 --push every:1,every:250,opportunistic   # latency of a lone message")]
    Multicast(Multicast),
    /// Replicate files and directories to one or many receivers
    #[command(
        after_help = "PATH arrives as DIR/basename, as with cp -r. Each receiver reads the pieces of a file out of \
        the sender's memory to a file of another name, compares checksums, and then gives the file \
        its own. With a card, pieces land in the file itself where it can be registered (on file \
        systems in memory; on disks if the card pages on demand), else in buffers that are \
        written out; the software device reads into buffers, which is faster with it, unless \
        --mapped asks for files. Each end says which, and the receiver why. Nothing that exists is \
        replaced without --force; what is the same is kept. After an interruption, the same \
        command goes on where it was. Exit status 0: every receiver has everything; of one that \
        listens, also that a signal has ended it while no copy was under way (with --once: that \
        the copy has arrived).\n\n\
        Examples:\n  \
        rdma-conn copy --listen 0.0.0.0:18600 --into /data   # on each receiver\n  \
        rdma-conn copy --to node1:18600 --to node2:18600 shard-7"
    )]
    Copy(Copy),
}

/// Two ends: in this process, or in two.
#[derive(ClapArgs, Debug, Clone)]
#[command(next_help_heading = "Between two processes")]
pub(crate) struct Ends {
    /// Be the end that others connect to, at an address or a host's name; port 18515 by
    /// default
    #[arg(long, value_name = "ADDRESS[:PORT]", conflicts_with = "connect", value_parser = values::socket_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Connect to the end that listens at an address or a host's name; port 18515 by default
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = values::socket_address)]
    pub(crate) connect: Option<SocketAddr>,
}

/// Raw verbs instead of a connection.
#[derive(ClapArgs, Debug, Clone)]
#[command(next_help_heading = "Raw verbs")]
pub(crate) struct RawArgs {
    /// Use this verb, without a connection's flow control; the receiving end sees a
    /// message by a completion (send, write-imm), by polling memory (write), or not at
    /// all (read); it polls, and gives way to other threads unless there is --wait spin.
    /// The queues' settings hold for it, too, with defaults of its own
    #[arg(long, value_enum, value_name = "VERB", conflicts_with_all = ["protocol", "preset", "pack", "no_credits"])]
    pub(crate) op: Option<Op>,
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
    /// With uc and ud: how long an answer may take before its message counts as lost
    #[arg(long, value_name = "MS", requires = "op", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) answer_timeout: u32,
    /// With uc and ud on soft0: what its network does to messages, as probabilities drawn
    /// from a seed: loss=0.01,reordering=0.02,duplication=0.01,seed=7
    #[arg(long, value_name = "FAULTS", requires = "op", value_parser = faults)]
    pub(crate) faults: Option<Faults>,
    /// Two shared receive queues for two classes of sizes: --size SMALL,LARGE; messages
    /// of both sizes are sent in turn, each to the queue whose buffers fit it
    #[arg(long, requires = "op")]
    pub(crate) srq_classes: bool,
    /// Let --op write poll memory although the device does not promise to deliver the
    /// bytes of a write in order
    #[arg(long, requires = "op")]
    pub(crate) assume_in_order: bool,
}

/// A raw verb.
#[derive(ValueEnum, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Op {
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

impl Op {
    /// What `protocol` says in the JSON.
    pub(crate) fn protocol(self) -> &'static str {
        match self {
            Op::Send => "raw-send",
            Op::Write => "raw-write",
            Op::WriteImm => "raw-write-imm",
            Op::Read => "raw-read",
        }
    }

    /// As people write it.
    pub(crate) fn flag(self) -> &'static str {
        let protocol = self.protocol();
        protocol.strip_prefix("raw-").unwrap_or(protocol)
    }
}

/// A program that this one can be a peer of.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compat {
    /// rdma-core's RC ping-pong
    #[value(name = "ibv_rc_pingpong")]
    IbvRcPingpong,
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
    /// Unreliable datagrams: as uc, one MTU at most, one queue pair for all peers
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

/// What a network does, and the seed that it is drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Faults {
    pub(crate) network: NetworkFaults,
    pub(crate) seed: u64,
}

fn faults(text: &str) -> Result<Faults, String> {
    let mut faults = Faults::default();
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

/// Where the help has what a measurement is of.
const MEASURED: &str = "What is measured";

#[derive(ClapArgs, Debug, Clone)]
#[command(next_help_heading = MEASURED)]
pub(crate) struct Pingpong {
    /// Message sizes in bytes (4096, 4k, 1M, as all BYTES), with commas in between
    /// [default: 16,64,256,1024,4096,16384,65536; with --compat: 4096]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = values::byte_count)]
    pub(crate) size: Vec<u32>,
    /// Round trips for each size [default: 20000; with --compat: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    pub(crate) iterations: Option<u64>,
    /// Be a peer of another program, one end of which listens and the other connects: its
    /// set-up, its messages, its defaults (size 4096, 1000 round trips, 500 receives, path
    /// MTU 1024, port 18515); give both ends the same, and the other one its GID index
    #[arg(long, value_enum, value_name = "PROGRAM", conflicts_with_all = ["op", "protocol", "preset", "pack", "no_credits", "unacked", "batch"])]
    pub(crate) compat: Option<Compat>,
    /// With --compat: the path MTU in bytes
    #[arg(long, value_name = "BYTES", requires = "compat", default_value_t = 1024, value_parser = mtu)]
    pub(crate) mtu: u32,
    /// With --op: one shared receive queue for all queue pairs of an end; the immediate
    /// of each message says which of them it is from
    #[arg(long, requires = "op", help_heading = "Raw verbs")]
    pub(crate) srq: bool,
    /// Do not check the payloads
    #[arg(long)]
    pub(crate) no_verify: bool,
    #[command(flatten)]
    pub(crate) ends: Ends,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) raw: RawArgs,
}

#[derive(ClapArgs, Debug, Clone)]
pub(crate) struct Pipe {
    #[command(flatten)]
    pub(crate) ends: Ends,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Bytes of a piece of the stream, at most (4096, 4k, 1M, as all BYTES)
    #[arg(long, value_name = "BYTES", help_heading = "The stream", default_value = "64k", value_parser = values::piece)]
    pub(crate) size: u32,
}

impl Pipe {
    /// The connection that was asked for, or Buffered Read.
    pub(crate) fn protocol(&self) -> Protocol {
        self.connection.protocol.unwrap_or(Protocol::BufferedRead)
    }
}

#[derive(ClapArgs, Debug, Clone)]
#[command(next_help_heading = MEASURED)]
pub(crate) struct Bench {
    /// Message sizes in bytes (4096, 4k, 1M, as all BYTES), with commas in between [default: 16]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = values::byte_count)]
    pub(crate) size: Vec<u32>,
    /// Messages of each sender [default: as many as fit into --seconds]
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    pub(crate) messages: Option<u64>,
    /// How long each measurement takes [default: 2]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Connections, each with a sending and a receiving thread
    #[arg(long, value_name = "T", default_value_t = 1, conflicts_with = "senders", value_parser = at_least_one())]
    pub(crate) threads: u32,
    /// Senders to one receiving thread; with --listen, those of all connecting processes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one())]
    pub(crate) senders: u32,
    /// All senders' completions in one queue, instead of a round robin over the queues
    #[arg(long)]
    pub(crate) single_receiver: bool,
    /// One shared receive queue for all senders, and how buffers get back into it
    /// [default: each sender has a queue of its own; of --srq alone: combining]
    #[arg(long, value_name = "HOW", num_args = 0..=1, default_missing_value = "combining", value_enum)]
    pub(crate) srq: Option<Srq>,
    /// Receive buffers in the shared queue [default: enough for every sender's window]
    #[arg(long, value_name = "N", requires = "srq")]
    pub(crate) srq_buffers: Option<u32>,
    /// Messages per second of each sender, or auto: the highest rate without RNR events
    #[arg(long, value_name = "R")]
    pub(crate) rate: Option<Rate>,
    /// Threads that share the sender of one connection, both ends in this process
    #[arg(long, value_name = "S", conflicts_with_all = NO_CROWD, value_parser = at_least_one())]
    pub(crate) sending_threads: Option<u32>,
    /// Threads that share the receiver of one connection, both ends in this process
    #[arg(long, value_name = "R", conflicts_with_all = NO_CROWD, value_parser = at_least_one())]
    pub(crate) receiving_threads: Option<u32>,
    /// The receiving threads only take what a thread of its own has brought
    #[arg(long, requires = "receiving_threads")]
    pub(crate) transfer_thread: bool,
    /// Send this file, cut into messages, and compare what arrives with it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["messages", "seconds", "senders", "threads", "rate", "srq", "single_receiver"])]
    pub(crate) input: Option<PathBuf>,
    /// Do not check the payloads (as other benchmarks do not)
    #[arg(long)]
    pub(crate) no_verify: bool,
    #[command(flatten)]
    pub(crate) ends: Ends,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) raw: RawArgs,
}

/// How buffers get back into a shared receive queue.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Srq {
    /// Whoever frees posts, under a lock
    Lock,
    /// One thread posts for all
    Thread,
    /// Whoever frees posts for all, if nobody does at the moment
    Combining,
}

impl Srq {
    pub(crate) fn reposting(self) -> Reposting {
        match self {
            Srq::Lock => Reposting::Lock,
            Srq::Thread => Reposting::Thread,
            Srq::Combining => Reposting::Combining,
        }
    }
}

/// How fast senders send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rate {
    PerSecond(f64),
    Auto,
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        if text == "auto" {
            return Ok(Rate::Auto);
        }
        match text.parse::<f64>() {
            Ok(rate) if rate.is_finite() && rate >= 1.0 => Ok(Rate::PerSecond(rate)),
            _ => Err("a number of messages per second from 1, or auto".into()),
        }
    }
}

/// What does not go with threads that share an end.
const NO_CROWD: [&str; 8] =
    ["listen", "connect", "senders", "threads", "single_receiver", "srq", "rate", "input"];

fn at_least_one() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

fn mtu(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(bytes) if [256, 512, 1024, 2048, 4096].contains(&bytes) => Ok(bytes),
        _ => Err("256, 512, 1024, 2048 or 4096".into()),
    }
}

/// Messages, or round trips, that somebody may live to see the end of.
pub(crate) const MOST: u64 = 1 << 48;

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.01..=86_400.0).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err("a number of seconds from 0.01 to 86400".into()),
    }
}

impl Pingpong {
    /// Sizes that show how latency grows.
    pub(crate) const SIZES: &[u32] = &[16, 64, 256, 1024, 4096, 16_384, 65_536];

    /// The sizes that were asked for, or [`SIZES`](Pingpong::SIZES).
    pub(crate) fn sizes(&self) -> Vec<u32> {
        if self.size.is_empty() { Pingpong::SIZES.into() } else { self.size.clone() }
    }

    /// Round trips for each size.
    pub(crate) fn trips(&self) -> u64 {
        self.iterations.unwrap_or(20_000)
    }
}

impl Bench {
    /// The flags that were given, of those that not every connection has.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let mut given = self.connection.given();
        given.extend(self.srq.map(|_| "--srq"));
        given.extend(self.srq_buffers.map(|_| "--srq-buffers"));
        given.extend((self.rate == Some(Rate::Auto)).then_some("--rate auto"));
        given.extend(self.sending_threads.map(|_| "--sending-threads"));
        given.extend(self.receiving_threads.map(|_| "--receiving-threads"));
        given
    }

    /// How long a measurement takes where nothing was asked for.
    pub(crate) const SECONDS: Duration = Duration::from_secs(2);

    /// Whether nothing was asked for: the demonstration.
    pub(crate) fn is_demonstration(&self) -> bool {
        let asked = self.connection.protocol() != Protocol::SendRecv || !self.given().is_empty();
        let shaped = self.threads > 1 || self.senders > 1;
        let ended = self.ends.listen.is_some() || self.ends.connect.is_some();
        let time = self.messages.is_some() || self.seconds.is_some() || self.rate.is_some();
        let measured = !self.size.is_empty() || time;
        !(asked || shaped || ended || measured || self.single_receiver || self.input.is_some())
    }
}
