//! Control messages between two ends, over the stream of their handshake: when to begin, what was
//! sent, what has arrived.

use std::time::Duration;

use anyhow::anyhow;
use base::outcome::CommandError;
use base::session::{ControlChannel, LastWords, receiver_ended, sender_ended};
use rdma_conn::send_recv::CloseReason;
use rdma_conn::verbs_safe::WcStatus;
use serde::{Deserialize, Serialize};

use crate::measure::{ResultLine, Work};

/// Longest time, in all, that an end that has failed looks for the cause at the others.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The stream to the other end of a connection, once the handshake is over.
pub(crate) type SessionChannel = ControlChannel<ControlMessage>;

/// One control message.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) enum ControlMessage {
    /// All senders are there: begin.
    Begin,
    /// This process has sent `messages` messages.
    Sent {
        messages: u64,
        work: Work,
        /// The signal that has ended it early.
        #[serde(default)]
        interrupted: Option<String>,
    },
    /// Messages that arrived of all that all processes have sent, with the work of all ends. For a
    /// file: true if what arrived is equal to it.
    Arrived { messages: u64, work: Work, equal: Option<bool> },
    /// All of a stream was sent: its bytes, their checksum, and the work that it took.
    Streamed { bytes: u64, crc32: u32, work: Work },
    /// Result of a measurement, for the end that did not measure.
    Result(Box<ResultLine>),
}

/// Tells the other ends of a failure; what they tell may be its cause, which is returned.
pub(crate) fn cause<'w>(
    failure: CommandError,
    wires: impl IntoIterator<Item = &'w mut SessionChannel>,
) -> CommandError {
    let mut wires: Vec<&mut SessionChannel> = wires.into_iter().collect();
    // That it has stopped receiving the other end knows, and takes it for no cause.
    if !is_told(&failure) {
        wires.iter_mut().for_each(|wire| wire.give_up(&failure));
    }
    if !may_be_theirs(&failure) {
        return failure;
    }
    let each = LAST_WORDS / wires.len().max(1) as u32;
    let mut words = wires.iter_mut().map(|wire| wire.last_words(each));
    let why = words.find_map(|words| match words {
        LastWords::Why(why) => Some(why),
        LastWords::Nothing | LastWords::Gone => None,
    });
    match why {
        Some(why) => anyhow!("the other end: {why}"),
        None => failure.context(
            "the other end does not answer any more: look why it has ended, and start both again",
        ),
    }
}

/// Reports whether the other end has caused the failure, and told it.
fn is_told(failure: &CommandError) -> bool {
    sender_ended(failure).is_some_and(CloseReason::is_close)
}

/// The other end has closed the connection before it has answered.
#[derive(Debug, thiserror::Error)]
#[error("no answer: the connection is closed")]
pub(crate) struct HungUp;

/// Reports whether a failure may have its cause at another end.
fn may_be_theirs(failure: &CommandError) -> bool {
    if failure.is::<HungUp>() {
        return true;
    }
    let by_sending = sender_ended(failure).is_some_and(|ended| match ended {
        CloseReason::Closed | CloseReason::PeerClosed { .. } => true,
        // A receiver that is there and falls behind is no mystery.
        CloseReason::PeerLost(e) => e.cause.status != WcStatus::RNR_RETRY_EXC,
        _ => false,
    });
    by_sending || matches!(receiver_ended(failure), Some(CloseReason::PeerLost(_)))
}
