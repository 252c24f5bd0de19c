//! Messages between the ends beside the queue pairs: the handshakes, and control messages when a
//! measurement ends. A thread that waits checks here whether the other end has gone.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use base::frame::GONE;
use base::outcome::CommandError;
use rdma_conn::verbs_safe::{WcError, WcStatus};
use serde::{Deserialize, Serialize};

use crate::measure::ResultLine;
use crate::session::{ControlChannel, LastWords};

/// The byte stream to the other end.
pub(super) type RawChannel = ControlChannel<RawControl>;

/// Control message of an end that has finished.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(super) enum RawControl {
    /// The leader has sent all.
    Done(Totals),
    /// The follower's counts: messages that it has received, requests that it has posted, and
    /// messages from another process for which its device found no posted receive.
    Received { received: ReceivedCounts, operations: u64, missed: Option<u64> },
    /// Results for the follower to print, and the signal that has ended the leader early.
    Results(Vec<ResultLine>, #[serde(default)] Option<String>),
}

/// Counts of the messages that have arrived.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ReceivedCounts {
    /// Messages, each counted once.
    pub(super) messages: u64,
    pub(super) reordered: u64,
    pub(super) repeated: u64,
}

/// Counts of the messages that the leader has sent.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
pub(super) struct Totals {
    /// Messages, by queue pair.
    pub(super) sent: Vec<u64>,
}

impl Totals {
    /// Messages of all queue pairs.
    pub(super) fn messages(&self) -> Result<u64> {
        let sum = self.sent.iter().try_fold(0_u64, |sum, sent| sum.checked_add(*sent));
        sum.context("the other end says that it has sent more messages than can be counted")
    }
}

/// Context of the error of a queue pair that has failed, for whatever reason.
pub(super) const LOST: &str = "the peer was lost";
pub(super) const UNRECEIVED: &str = "a receive failed";

/// Reports whether the error that an end tells is only a symptom of a failure at the other end.
fn is_symptom(why: &str) -> bool {
    ["the other end: ", LOST, UNRECEIVED].iter().any(|symptom| why.starts_with(symptom))
}

const ENDED: &str = "the other end has gone: look why it has ended, and start both again";
/// Longest time that an end that has failed waits for the other end to tell the cause.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Tells the other end of a failure, and asks there for its cause: an end that has gone, or
/// has failed before, breaks queue pairs here.
pub(super) fn cause(wire: &mut RawChannel, failure: CommandError) -> CommandError {
    wire.give_up(&failure);
    let is_gone = failure.to_string() == GONE;
    let is_lost = failure.downcast_ref().is_some_and(|error: &WcError| {
        [WcStatus::RETRY_EXC, WcStatus::WR_FLUSH, WcStatus::REM_OP, WcStatus::REM_ACCESS]
            .contains(&error.status)
    });
    if !is_gone && !is_lost {
        return failure;
    }
    match wire.last_words(LAST_WORDS) {
        LastWords::Why(why) if !is_symptom(&why) => anyhow!("the other end: {why}"),
        LastWords::Gone if is_gone => anyhow!(ENDED),
        LastWords::Gone => failure.context(ENDED),
        LastWords::Why(_) | LastWords::Nothing => failure,
    }
}

#[cfg(test)]
mod tests;
