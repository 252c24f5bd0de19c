//! The flags of `pingpong`.

use std::time::Duration;

use base::cli::{MEASURED, MOST, seconds, values};
use clap::{Args as ClapArgs, ValueEnum};

use crate::measure::EndOfLoad;

use super::{ConnectionArgs, EndsArgs, RawArgs, RoundsArgs};

#[derive(ClapArgs, Debug, Clone)]
#[command(next_help_heading = MEASURED)]
pub(crate) struct PingpongArgs {
    /// Message sizes in bytes (4096, 4k, 1M, as all BYTES), with commas in between
    /// [default: 16,64,256,1024,4096,16384,65536; with --compat: 4096]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = values::byte_count)]
    pub(crate) size: Vec<u32>,
    /// Round trips for each size [default: 20000; with --compat: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    pub(crate) iterations: Option<u64>,
    /// Seconds for which round trips of each size are measured, in place of a number of them
    #[arg(long, value_name = "S", value_parser = seconds, conflicts_with_all = ["iterations", "op", "compat"])]
    pub(crate) seconds: Option<Duration>,
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
    pub(crate) rounds: RoundsArgs,
    #[command(flatten)]
    pub(crate) ends: EndsArgs,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) raw: RawArgs,
}

/// A program that this one can be a peer of.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compat {
    /// rdma-core's RC ping-pong
    #[value(name = "ibv_rc_pingpong")]
    IbvRcPingpong,
}

fn mtu(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(bytes) if [256, 512, 1024, 2048, 4096].contains(&bytes) => Ok(bytes),
        _ => Err("256, 512, 1024, 2048 or 4096".into()),
    }
}

impl PingpongArgs {
    /// Sizes that show how latency grows.
    pub(crate) const SIZES: &[u32] = &[16, 64, 256, 1024, 4096, 16_384, 65_536];

    /// The sizes that were asked for, or [`SIZES`](PingpongArgs::SIZES).
    pub(crate) fn sizes(&self) -> Vec<u32> {
        if self.size.is_empty() { PingpongArgs::SIZES.into() } else { self.size.clone() }
    }

    /// Round trips for each size.
    pub(crate) fn trips(&self) -> u64 {
        self.iterations.unwrap_or(20_000)
    }

    /// The end of each size.
    pub(crate) fn end(&self) -> EndOfLoad {
        self.seconds.map_or(EndOfLoad::Messages(self.trips()), EndOfLoad::After)
    }
}
