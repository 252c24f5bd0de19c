//! The flags that several commands have.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Args as ClapArgs};

use super::values;
use crate::pinning::Cpus;

/// Flags of every command.
#[derive(ClapArgs, Debug, Clone)]
pub struct CommonArgs {
    /// Device to use (`rdma-conn devices` lists them); roce:ADDRESS or roce:INTERFACE speaks RoCE
    /// v2 over UDP from an address of this machine, and roce from that of --listen, or the local
    /// one that reaches --connect; soft0@5us is like soft0, in one process, with a network's round
    /// trip of 5 µs (or as many us or ns as you say); soft0@card=connectx5 takes a card's time, as
    /// many times slower as this machine needs [default: the first active card, else soft0]
    #[arg(long, global = true, value_name = "NAME")]
    pub device: Option<String>,
    /// Print one JSON object a line on standard output, and nothing else there
    #[arg(long, global = true)]
    pub json: bool,
    /// Run on these processors only (0,2-5). Of bench and pingpong each sending and each receiving
    /// thread has one of them, in turn, senders first. All threads of pipe, copy and multicast
    /// share the whole list. In two processes each end has its own list: give it to both
    #[arg(long, global = true, value_name = "LIST", value_parser = crate::pinning::list)]
    pub cpu: Option<Cpus>,
    /// Index in the port's GID table [default: the IPv4-mapped RoCE v2 GID]
    #[arg(long, global = true, value_name = "INDEX")]
    pub gid_index: Option<u32>,
    /// Say more on standard error (-vv: still more); without it RUST_LOG says how much (info,
    /// rdma_conn=debug)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Returns hidden copies of those flags in [`CommonArgs`] that have these ids, for a command that
/// refuses them: its help does not list them.
pub fn refused(ids: &[&str]) -> Vec<Arg> {
    let all = CommonArgs::augment_args(clap::Command::new("refused"));
    let named = all.get_arguments().filter(|arg| ids.contains(&arg.get_id().as_str()));
    named.map(|arg| arg.clone().hide(true)).collect()
}

impl CommonArgs {
    /// The flags that were given, of those that are about a device or a measurement.
    pub fn given(&self) -> Vec<&'static str> {
        let flags = [
            ("--device", self.device.is_some()),
            ("--json", self.json),
            ("--cpu", self.cpu.is_some()),
            ("--gid-index", self.gid_index.is_some()),
        ];
        flags.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag).collect()
    }
}

/// Two ends: in this process, or in two.
#[derive(ClapArgs, Debug, Clone)]
#[command(next_help_heading = "Between two processes")]
pub struct EndsArgs {
    /// Be the end that others connect to, at an address or a host's name; port 18515 by
    /// default
    #[arg(long, value_name = "ADDRESS[:PORT]", conflicts_with = "connect", value_parser = values::socket_address)]
    pub listen: Option<SocketAddr>,
    /// Connect to the end that listens at an address or a host's name; port 18515 by default
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = values::socket_address)]
    pub connect: Option<SocketAddr>,
}

/// Help heading of the flags that say what is measured.
pub const MEASURED: &str = "What is measured";

/// Repetition of a measurement, and the file for its results.
#[derive(ClapArgs, Debug, Clone)]
#[command(next_help_heading = MEASURED)]
pub struct RoundsArgs {
    /// Rounds of each measurement, which share its time, messages or iterations; the results are
    /// their median and how far they lie apart [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(RoundsArgs::MOST)))]
    pub rounds: Option<u32>,
    /// Write the results to this file as well, a line of comma-separated values for each
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "connect"])]
    pub csv: Option<PathBuf>,
}

impl RoundsArgs {
    /// Rounds where nothing was asked for.
    pub const DEFAULT: u32 = 3;
    /// Rounds at most.
    pub const MOST: u32 = 1000;

    /// The rounds that were asked for, or [`RoundsArgs::DEFAULT`].
    pub fn asked(&self) -> u32 {
        self.rounds.unwrap_or(RoundsArgs::DEFAULT)
    }
}

/// The most messages, or round trips, of one run: at 10 million per second they take 325 days.
pub const MOST: u64 = 1 << 48;

/// A number of seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.000_1..=86_400.0).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err("a number of seconds from 0.0001 to 86400".into()),
    }
}
