//! Flags of the settings, and the values that a command line gives them.

use base::cli::values::byte_count;
use clap::Args as ClapArgs;
use rdma_conn::send_recv::{Preset, UnknownPreset};
use serde::Serialize;
use serde_json::{Map, Value};

use super::words::{ACKS, DETECTIONS, SIGNALS, TAILS, parser};

/// Help headings of flags that only some connections have.
const QUEUES: &str = "Queues of Send/Receive (a part of this is for the others, too)";
const RINGS: &str = "Buffered Read and Buffered Write";

/// Settings that were given on a command line: each field is the flag of its name.
#[derive(ClapArgs, Serialize, Debug, Clone, Default)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct GivenSettings {
    /// Send/Receive: settings to start from: sequential (1 unacknowledged message), unbatched
    /// (64) or batched (256, 8 to a doorbell), with fewer of long messages [default: batched; of
    /// pingpong: up to 8, one to a doorbell]
    #[arg(long, value_name = "NAME", value_parser = preset)]
    pub(crate) preset: Option<String>,
    /// Unacknowledged messages at most [default: the preset's, or less if messages are long; of
    /// Direct Read 32, or less; of its pingpong 1]
    #[arg(long, value_name = "N", help_heading = QUEUES)]
    pub(crate) unacked: Option<u32>,
    /// Messages posted with one doorbell [default: the preset's: 8 of batched, else 1; of bench
    /// over Direct Write and Shared Write up to 8]
    #[arg(long, value_name = "N", help_heading = QUEUES)]
    pub(crate) batch: Option<u32>,
    /// Number of sends of which one is signalled [default: chosen]
    #[arg(long, value_name = "N", help_heading = QUEUES)]
    signal_every: Option<u32>,
    /// Receive buffers posted for each sender [default: twice --unacked]
    #[arg(long, value_name = "K", help_heading = QUEUES)]
    pub(crate) recv_depth: Option<u32>,
    /// Completions polled at a time [default: 32]
    #[arg(long, value_name = "N", help_heading = QUEUES)]
    poll_batch: Option<u32>,
    /// Receive buffers reposted with one doorbell [default: chosen]
    #[arg(long, value_name = "N", help_heading = QUEUES)]
    repost_batch: Option<u32>,
    /// Pack small messages into sends of up to BYTES; 0: do not [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = byte_count, help_heading = QUEUES)]
    pack: Option<u32>,
    /// Send messages of up to BYTES inside their work request; 0: none [default: chosen]
    #[arg(long, value_name = "BYTES", value_parser = byte_count, help_heading = QUEUES)]
    inline: Option<u32>,
    /// No flow control: a receiver that falls behind causes RNR events
    #[arg(long, help_heading = QUEUES)]
    no_credits: bool,
    /// Bytes of the ring, a power of two [default: 1 MiB, of Buffered Read 2 MiB, or more for
    /// long messages: bench has 4 MiB for Buffered Write's from 4 KiB on]
    #[arg(long, value_name = "BYTES", value_parser = byte_count, help_heading = RINGS)]
    pub(crate) ring_bytes: Option<u32>,
    /// Freed bytes that are worth telling the sender; 0: a quarter of the ring [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = byte_count, help_heading = RINGS)]
    head_threshold: Option<u32>,
    /// Buffered Read: READs of data in flight at once, 1 to 16 [default: 4]
    #[arg(long, value_name = "N", help_heading = RINGS)]
    reads: Option<u32>,
    /// Buffered Read: the longest READ [default: 512k]
    #[arg(long, value_name = "BYTES", value_parser = byte_count, help_heading = RINGS)]
    max_read_bytes: Option<u32>,
    /// Buffered Read: do not prefetch; READ only when all messages were handed out
    #[arg(long, help_heading = RINGS)]
    no_prefetch: bool,
    /// Buffered Write: how the sender tells how far it has written: with the data, as an
    /// immediate, which wakes a receiver; or behind them, to be polled, which is faster [default:
    /// immediate; of pingpong, and of messages from 4 KiB on: written, unless there is --wait
    /// block]
    #[arg(long, value_name = "HOW", value_parser = parser(TAILS), help_heading = RINGS)]
    tail: Option<String>,
    /// Buffered Write: gathered bytes that are worth a transfer; 0: each message has one
    /// [default: chosen]
    #[arg(long, value_name = "BYTES", value_parser = byte_count, help_heading = RINGS)]
    batch_bytes: Option<u32>,
    /// Means by which the sender learns that a message was read [default: write]
    #[arg(long, value_name = "HOW", value_parser = parser(ACKS), help_heading = "Direct Read")]
    ack: Option<String>,
    /// Place of the acknowledgement flag of a message [default: separate]
    #[arg(long, value_name = "WHERE", value_parser = parser(SIGNALS), help_heading = "Direct Read")]
    signal_at: Option<String>,
    /// Buffers of the receiver for each sender [default: 128, or fewer of long messages]
    #[arg(long, value_name = "N", help_heading = "Direct Write")]
    buffers: Option<u32>,
    /// Means by which the receiver finds messages [default: polled; of pipe, and with --wait block:
    /// immediate]
    #[arg(long, value_name = "HOW", value_parser = parser(DETECTIONS), help_heading = "Direct Write")]
    detection: Option<String>,
    /// Extents of the receiver's ring, for all its senders together: at least 2 for each sender
    /// [default: 256, or fewer of long messages; for many senders of bench, 2 for each]
    #[arg(long, value_name = "N", help_heading = "Shared Write")]
    pub(crate) extents: Option<u32>,
    /// Bytes of an extent, a multiple of 64; 0: chosen [default: 16k, or room for four messages]
    #[arg(long, value_name = "BYTES", value_parser = byte_count, help_heading = "Shared Write")]
    extent_bytes: Option<u32>,
}

fn preset(name: &str) -> Result<String, UnknownPreset> {
    name.parse::<Preset>().map(|preset| preset.name().to_owned())
}

impl GivenSettings {
    /// The values that were given, by flag: `--no-credits` is that there are none.
    pub(super) fn by_flag(&self) -> Map<String, Value> {
        let fields = serde_json::to_value(self).unwrap_or_default();
        let fields = fields.as_object().into_iter().flatten();
        fields
            .filter_map(|(name, value)| match value {
                Value::Null | Value::Bool(false) => None,
                Value::Bool(true) => Some((format!("--{name}"), Value::Bool(false))),
                value => Some((format!("--{name}"), value.clone())),
            })
            .collect()
    }

    /// The preset of Send/Receive that was given.
    pub(crate) fn preset(&self) -> Option<Preset> {
        self.preset.as_deref().and_then(|name| name.parse().ok())
    }

    /// The flags that were given.
    pub(crate) fn names(&self) -> Vec<String> {
        self.by_flag().into_iter().map(|(flag, _)| flag).collect()
    }
}
