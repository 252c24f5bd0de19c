//! The parameters of the performance model, as they were measured.

use serde::{Deserialize, Serialize};

/// The parameters of a device as `calibrate` measures them, in nanoseconds; of a device that takes
/// a card's time more slowly, those of the card.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq)]
pub(crate) struct Calibration {
    /// The processor posts a request: one, and one of a list of 8.
    pub(crate) o_snd_ns: f64,
    pub(crate) o_snd_batched_ns: f64,
    /// The processor takes a completion: one, and one of 32.
    pub(crate) o_rcv_ns: f64,
    pub(crate) o_rcv_batched_ns: f64,
    /// The processor takes a message of at most 32 bytes, in addition.
    #[serde(default)]
    pub(crate) o_small_ns: f64,
    /// The processor posts a receive: one, and one of a list of 8.
    pub(crate) o_post_ns: f64,
    pub(crate) o_post_batched_ns: f64,
    /// From a post of one byte to its completion, without the post and the poll.
    pub(crate) g_ns: f64,
    /// From a post of one byte to its arrival, without the post and the poll: the network and both
    /// cards.
    pub(crate) l_ns: f64,
    /// A byte of long messages that follow each other, and of one alone.
    pub(crate) gap_per_byte_ns: f64,
    #[serde(default)]
    pub(crate) gap_per_byte_alone_ns: f64,
    /// The card handles a message of a stream: of several queue pairs, of one, and of several that
    /// receive from a shared queue, of 64 bytes each.
    #[serde(default)]
    pub(crate) o_nic_ns: f64,
    #[serde(default)]
    pub(crate) o_queue_ns: f64,
    #[serde(default)]
    pub(crate) o_srq_ns: f64,
    /// From the post of a READ of one byte to its completion, without the post and the poll.
    #[serde(default)]
    pub(crate) g_read_ns: f64,
    /// READs of a queue pair under way, as many as the device permits, up to 16.
    #[serde(default)]
    pub(crate) reads: f64,
}
