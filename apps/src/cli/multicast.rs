//! The flags of `multicast`.

use std::path::PathBuf;

use base::cli::{MOST, seconds as time, values};
use clap::Args as ClapArgs;
use rdma_conn::multicast::Policy;

use super::{EndsArgs, RoundsArgs};

#[derive(ClapArgs, Debug, Clone)]
#[command(next_help_heading = "The group, and what is measured")]
pub(crate) struct MulticastArgs {
    /// Members of the group, 2 to 16 (between processes, the leader, which listens, decides this
    /// and all that follows, for all); with commas in between, one run for each
    #[arg(
        long,
        value_name = "N",
        default_value = "3",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u8).range(2..=16),
        conflicts_with = "connect"
    )]
    pub(crate) members: Vec<u8>,
    /// Members that send
    #[arg(long, value_name = "M", default_value_t = 1, conflicts_with = "connect")]
    pub(crate) senders: u8,
    /// Bytes of a message (100, 4k, as all BYTES)
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = values::byte_count, conflicts_with = "connect")]
    pub(crate) size: u32,
    /// Messages that a sender may have under way
    #[arg(long, value_name = "W", default_value_t = 1000, conflicts_with = "connect")]
    pub(crate) window: u32,
    /// Bytes of a slot ring, a power of two [default: what the window needs]
    #[arg(long, value_name = "BYTES", value_parser = values::byte_count, conflicts_with = "connect")]
    pub(crate) ring: Option<u32>,
    /// Largest slot ring that a leader may ask this end for, in bytes [default: 32m]
    #[arg(long, value_name = "BYTES", value_parser = values::byte_count, requires = "connect")]
    pub(crate) max_ring: Option<u32>,
    /// Rule by which counters are pushed: every:K, opportunistic, opportunistic-null; with commas
    /// in between, one run for each
    #[arg(long, value_name = "POLICY", default_value = "every:1", value_delimiter = ',', value_parser = policy, conflicts_with = "connect")]
    pub(crate) push: Vec<Policy>,
    /// Longest time that a push may be inhibited, in microseconds
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 150, conflicts_with = "connect")]
    pub(crate) deadline_us: u64,
    /// Messages that each sender sends at a time, at least 1; the next ones follow when all but
    /// those whose push is inhibited have been delivered [default: 250 between two passes, as many
    /// as go]
    #[arg(long, value_name = "MESSAGES", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["lone", "connect"])]
    pub(crate) burst: Option<u64>,
    /// Number of messages after which each sender flushes
    #[arg(long, value_name = "MESSAGES", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "connect")]
    pub(crate) flush_every: Option<u64>,
    /// Messages per second of each sender [default: as many as go]
    #[arg(long, value_name = "PER_SECOND", value_parser = per_second, conflicts_with = "connect")]
    pub(crate) rate: Option<f64>,
    /// Each sender sends one message at a time: the next when the last was delivered, and
    /// nothing is under way any more. What a message takes that has no company
    #[arg(long, conflicts_with_all = ["rate", "slow", "connect"])]
    pub(crate) lone: bool,
    /// Messages per second of the last sender alone; the others' rate is compared with that of
    /// a group in which it does not send
    #[arg(long, value_name = "PER_SECOND", value_parser = per_second, conflicts_with_all = ["messages", "connect"])]
    pub(crate) slow: Option<f64>,
    /// Seconds for which the senders send
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds, conflicts_with = "connect")]
    pub(crate) seconds: f64,
    /// Messages that each sender sends, instead of sending for --seconds
    #[arg(long, value_name = "N", conflicts_with_all = ["seconds", "connect"], value_parser = clap::value_parser!(u64).range(1..=MOST))]
    pub(crate) messages: Option<u64>,
    /// Rounds of each measurement in this process, which share its time or its messages; the
    /// results are their median and how far they lie apart [default: 3]. Between processes there is
    /// one: members meet for one round
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(RoundsArgs::MOST)))]
    pub(crate) rounds: Option<u32>,
    /// Write the results to this file as well, a line of comma-separated values for each
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "connect"])]
    pub(crate) csv: Option<PathBuf>,
    /// Do not look at what is delivered
    #[arg(long, conflicts_with = "connect")]
    pub(crate) no_verify: bool,
    #[command(flatten)]
    pub(crate) ends: EndsArgs,
}

fn policy(text: &str) -> Result<Policy, String> {
    match text.split_once(':') {
        Some(("every", k)) => k.parse().map(Policy::Every).map_err(|_| "every:K, K from 1".into()),
        None if text == "opportunistic" => Ok(Policy::Opportunistic),
        None if text == "opportunistic-null" => Ok(Policy::OpportunisticWithNulls),
        _ => Err("there are every:K, opportunistic and opportunistic-null".into()),
    }
}

fn per_second(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|n| (0.001..=1e9).contains(n));
    number.ok_or_else(|| "a number from 0.001 to 1e9".into())
}

fn seconds(text: &str) -> Result<f64, String> {
    time(text).map(|time| time.as_secs_f64())
}
