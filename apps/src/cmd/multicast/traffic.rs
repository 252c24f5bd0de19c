//! Traffic of the members of a group.

use std::ops::RangeInclusive;

use anyhow::{Result, ensure};
use rdma_conn::multicast::Config;
use serde::{Deserialize, Serialize};

use crate::cli::MulticastArgs;
use crate::measure::rounds;

/// Messages to send, as all members have to know them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct GroupTraffic {
    pub(super) size: u32,
    pub(super) seconds: f64,
    pub(super) messages: Option<u64>,
    pub(super) rate: Option<f64>,
    pub(super) slow: Option<f64>,
    /// One message at a time, with such a pause behind it, in microseconds.
    pub(super) lone_us: Option<u64>,
    /// Messages of a sender at a time; `None` for as many as possible.
    #[serde(default)]
    pub(super) burst: Option<u64>,
    pub(super) flush_every: Option<u64>,
    pub(super) verify: bool,
}

impl GroupTraffic {
    pub(super) fn from_args(options: &MulticastArgs) -> GroupTraffic {
        GroupTraffic {
            size: options.size,
            seconds: options.seconds,
            messages: options.messages,
            rate: options.rate,
            slow: options.slow,
            // What is inhibited when it is delivered has gone after a deadline.
            lone_us: options.lone.then_some(2 * options.deadline_us + 100),
            burst: options.burst,
            flush_every: options.flush_every,
            verify: !options.no_verify,
        }
    }
}

impl GroupTraffic {
    /// Returns the number of rounds: each has at least one message of each sender.
    pub(super) fn rounds(&self, asked: u32) -> u32 {
        self.messages.map_or(asked, |messages| rounds::rounds_of(messages, asked))
    }

    /// Returns the share of one round.
    pub(super) fn of_round(&self, round: u32, rounds: u32) -> GroupTraffic {
        let messages = self.messages.map(|messages| rounds::share(messages, round, rounds));
        GroupTraffic { messages, seconds: self.seconds / f64::from(rounds.max(1)), ..self.clone() }
    }
}

/// Rates that a sender can be paced to, in messages a second.
const RATES: RangeInclusive<f64> = 0.001..=1e9;
/// Time that a group may send, in seconds.
const SECONDS: RangeInclusive<f64> = 0.0..=86_400.0;

impl GroupTraffic {
    /// Checks that a member can do what the leader says.
    pub(super) fn check(&self, config: &Config) -> Result<()> {
        let (size, most) = (self.size, config.message_bytes);
        ensure!(size <= most, "the leader wants messages of {size} bytes in slots of {most}");
        let seconds = self.seconds;
        ensure!(SECONDS.contains(&seconds), "the leader wants to send for {seconds} seconds");
        ensure!(self.burst != Some(0), "the leader wants bursts of no messages");
        for rate in [self.rate, self.slow].into_iter().flatten() {
            ensure!(RATES.contains(&rate), "the leader wants {rate} messages a second");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
