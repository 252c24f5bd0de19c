//! `rdma-conn multicast`: small messages to all members of a group, in one order.

mod between;
mod load;
mod report;
mod traffic;
mod within;

use std::time::Duration;

use base::outcome::{CommandError, CommandResult, usage};
use rdma_conn::conn_core::multicast::{ConfigError, MAX_MEMBERS, MAX_WINDOW};
use rdma_conn::multicast::{Config, Policy};
use rdma_conn::raw::Link;

use crate::cli::{CommonArgs, MulticastArgs, RoundsArgs};
use crate::measure::rounds;
use crate::session;
use traffic::GroupTraffic;

pub(crate) fn run(common: &CommonArgs, options: &MulticastArgs) -> CommandResult {
    rounds::check(options.rounds, "--messages", options.messages)?;
    let configs: Vec<Config> = configs(common, options).collect();
    for config in &configs {
        config.validate().map_err(|e| by_flag(e, config))?;
    }
    if options.slow.is_some() && options.senders < 2 {
        return Err(usage(
            "--slow compares the rate of the other senders: give --senders 2 or more",
        ));
    }
    let device = session::open_device(common, &options.ends)?;
    if options.ends.listen.is_some() || options.ends.connect.is_some() {
        if let Some(rounds) = options.rounds {
            return Err(usage(format!(
                "--rounds {rounds}: members in several processes meet for one round: leave --rounds \
                 out, and start all of them again for another one"
            )));
        }
        return between::run(common, options, &configs, &device);
    }
    let traffic = GroupTraffic::from_args(options);
    let label = |config: &Config| format!("{} members, {}", config.members, config.policy);
    let labels: Vec<String> = configs.iter().map(label).collect();
    let rounds = traffic.rounds(options.rounds.unwrap_or(RoundsArgs::DEFAULT));
    let report = report::report(common.json, &traffic);
    session::in_turn(common.json, &labels, rounds, report, |at, round| {
        let share = traffic.of_round(round, rounds);
        let measured = within::measure(&device, &share, &configs[at])?;
        Ok(vec![report::line(&device, &share, &configs[at], &measured)])
    })
}

/// An invalid configuration of a group, by the flags that it is made of.
fn by_flag(error: ConfigError, config: &Config) -> CommandError {
    let Config { members, senders, window, message_bytes: size, ring_bytes, .. } = *config;
    usage(match (error, ring_bytes) {
        (ConfigError::Members(n), _) => format!("--members {n}: it may be 2 to {MAX_MEMBERS}"),
        (ConfigError::Ranks, _) => {
            format!("--senders {senders}: it may be 1 to --members ({members})")
        }
        (ConfigError::Window(n), _) => format!("--window {n}: it may be 1 to {MAX_WINDOW}"),
        (ConfigError::Every { k, window }, _) => {
            format!("--push every:{k}: K may be 1 to --window ({window})")
        }
        (ConfigError::Capacity(ring), Some(_)) => {
            format!("--ring {ring}: it may be a power of two up to 4294967296")
        }
        (ConfigError::WindowOverRing { needed, .. }, Some(ring)) => format!(
            "--ring {ring}: --window {window} of --size {size} needs {needed} bytes: give a larger \
             --ring ({}), or a smaller --window or --size",
            needed.next_power_of_two()
        ),
        (ConfigError::Capacity(_) | ConfigError::WindowOverRing { .. }, _) => {
            let most = (MOST_RING / (u64::from(window) + 1)).saturating_sub(RECORD);
            format!(
                "--size {size}: with --window {window} it may be up to about {most}: a ring has at \
                 most 4 GiB: give a smaller --size or --window"
            )
        }
        (other, _) => other.to_string(),
    })
}

/// The longest ring, and what a record has besides its message.
const MOST_RING: u64 = 1 << 32;
const RECORD: u64 = 64;

/// A group for each number of members, and each policy.
fn configs<'a>(common: &'a CommonArgs, options: &'a MulticastArgs) -> impl Iterator<Item = Config> {
    let of = |(members, policy): (u8, Policy)| Config {
        members,
        senders: options.senders,
        window: options.window,
        message_bytes: options.size,
        ring_bytes: options.ring.map(u64::from),
        policy,
        deadline: Duration::from_micros(options.deadline_us),
        link: Link { gid_index: common.gid_index, ..Link::default() },
        ..Config::default()
    };
    let push = || options.push.iter().copied();
    options.members.iter().flat_map(move |n| push().map(|p| (*n, p))).map(of)
}
