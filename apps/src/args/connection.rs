//! What a connection is told.

use std::sync::LazyLock;

use clap::builder::PossibleValue;
use clap::{Args as ClapArgs, ValueEnum};
use rdma_conn::WaitStrategy;
use rdma_conn::conn_core::pack::{Packer, RECORD_HEADER};
use rdma_conn::direct_read::{AckMode, SignalAt};
use rdma_conn::send_recv::{Config, Inline, Preset, Transport};

use super::Common;
use crate::outcome::{Outcome, usage};
use crate::protocol::Protocol;

/// Where the help has what only some connections have.
const QUEUES: &str = "Queues of Send/Receive (a part of this is for the others, too)";
const RINGS: &str = "Buffered Read and Buffered Write";
const DIRECT_READ: &str = "Direct Read";

/// Options of a connection, for every command that makes one.
#[derive(ClapArgs, Debug, Clone)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArgs {
    /// Connection to use: send-recv, buffered-read, buffered-write or direct-read
    /// [default: send-recv; of pipe: buffered-read]
    #[arg(long, value_name = "NAME", value_parser = super::values::protocol)]
    pub(crate) protocol: Option<Protocol>,
    /// Send/Receive: settings to start from: sequential (1 unacknowledged message), unbatched (64) or
    /// batched (256, 8 to a doorbell) [default: batched; of pingpong: up to 8, one to a doorbell]
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<Preset>,
    /// Unacknowledged messages at most [default: the preset's, or less if messages are long; of
    /// Direct Read 32, or less; of its pingpong 1]
    #[arg(long, value_name = "N", help_heading = QUEUES)]
    pub(crate) unacked: Option<u32>,
    /// Messages posted with one doorbell [default: the preset's: 8 of batched, else 1]
    #[arg(long, value_name = "N", help_heading = QUEUES)]
    pub(crate) batch: Option<u32>,
    /// How to wait
    #[arg(long, value_enum, default_value_t)]
    pub(crate) wait: Wait,
    /// Every so many sends ask for a completion [default: chosen]
    #[arg(long, value_name = "N", help_heading = QUEUES)]
    pub(crate) signal_every: Option<u32>,
    /// Receive buffers posted for each sender [default: twice --unacked]
    #[arg(long, value_name = "K", help_heading = QUEUES)]
    pub(crate) recv_window: Option<u32>,
    /// Completions polled at a time [default: 32]
    #[arg(long, value_name = "N", help_heading = QUEUES)]
    pub(crate) poll_batch: Option<u32>,
    /// Receive buffers reposted with one doorbell [default: chosen]
    #[arg(long, value_name = "N", help_heading = QUEUES)]
    pub(crate) repost_batch: Option<u32>,
    /// Pack small messages into sends of up to BYTES; 0: do not [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = super::values::byte_count, help_heading = QUEUES)]
    pub(crate) pack: Option<u32>,
    /// Send messages of up to BYTES inside their work request; 0: none [default: chosen]
    #[arg(long, value_name = "BYTES", value_parser = super::values::byte_count, help_heading = QUEUES)]
    pub(crate) inline: Option<u32>,
    /// No flow control: a receiver that falls behind causes RNR events
    #[arg(long, help_heading = QUEUES)]
    pub(crate) no_credits: bool,
    /// How the sender learns that a message was read [default: write]
    #[arg(long, value_enum, value_name = "HOW", help_heading = DIRECT_READ)]
    pub(crate) ack: Option<Ack>,
    /// Where the signal of a message is, which says so [default: separate]
    #[arg(long, value_enum, value_name = "WHERE", help_heading = DIRECT_READ)]
    pub(crate) signal_at: Option<Signal>,
    /// Bytes of the ring, a power of two [default: 1 MiB, of Buffered Read 2 MiB, or more
    /// for long messages: bench has 4 MiB for Buffered Write's from 4 KiB on]
    #[arg(long, value_name = "BYTES", value_parser = super::values::byte_count, help_heading = RINGS)]
    pub(crate) ring_bytes: Option<u32>,
    /// Freed bytes that are worth telling the sender; 0: a quarter of the ring [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = super::values::byte_count, help_heading = RINGS)]
    pub(crate) head_threshold: Option<u32>,
    /// Buffered Read: READs of data in flight at once, 1 to 16 [default: 4]
    #[arg(long, value_name = "N", help_heading = RINGS)]
    pub(crate) reads: Option<u32>,
    /// Buffered Read: the longest READ [default: 512k]
    #[arg(long, value_name = "BYTES", value_parser = super::values::byte_count, help_heading = RINGS)]
    pub(crate) max_read_bytes: Option<u32>,
    /// Buffered Read: read on only when all messages were handed out
    #[arg(long, help_heading = RINGS)]
    pub(crate) no_reads_ahead: bool,
    /// Buffered Write: how the sender tells how far it has written: with the data, as an
    /// immediate, which wakes a receiver; or behind them, to be polled, which is faster
    /// [default: immediate; of pingpong, and of messages from 4 KiB on: written, unless there is
    /// --wait block]
    #[arg(long, value_enum, value_name = "HOW", help_heading = RINGS)]
    pub(crate) tail: Option<Tail>,
    /// Buffered Write: gathered bytes that are worth a transfer; 0: each message has one
    /// [default: chosen]
    #[arg(long, value_name = "BYTES", value_parser = super::values::byte_count, help_heading = RINGS)]
    pub(crate) batch_bytes: Option<u32>,
}

/// How Buffered Write tells its tail.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// As the immediate of the last WRITE
    Immediate,
    /// By a WRITE of its own
    Written,
}

/// How a thread waits.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Wait {
    /// Poll, never sleep
    Spin,
    /// Sleep on the completion channel at once
    Block,
    /// Poll for 50 µs, then sleep
    #[default]
    Adaptive,
}

/// How a message that was read is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack(pub(crate) AckMode);

impl ValueEnum for Ack {
    fn value_variants<'a>() -> &'a [Ack] {
        static ALL: LazyLock<[Ack; AckMode::ALL.len()]> = LazyLock::new(|| AckMode::ALL.map(Ack));
        &*ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            AckMode::FencedWrite => "A WRITE behind each READ, held back by a fence",
            AckMode::Write => "A WRITE for each READ, when that has completed",
            AckMode::Send => "A SEND when READs have completed",
            AckMode::Cumulative => "A WRITE of how many were read, for many messages",
            AckMode::Pull => "The sender READs how many were read, when it needs buffers",
        };
        Some(PossibleValue::new(self.0.name()).help(help))
    }
}

/// Where the signal of a message is.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Behind the message's buffer
    Tail,
    /// In memory of its own
    Separate,
}

impl Signal {
    pub(crate) fn place(self) -> SignalAt {
        match self {
            Signal::Tail => SignalAt::Tail,
            Signal::Separate => SignalAt::Separate,
        }
    }
}

impl ConnectionArgs {
    /// The connection that was asked for, or Send/Receive.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol.unwrap_or(Protocol::SendRecv)
    }

    /// The configuration of Send/Receive for messages of `message_bytes`, from the preset and what
    /// overrules it.
    pub(crate) fn send_recv(&self, common: &Common, preset: Preset, message_bytes: u32) -> Config {
        let preset = Config::preset(self.preset.unwrap_or(preset));
        let unacked = self.unacked.unwrap_or(preset.unacked);
        let window = if self.unacked.is_some() { (2 * unacked).max(4) } else { preset.recv_window };
        let pack = self.pack.unwrap_or(0);
        Config {
            message_bytes: message_bytes.max(pack).max(1),
            unacked,
            batch: self.batch.unwrap_or(preset.batch.min(unacked)),
            signal_every: self.signal_every.unwrap_or(preset.signal_every),
            recv_window: self.recv_window.unwrap_or(window),
            poll_batch: self.poll_batch.unwrap_or(preset.poll_batch),
            repost_batch: self.repost_batch.unwrap_or(preset.repost_batch),
            pack_bytes: pack,
            inline: self.inline_policy(),
            credits: !self.no_credits,
            wait: self.wait.strategy(),
            transport: Transport { gid_index: common.gid_index, ..preset.transport },
            ..preset
        }
    }

    /// A message that no pack holds is the command line's fault.
    pub(crate) fn check_pack(&self, message_bytes: u32) -> Outcome {
        match self.pack {
            Some(pack) if pack > 0 && Packer::new(pack).largest() < Some(message_bytes) => {
                let needed = u64::from(message_bytes) + u64::from(RECORD_HEADER);
                Err(usage(format!(
                    "--pack {pack} does not hold a message of {message_bytes} bytes: {needed} would"
                )))
            }
            _ => Ok(()),
        }
    }

    /// The flags that were given, of those that not every connection has.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let flags = [
            ("--preset", self.preset.is_some()),
            ("--unacked", self.unacked.is_some()),
            ("--batch", self.batch.is_some()),
            ("--signal-every", self.signal_every.is_some()),
            ("--recv-window", self.recv_window.is_some()),
            ("--poll-batch", self.poll_batch.is_some()),
            ("--repost-batch", self.repost_batch.is_some()),
            ("--pack", self.pack.is_some()),
            ("--inline", self.inline.is_some()),
            ("--no-credits", self.no_credits),
            ("--ack", self.ack.is_some()),
            ("--signal-at", self.signal_at.is_some()),
            ("--ring-bytes", self.ring_bytes.is_some()),
            ("--head-threshold", self.head_threshold.is_some()),
            ("--reads", self.reads.is_some()),
            ("--max-read-bytes", self.max_read_bytes.is_some()),
            ("--no-reads-ahead", self.no_reads_ahead),
            ("--tail", self.tail.is_some()),
            ("--batch-bytes", self.batch_bytes.is_some()),
        ];
        flags.into_iter().filter_map(|(flag, is_given)| is_given.then_some(flag)).collect()
    }

    /// Refuses flags that mean nothing to a verb without a connection.
    pub(crate) fn check_raw(&self) -> Outcome {
        let of_connections = [
            "--ack",
            "--signal-at",
            "--ring-bytes",
            "--head-threshold",
            "--reads",
            "--max-read-bytes",
            "--no-reads-ahead",
            "--tail",
            "--batch-bytes",
        ];
        match self.given().into_iter().find(|flag| of_connections.contains(flag)) {
            Some(flag) => Err(usage(format!("{flag} means nothing to --op: leave it out"))),
            None => Ok(()),
        }
    }

    /// What may travel inside work requests.
    pub(crate) fn inline_policy(&self) -> Inline {
        match self.inline {
            None => Inline::Auto,
            Some(0) => Inline::Never,
            Some(bytes) => Inline::UpTo(bytes),
        }
    }
}

impl Wait {
    pub(crate) fn strategy(self) -> WaitStrategy {
        match self {
            Wait::Spin => WaitStrategy::Spin,
            Wait::Block => WaitStrategy::Block,
            Wait::Adaptive => WaitStrategy::Adaptive,
        }
    }
}
