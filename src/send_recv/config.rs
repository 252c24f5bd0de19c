//! Policies of a Send/Receive connection, and the settings of them with which it was
//! evaluated.

use crate::common::{Common, has_common};
use crate::error::{ConfigError, check, check_in, chosen};
use crate::qp::Inline;

/// The three configurations that Fischer compares ("Know Your Memory: RDMA-Based Protocols
/// for Data Exchange", 2021: "Send Receive", section Bandwidth).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Preset {
    /// One unacknowledged message.
    Sequential,
    /// Up to 64 unacknowledged messages, one doorbell each.
    Unbatched,
    /// Up to 256 unacknowledged messages, 8 to a doorbell: messages are gathered, so call
    /// [`flush`](crate::SendHalf::flush) before you wait for a reply.
    Batched,
}

impl Preset {
    /// All of them, from the slowest to the fastest.
    pub const ALL: [Preset; 3] = [Preset::Sequential, Preset::Unbatched, Preset::Batched];

    /// `sequential`, `unbatched` or `batched`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Preset::Sequential => "sequential",
            Preset::Unbatched => "unbatched",
            Preset::Batched => "batched",
        }
    }
}

impl std::str::FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Preset, UnknownPreset> {
        Preset::ALL.into_iter().find(|p| p.name() == name).ok_or(UnknownPreset)
    }
}

/// A name that is no preset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such preset: there are sequential, unbatched and batched")]
pub struct UnknownPreset;

/// Policies of one end of a Send/Receive connection. The ends may differ: they exchange and check
/// the common terms when they connect.
///
/// ```
/// use rdma_conn::send_recv::{Config, Preset};
///
/// let config = Config { message_bytes: 4096, ..Config::preset(Preset::Batched) };
/// assert_eq!((config.unacked, config.batch), (256, 8));
/// config.validate().unwrap();
/// assert!(Config { batch: 512, ..config }.validate().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Settings that every connection has.
    pub common: Common,
    /// Longest message that this end can receive, and that it asks the peer to
    /// receive, in bytes. Each receive buffer and each send slot has this size.
    pub message_bytes: u32,
    /// Unacknowledged messages at most; the send queue's depth without control.
    pub unacked: u32,
    /// Messages posted with one doorbell; `batch <= unacked`. With 1, each message is posted by the
    /// call that accepts it. With more, messages are gathered: a partial batch waits for
    /// [`flush`](crate::SendHalf::flush), or for a call of the sender that waits.
    pub batch: u32,
    /// Interval of signalled sends; 0 chooses a quarter of `unacked`, at least `batch`, at most 64.
    pub signal_every: u32,
    /// Receive buffers posted for the peer's messages (Fischer's k). One more is posted for its
    /// goodbye. A [`SharedPool`](super::SharedPool) has buffers of its own, and lends a sender up
    /// to `recv_depth` at a time.
    pub recv_depth: u32,
    /// Completions polled at a time (Fischer polls 32).
    pub poll_batch: u32,
    /// Receive buffers reposted with one doorbell; 0 chooses.
    pub repost_batch: u32,
    /// Freed and reposted buffers that are worth a credit message; 0 chooses half
    /// of `recv_depth`. A sender that may be out of credits is granted any at once.
    pub credit_threshold: u32,
    /// True if the receiver's credits limit the sender. Without them a receiver that falls behind
    /// causes RNR events: Fischer's mode, for measuring.
    pub credits: bool,
    /// Largest work request, in bytes, into which small messages are packed; 0 turns packing off.
    /// Packing gathers messages, as a `batch` of more than 1.
    pub pack_bytes: u32,
    /// Messages that travel inside the work request.
    pub inline: Inline,
}

has_common!(Config);

impl Default for Config {
    /// Up to 256 unacknowledged messages of up to 4 KiB, one to a doorbell: a message that is
    /// accepted goes out by itself. [`Preset::Batched`] sends more messages in a second, and
    /// has to be flushed.
    fn default() -> Config {
        Config { batch: 1, ..Config::preset(Preset::Batched) }
    }
}

impl Config {
    /// Most unacknowledged messages, and receive buffers, of one connection.
    pub const MAX_WINDOW: u32 = 16_384;
    /// Longest message, in bytes: the largest registered slot of this library.
    pub const MAX_MESSAGE_BYTES: u32 = 1 << 30;
    /// Most completions polled at a time.
    pub const MAX_POLL_BATCH: u32 = 1024;

    /// The settings of a [`Preset`], with messages of up to 4 KiB.
    #[must_use]
    pub fn preset(preset: Preset) -> Config {
        let (unacked, batch) = match preset {
            Preset::Sequential => (1, 1),
            Preset::Unbatched => (64, 1),
            Preset::Batched => (256, 8),
        };
        Config {
            message_bytes: 4096,
            unacked,
            batch,
            signal_every: 0,
            // Twice the sender's window: half of it is on the way back as credit
            // while the sender spends the other half.
            recv_depth: (2 * unacked).max(4),
            poll_batch: 32,
            repost_batch: 0,
            credit_threshold: 0,
            credits: true,
            pack_bytes: 0,
            inline: Inline::Auto,
            common: Common::default(),
        }
    }

    /// The settings of a preset for messages of up to `message_bytes`. Long messages take windows
    /// and batches of fewer: beyond some 512 KiB on their way, buffers do not stay in a
    /// processor's cache, and a message of 16 KiB gains nothing from a shared doorbell.
    ///
    /// ```
    /// use rdma_conn::send_recv::{Config, Preset};
    ///
    /// let config = Config::preset_for(Preset::Batched, 65_536);
    /// assert_eq!((config.unacked, config.batch, config.recv_depth), (8, 1, 16));
    /// assert_eq!(Config::preset_for(Preset::Batched, 16).unacked, 256);
    /// ```
    #[must_use]
    pub fn preset_for(preset: Preset, message_bytes: u32) -> Config {
        let config = Config::preset(preset);
        let held_by = |bytes: u32| bytes / message_bytes.max(1);
        let unacked = config.unacked.min(held_by(Self::WINDOW_BYTES).max(8));
        Config {
            message_bytes,
            unacked,
            batch: config.batch.min(held_by(Self::BATCH_BYTES).max(1)),
            recv_depth: config.recv_depth.min((2 * unacked).max(4)),
            ..config
        }
    }

    /// Bytes of messages on their way that [`preset_for`](Config::preset_for) permits, if they
    /// are more than 8 messages.
    const WINDOW_BYTES: u32 = 512 << 10;
    /// Bytes of messages that it gathers for one doorbell.
    const BATCH_BYTES: u32 = 16 << 10;

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its range, with the range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (depth, bytes) = (self.recv_depth, self.message_bytes);
        check_in("unacked", self.unacked, 1..=Self::MAX_WINDOW, "1 to 16384")?;
        check_in("recv_depth", depth, 1..=Self::MAX_WINDOW, "1 to 16384")?;
        check_in("batch", self.batch, 1..=self.unacked, "1 to unacked")?;
        check_in("signal_every", self.signal_every, ..=self.unacked, "0 (choose) to unacked")?;
        check_in("poll_batch", self.poll_batch, 1..=Self::MAX_POLL_BATCH, "1 to 1024")?;
        let rule = "0 (choose) to recv_depth";
        check_in("repost_batch", self.repost_batch, ..=depth, rule)?;
        check_in("credit_threshold", self.credit_threshold, ..=depth, rule)?;
        check_in("message_bytes", bytes, 1..=Self::MAX_MESSAGE_BYTES, "1 to 1073741824")?;
        let pack = self.pack_bytes == 0 || (8..=self.message_bytes).contains(&self.pack_bytes);
        check("pack_bytes", self.pack_bytes, pack, "0 (off), or 8 to message_bytes")?;
        self.common.validate()
    }

    /// `signal_every`, chosen where it was left open: often enough that slots come
    /// back in quarters of the window, rarely enough that completions are cheap.
    pub(crate) fn signal_interval(&self) -> u32 {
        chosen(self.signal_every, (self.unacked / 4).clamp(1, 64).max(self.batch))
    }

    /// `repost_batch`, chosen where it was left open.
    pub(crate) fn repost_interval(&self) -> u32 {
        chosen(self.repost_batch, (self.recv_depth / 4).clamp(1, 32))
    }

    /// `credit_threshold`, chosen where it was left open.
    pub(crate) fn credit_interval(&self) -> u32 {
        chosen(self.credit_threshold, (self.recv_depth / 2).max(1))
    }
}

#[cfg(test)]
mod tests;
