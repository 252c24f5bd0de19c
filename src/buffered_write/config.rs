//! Policies of a Buffered Write connection.

use conn_core::buffered_write::MAX_CAPACITY;

use crate::common::{Common, has_common};
use crate::error::{ConfigError, check_in, chosen};
use crate::qp::Inline;
use crate::ring::RingShape;
use crate::wait::WaitStrategy;

/// Way in which the sender tells a receiver its tail: the position up to which it has written. The
/// receiving end chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tail {
    /// With the data, as the immediate of their last WRITE: one request a push, and a
    /// receiver that sleeps is woken by it.
    Immediate {
        /// Receives posted for it: the number of pushes that the sender may be ahead. The receiver
        /// returns them in halves, so the sender has at least half of them when the receiver
        /// pauses.
        window: u32,
    },
    /// By a WRITE of its own behind the data, which the receiver polls: two requests a push,
    /// and the lowest latency. A receiver that waits for long sleeps briefly, and looks again.
    Written,
}

/// Policies of one end of a Buffered Write connection. The ends may differ: they exchange and check
/// the common terms when they connect.
///
/// ```
/// use rdma_conn::buffered_write::{Config, Tail};
///
/// let config = Config { batch_bytes: 8192, ..Config::low_latency() };
/// assert_eq!(config.tail, Tail::Written);
/// config.validate().unwrap();
/// assert!(Config { send_queue: 2, ..config }.validate().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Settings that every connection has.
    pub common: Common,
    /// The ring that this end receives in; at most 1 GiB. The peer makes one like it.
    pub ring: RingShape,
    /// The largest ring of a peer for which this end makes one like it, in bytes.
    pub max_peer_ring_bytes: u64,
    /// Way in which the peer's sender tells this end its tail.
    pub tail: Tail,
    /// Gathered bytes that cause a push; 0 pushes every message at once, in the call that accepts
    /// it. [`flush`](crate::SendHalf::flush), and every call that waits, pushes fewer.
    pub batch_bytes: u32,
    /// Work requests on their way at most.
    pub send_queue: u32,
    /// Interval of signalled requests; 0 chooses a quarter of `send_queue`.
    pub signal_every: u32,
    /// Pushes that travel inside their work request.
    pub inline: Inline,
    /// Freed bytes that are worth telling the sender; 0 chooses a quarter of the ring. A
    /// sender that may be waiting is told of any freed bytes at once.
    pub head_threshold: u64,
    /// Completions polled at a time.
    pub poll_batch: u32,
}

has_common!(Config);

impl Default for Config {
    /// Immediates, so that receivers may sleep; a ring of 1 MiB; every message is pushed at
    /// once.
    fn default() -> Config {
        Config {
            ring: RingShape::default(),
            max_peer_ring_bytes: 64 << 20,
            tail: Tail::Immediate { window: 512 },
            batch_bytes: 0,
            send_queue: 128,
            signal_every: 0,
            inline: Inline::Auto,
            head_threshold: 0,
            poll_batch: 32,
            common: Common::default(),
        }
    }
}

impl Config {
    /// The smallest send queue: a push takes up to three requests.
    pub const MIN_SEND_QUEUE: u32 = 4;
    /// The longest send queue.
    pub const MAX_SEND_QUEUE: u32 = 16_384;

    /// The tail is written and polled, and neither end ever sleeps: for the lowest latency.
    #[must_use]
    pub fn low_latency() -> Config {
        Config {
            tail: Tail::Written,
            common: Common { wait: WaitStrategy::Spin, ..Common::default() },
            ..Config::default()
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its range, with the range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.ring.geometry()?;
        let bytes = self.ring.ring_bytes;
        check_in("ring_bytes", bytes, ..=MAX_CAPACITY, "at most 1073741824")?;
        if let Tail::Immediate { window } = self.tail {
            check_in("tail.window", window, 1..=Self::MAX_SEND_QUEUE, "1 to 16384")?;
        }
        let (range, queue) = (Self::MIN_SEND_QUEUE..=Self::MAX_SEND_QUEUE, self.send_queue);
        check_in("send_queue", queue, range, "4 to 16384")?;
        check_in("signal_every", self.signal_every, ..=queue, "0 (choose) to send_queue")?;
        check_in("head_threshold", self.head_threshold, ..=bytes, "0 (choose) to ring_bytes")?;
        check_in("poll_batch", self.poll_batch, 1..=1024, "1 to 1024")?;
        self.common.validate()
    }

    /// `signal_every`, chosen where it was left open.
    pub(crate) fn signal_interval(&self) -> u32 {
        chosen(self.signal_every, (self.send_queue / 4).max(1))
    }

    /// `head_threshold`, chosen where it was left open.
    pub(crate) fn told_bytes(&self) -> u64 {
        chosen(self.head_threshold, self.ring.ring_bytes / 4)
    }

    /// Receives for immediates; 0 where the tail is written.
    pub(crate) fn window(&self) -> u32 {
        match self.tail {
            Tail::Immediate { window } => window,
            Tail::Written => 0,
        }
    }
}

#[cfg(test)]
mod tests;
