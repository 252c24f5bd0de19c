//! Policies of a Send/Receive connection, and the settings of them with which it was
//! evaluated.

use std::time::Duration;

use crate::wait::WaitStrategy;

/// The three configurations that Fischer compares ("Know Your Memory: RDMA-Based Protocols
/// for Data Exchange", 2021: "Send Receive", section Bandwidth).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Preset {
    /// One unacknowledged message.
    Sequential,
    /// Up to 64 unacknowledged messages, one doorbell each.
    Unbatched,
    /// Up to 256 unacknowledged messages, 8 to a doorbell.
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

/// How small messages travel inside their work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inline {
    /// Up to what the device grants, and at most 256 bytes of it: beyond that the
    /// copy into the work request costs more than the device's read.
    #[default]
    Auto,
    /// Never.
    Never,
    /// Up to so many bytes, if the device grants them.
    UpTo(
        /// Bytes.
        u32,
    ),
}

impl Inline {
    /// What to ask the device for.
    pub(crate) fn asked_bytes(self) -> u32 {
        match self {
            Inline::Auto => 256,
            Inline::Never => 0,
            Inline::UpTo(bytes) => bytes,
        }
    }
}

/// Policies of one end of a Send/Receive connection. The ends need not agree on
/// them: what has to fit is exchanged when they connect.
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
    /// Longest message that this end can receive, and that it asks the peer to
    /// receive, in bytes. Each receive buffer and each send slot has this size.
    pub message_bytes: u32,
    /// Unacknowledged messages at most; the send queue's depth without control.
    pub unacked: u32,
    /// Messages posted with one doorbell; `batch <= unacked`.
    pub batch: u32,
    /// Every so many sends ask for a completion; 0 chooses (a quarter of
    /// `unacked`, at least `batch`, at most 64).
    pub signal_every: u32,
    /// Receive buffers posted for the peer's messages (Fischer's k). One more is
    /// posted for its goodbye.
    pub recv_window: u32,
    /// Completions polled at a time (Fischer polls 32).
    pub poll_batch: u32,
    /// Receive buffers reposted with one doorbell; 0 chooses.
    pub repost_batch: u32,
    /// Freed and reposted buffers that are worth a credit message; 0 chooses half
    /// of `recv_window`. A sender that may be out of credits is told at once.
    pub credit_threshold: u32,
    /// Whether the receiver's credits limit the sender. Without them a receiver
    /// that falls behind causes RNR events: Fischer's mode, for measuring.
    pub credits: bool,
    /// Pack small messages into work requests of up to so many bytes; 0 does not.
    pub pack_bytes: u32,
    /// Which messages travel inside the work request.
    pub inline: Inline,
    /// How a waiting thread waits.
    pub wait: WaitStrategy,
    /// A wait in which nothing happens for so long (at least a millisecond) asks
    /// whether the peer's device still answers. Waits that time out before count
    /// together. A receiver also asks after each peer of which nothing has come for so
    /// long while others sent, or while it was only polled; a sender, while it was only
    /// tried to send without a credit.
    pub keepalive: Duration,
    /// How long dropping an end may wait for what was accepted to be delivered. Also how
    /// long a receiver keeps the queue pair of a sender that has said goodbye, unless it
    /// needs the place: the device's answer may have been lost, and has to be repeated.
    pub linger: Duration,
    /// The transport's behaviour towards a peer that does not answer.
    pub transport: Transport,
}

/// Attributes of the queue pairs. Each is set explicitly: what a device makes of
/// an attribute left at zero is rarely what one wants (0 as `min_rnr_timer` is
/// 655 ms).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transport {
    /// Port of the device, from 1.
    pub port: u8,
    /// Index in the port's GID table; `None` prefers the IPv4-mapped RoCE v2 GID.
    pub gid_index: Option<u32>,
    /// Time to an acknowledgement is 4.096 µs · 2^`timeout`; 14 is 67 ms.
    pub timeout: u8,
    /// Retries before `RETRY_EXC`, 0 to 7. To the kernel's rxe, 7 is for ever: a peer that
    /// has gone would never be missed.
    pub retry_count: u8,
    /// Retries after a receiver-not-ready before `RNR_RETRY_EXC`, 0 to 6; 7 is for
    /// ever and refused, because a wait has to end.
    pub rnr_retry: u8,
    /// Code of the time that the peer waits after our receiver-not-ready; 12 is
    /// 0.64 ms.
    pub min_rnr_timer: u8,
}

impl Default for Transport {
    fn default() -> Transport {
        Transport {
            port: 1,
            gid_index: None,
            timeout: 14,
            retry_count: 6,
            rnr_retry: 6,
            min_rnr_timer: 12,
        }
    }
}

impl Transport {
    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its range, with the range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check(
            "transport.timeout",
            self.timeout.into(),
            (1..32).contains(&self.timeout),
            "1 to 31",
        )?;
        check("transport.retry_count", self.retry_count.into(), self.retry_count < 8, "0 to 7")?;
        check("transport.rnr_retry", self.rnr_retry.into(), self.rnr_retry < 7, "0 to 6")?;
        let timer = (1..32).contains(&self.min_rnr_timer);
        check("transport.min_rnr_timer", self.min_rnr_timer.into(), timer, "1 to 31")?;
        check("transport.port", self.port.into(), self.port > 0, "from 1")
    }
}

impl Default for Config {
    /// The `batched` preset with messages of up to 4 KiB.
    fn default() -> Config {
        Config::preset(Preset::Batched)
    }
}

/// A configuration that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}: {rule}")]
pub struct ConfigError {
    /// The field of [`Config`].
    pub field: &'static str,
    /// What it was.
    pub value: u64,
    /// What it has to be.
    pub rule: &'static str,
}

impl Config {
    /// Most unacknowledged messages, and receive buffers, of one connection.
    pub const MAX_WINDOW: u32 = 16_384;
    /// Longest message, in bytes: what a registered slot of this library may hold.
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
            recv_window: (2 * unacked).max(4),
            poll_batch: 32,
            repost_batch: 0,
            credit_threshold: 0,
            credits: true,
            pack_bytes: 0,
            inline: Inline::Auto,
            wait: WaitStrategy::Adaptive,
            keepalive: Duration::from_secs(1),
            linger: Duration::from_secs(1),
            transport: Transport::default(),
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its range, with the range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let window = 1..=Self::MAX_WINDOW;
        check("unacked", self.unacked, window.contains(&self.unacked), "1 to 16384")?;
        check("recv_window", self.recv_window, window.contains(&self.recv_window), "1 to 16384")?;
        let batch = 1..=self.unacked;
        check("batch", self.batch, batch.contains(&self.batch), "1 to unacked")?;
        let signal = self.signal_every <= self.unacked;
        check("signal_every", self.signal_every, signal, "0 (choose) to unacked")?;
        let poll = 1..=Self::MAX_POLL_BATCH;
        check("poll_batch", self.poll_batch, poll.contains(&self.poll_batch), "1 to 1024")?;
        let repost = self.repost_batch <= self.recv_window;
        check("repost_batch", self.repost_batch, repost, "0 (choose) to recv_window")?;
        let threshold = self.credit_threshold <= self.recv_window;
        check("credit_threshold", self.credit_threshold, threshold, "0 (choose) to recv_window")?;
        let bytes = 1..=Self::MAX_MESSAGE_BYTES;
        let sized = bytes.contains(&self.message_bytes);
        check("message_bytes", self.message_bytes, sized, "1 to 1073741824")?;
        let pack = self.pack_bytes == 0 || (8..=self.message_bytes).contains(&self.pack_bytes);
        check("pack_bytes", self.pack_bytes, pack, "0 (off), or 8 to message_bytes")?;
        self.transport.validate()
    }

    /// `signal_every`, chosen where it was left open: often enough that slots come
    /// back in quarters of the window, rarely enough that completions are cheap.
    pub(crate) fn signal_interval(&self) -> u32 {
        match self.signal_every {
            0 => (self.unacked / 4).clamp(1, 64).max(self.batch),
            chosen => chosen,
        }
    }

    /// `repost_batch`, chosen where it was left open.
    pub(crate) fn repost_interval(&self) -> u32 {
        match self.repost_batch {
            0 => (self.recv_window / 4).clamp(1, 32),
            chosen => chosen,
        }
    }

    /// `credit_threshold`, chosen where it was left open.
    pub(crate) fn credit_interval(&self) -> u32 {
        match self.credit_threshold {
            0 => (self.recv_window / 2).max(1),
            chosen => chosen,
        }
    }
}

pub(super) fn check(
    field: &'static str,
    value: u32,
    ok: bool,
    rule: &'static str,
) -> Result<(), ConfigError> {
    if ok { Ok(()) } else { Err(ConfigError { field, value: value.into(), rule }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_those_of_the_evaluation() {
        let of = |p| (Config::preset(p).unacked, Config::preset(p).batch);
        assert_eq!(of(Preset::Sequential), (1, 1));
        assert_eq!(of(Preset::Unbatched), (64, 1));
        assert_eq!(of(Preset::Batched), (256, 8));
        for preset in Preset::ALL {
            Config::preset(preset).validate().unwrap();
            assert_eq!(preset.name().parse(), Ok(preset));
        }
        assert!("fast".parse::<Preset>().is_err());
    }

    #[test]
    fn every_field_out_of_range_is_named() {
        let ok = Config::default();
        let transport = ok.transport;
        let cases = [
            ("unacked", Config { unacked: 0, ..ok }),
            ("unacked", Config { unacked: 16_385, ..ok }),
            ("recv_window", Config { recv_window: 0, ..ok }),
            ("batch", Config { batch: 257, ..ok }),
            ("batch", Config { batch: 0, ..ok }),
            ("signal_every", Config { signal_every: 257, ..ok }),
            ("poll_batch", Config { poll_batch: 0, ..ok }),
            ("repost_batch", Config { repost_batch: 513, ..ok }),
            ("credit_threshold", Config { credit_threshold: 513, ..ok }),
            ("message_bytes", Config { message_bytes: 0, ..ok }),
            ("message_bytes", Config { message_bytes: u32::MAX, ..ok }),
            ("pack_bytes", Config { pack_bytes: 7, ..ok }),
            ("pack_bytes", Config { pack_bytes: 8192, ..ok }),
            (
                "transport.timeout",
                Config { transport: Transport { timeout: 0, ..transport }, ..ok },
            ),
            (
                "transport.retry_count",
                Config { transport: Transport { retry_count: 8, ..transport }, ..ok },
            ),
            (
                "transport.rnr_retry",
                Config { transport: Transport { rnr_retry: 7, ..transport }, ..ok },
            ),
            (
                "transport.min_rnr_timer",
                Config { transport: Transport { min_rnr_timer: 0, ..transport }, ..ok },
            ),
            ("transport.port", Config { transport: Transport { port: 0, ..transport }, ..ok }),
        ];
        for (field, config) in cases {
            assert_eq!(config.validate().unwrap_err().field, field);
        }
    }
}
