//! Policies of a Direct Write connection.

use conn_core::direct_write::{Layout, MAX_BUFFERS, MAX_MESSAGE};

use crate::common::{Common, has_common};
use crate::error::{ConfigError, check, check_in, chosen};
use crate::qp::Inline;
use crate::wait::WaitStrategy;

/// Way in which a receiver finds messages. The receiving end chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Detection {
    /// By an immediate, which takes a receive request, and wakes a receiver that sleeps.
    Immediate,
    /// By the trailer at the end of the buffer, which the receiver polls: the lowest latency. A
    /// receiver that waits for long sleeps briefly, and looks again. On a device that does not
    /// write the bytes of a request in order, the trailer takes a work request of its own.
    Polled,
}

/// Policies of one end of a Direct Write connection. The ends may differ: they exchange and check
/// the common terms when they connect.
///
/// ```
/// use rdma_conn::direct_write::{Config, Detection};
///
/// let config = Config { buffers: 16, message_bytes: 512, ..Config::low_latency() };
/// assert_eq!(config.detection, Detection::Polled);
/// config.validate().unwrap();
/// assert!(Config { buffers: 0, ..config }.validate().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Settings that every connection has.
    pub common: Common,
    /// Buffers that this end receives in, for each peer: messages that a sender may be ahead.
    pub buffers: u32,
    /// The longest message that this end receives or sends, in bytes. A sender also keeps to its
    /// receiver's limit.
    pub message_bytes: u32,
    /// The most buffers of a peer that this end has slots for, 24 bytes each. A receiver with
    /// more of them is refused.
    pub max_peer_buffers: u32,
    /// Way in which this end finds messages.
    pub detection: Detection,
    /// Messages posted with one doorbell; 1 posts every message in the call that accepts it. With
    /// more, the last ones go out by [`flush`](crate::SendHalf::flush), and in every call that
    /// waits.
    pub batch: u32,
    /// Work requests on their way at most, each with memory for a message.
    pub send_queue: u32,
    /// One in this number of requests is signalled; 0 chooses (a quarter of `send_queue`).
    pub signal_every: u32,
    /// Messages that travel inside their work request.
    pub inline: Inline,
}

has_common!(Config);

impl Default for Config {
    /// Immediates, so that receivers may sleep; 128 buffers for messages of up to 8 KiB.
    fn default() -> Config {
        Config {
            common: Common::default(),
            buffers: 128,
            message_bytes: 8 << 10,
            max_peer_buffers: 4096,
            detection: Detection::Immediate,
            batch: 1,
            send_queue: 128,
            signal_every: 0,
            inline: Inline::Auto,
        }
    }
}

impl Config {
    /// The smallest send queue: a message takes up to two requests.
    pub const MIN_SEND_QUEUE: u32 = 2;
    /// The longest send queue.
    pub const MAX_SEND_QUEUE: u32 = 16_384;

    /// Messages are polled for, and neither end ever sleeps: for the lowest latency.
    #[must_use]
    pub fn low_latency() -> Config {
        Config {
            detection: Detection::Polled,
            common: Common { wait: WaitStrategy::Spin, ..Common::default() },
            ..Config::default()
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its range, with the range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (peer_buffers, queue) = (self.max_peer_buffers, self.send_queue);
        check_in("buffers", self.buffers, 1..=MAX_BUFFERS, "1 to 65536")?;
        check_in("max_peer_buffers", peer_buffers, 1..=MAX_BUFFERS, "1 to 65536")?;
        check_in("message_bytes", self.message_bytes, ..=MAX_MESSAGE, "at most 1073741824")?;
        let range = Self::MIN_SEND_QUEUE..=Self::MAX_SEND_QUEUE;
        check_in("send_queue", queue, range, "2 to 16384")?;
        check_in("batch", self.batch, 1..=queue / 2, "1 to half of the send queue")?;
        let rule = "0 (choose) to the length of the send queue";
        check_in("signal_every", self.signal_every, ..=queue, rule)?;
        let window = self.detection == Detection::Polled || self.buffers < Self::MAX_SEND_QUEUE;
        check("buffers", self.buffers, window, "less than 16384 with immediates")?;
        self.common.validate()
    }

    /// `signal_every`, chosen where it was left open.
    pub(super) fn signal_interval(&self) -> u32 {
        chosen(self.signal_every, (self.send_queue / 4).max(1))
    }

    pub(super) fn layout(&self) -> Result<Layout, ConfigError> {
        let (value, rule) = (self.buffers.into(), "1 to 65536");
        let layout = Layout::new(self.buffers, self.message_bytes);
        layout.map_err(|_| ConfigError { field: "buffers", value, rule })
    }

    /// Receive requests of a link: one more, for the goodbye.
    pub(super) fn receives(&self) -> u32 {
        if self.detection == Detection::Immediate { self.buffers + 1 } else { 0 }
    }
}

#[cfg(test)]
mod tests;
