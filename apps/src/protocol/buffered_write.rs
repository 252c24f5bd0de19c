//! Buffered Write, as the commands use it.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, ensure};
use rdma_conn::buffered_write::{self, BufferedWrite, Config, Incoming, Receiver, Sender, Tail};
use rdma_conn::device::Device;
use rdma_conn::ring::RingShape;
use rdma_conn::send_recv::{ConnectError, Peer, RecvError, SharedPool, Transport};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::ring::{by_flag, shape, take_each};
use super::{Described, Duplex, Kind, Purpose, Receiving, Room, Sending, Taken, Wish, Work};
use crate::args::{Common, ConnectionArgs, Tail as TailArg, Wait};
use crate::outcome::Outcome;
use crate::session::{Flag, number, shown, switch};

impl From<buffered_write::Connection> for Duplex<BufferedWrite> {
    fn from(made: buffered_write::Connection) -> Duplex<BufferedWrite> {
        Duplex { sender: made.sender.into(), receiver: made.receiver }
    }
}

/// What gathers before it is told where throughput is wanted: of short messages less than a
/// core's cache holds, of long ones so much that who reads them is not at the heels of who
/// writes them.
fn gathered_bytes(size: u32) -> u32 {
    if size < LONG { 8 << 10 } else { 128 << 10 }
}

/// Messages from this size on are written straight from where they are, and hardly ever
/// gather in a cache.
const LONG: u32 = 4 << 10;

/// How the tail is told: by a write of its own where that is faster, unless who waits sleeps.
fn tail(args: &ConnectionArgs, purpose: Purpose, size: u32, window: Option<u32>) -> Tail {
    let is_fast = (purpose == Purpose::Latency || size >= LONG) && args.wait != Wait::Block;
    let default = if is_fast { TailArg::Written } else { TailArg::Immediate };
    match (args.tail.unwrap_or(default), Config::default().tail) {
        (TailArg::Written, _) => Tail::Written,
        (TailArg::Immediate, Tail::Immediate { window: own }) => {
            Tail::Immediate { window: window.unwrap_or(own) }
        }
        (TailArg::Immediate, Tail::Written) => Tail::Immediate { window: window.unwrap_or(256) },
    }
}

fn tail_name(tail: Tail) -> &'static str {
    match tail {
        Tail::Immediate { .. } => "immediate",
        Tail::Written => "written",
    }
}

/// A ring: for a stream of long messages one of which both ends' caches hold a part, so that
/// neither waits for lines that the other one has.
fn stream_shape(args: &ConnectionArgs, purpose: Purpose, size: u32, base: RingShape) -> RingShape {
    let shape = shape(args, size, base);
    let is_stream = purpose == Purpose::Throughput && size >= LONG;
    let least = if is_stream && args.ring_bytes.is_none() { 4 << 20 } else { 0 };
    RingShape { ring_bytes: shape.ring_bytes.max(least), ..shape }
}

impl Kind for BufferedWrite {
    const NAME: &'static str = "buffered-write";
    const UNDERSTANDS: &'static [&'static str] = &[
        "--ring-bytes",
        "--head-threshold",
        "--tail",
        "--batch-bytes",
        "--recv-window",
        "--signal-every",
        "--inline",
        "--poll-batch",
    ];

    type Config = Config;
    type Wish = Wanted;
    type Sender = Writer;
    type Receiver = Receiver;

    fn config(common: &Common, args: &ConnectionArgs, purpose: Purpose, size: u32) -> Config {
        let base = Config::default();
        let ring = stream_shape(args, purpose, size, base.ring);
        let batch_bytes = if purpose == Purpose::Throughput { gathered_bytes(size) } else { 0 };
        Config {
            ring,
            max_peer_ring_bytes: base.max_peer_ring_bytes.max(ring.ring_bytes),
            tail: tail(args, purpose, size, args.recv_window),
            batch_bytes: args.batch_bytes.unwrap_or(batch_bytes),
            signal_every: args.signal_every.unwrap_or(base.signal_every),
            inline: args.inline_policy(),
            head_threshold: args.head_threshold.map_or(base.head_threshold, u64::from),
            poll_batch: args.poll_batch.unwrap_or(base.poll_batch),
            wait: args.wait.strategy(),
            transport: Transport { gid_index: common.gid_index, ..base.transport },
            ..base
        }
    }

    fn check(args: &ConnectionArgs, config: &Config, _: u32) -> Outcome {
        config.validate().map_err(|e| by_flag(&e, args, config.ring))
    }

    fn wish(_: &ConnectionArgs, config: &Config) -> Wanted {
        let window = match config.tail {
            Tail::Immediate { window } => Some(window),
            Tail::Written => None,
        };
        let Config { head_threshold, batch_bytes, .. } = *config;
        Wanted { ring_bytes: config.ring.ring_bytes, head_threshold, window, batch_bytes }
    }

    fn asked(args: &ConnectionArgs) -> Vec<Flag> {
        let tail = |tail| match tail {
            TailArg::Immediate => "immediate",
            TailArg::Written => "written",
        };
        let flags = [
            number("--ring-bytes", args.ring_bytes),
            number("--head-threshold", args.head_threshold),
            args.tail.map(|asked| ("--tail", tail(asked).to_owned())),
            number("--recv-window", args.recv_window),
            number("--batch-bytes", args.batch_bytes),
        ];
        flags.into_iter().flatten().collect()
    }

    fn hosted(
        common: &Common,
        args: &ConnectionArgs,
        purpose: Purpose,
        size: u32,
        wish: &Wanted,
    ) -> Config {
        let own = Self::config(common, args, purpose, size);
        Config {
            ring: RingShape { ring_bytes: wish.ring_bytes, ..own.ring },
            max_peer_ring_bytes: own.max_peer_ring_bytes.max(wish.ring_bytes),
            head_threshold: wish.head_threshold,
            tail: wish.window.map_or(Tail::Written, |window| Tail::Immediate { window }),
            batch_bytes: wish.batch_bytes,
            ..own
        }
    }

    fn describe(config: &Config) -> Described {
        let mut described = Described::new();
        let mut add = |name: &str, value| drop(described.insert(name.into(), value));
        add("ring_bytes", json!(config.ring.ring_bytes));
        add("tail", json!(tail_name(config.tail)));
        add("batch_bytes", json!(config.batch_bytes));
        if let Tail::Immediate { window } = config.tail {
            add("recv_window", json!(window));
        }
        if config.head_threshold > 0 {
            add("head_threshold", json!(config.head_threshold));
        }
        described
    }

    fn title(config: &Config) -> String {
        let (ring, batch) = (config.ring.ring_bytes >> 10, config.batch_bytes);
        let gathered = if batch > 0 { format!(", {batch} bytes gathered") } else { String::new() };
        match config.tail {
            Tail::Immediate { .. } => {
                format!("a ring of {ring} KiB, tails as immediates{gathered}")
            }
            Tail::Written => format!("a ring of {ring} KiB, tails written{gathered}"),
        }
    }

    fn receiver(
        device: &Device,
        config: &Config,
        peers: u32,
        _: Option<&SharedPool>,
    ) -> Result<Receiver, ConnectError> {
        buffered_write::receiver(device, config, peers)
    }

    fn join(
        receiver: &mut Receiver,
        _: Option<&SharedPool>,
        device: &Device,
        config: &Config,
    ) -> Result<Writer, ConnectError> {
        buffered_write::join(receiver, device, device, config).map(Into::into)
    }

    fn pair(device: &Device, config: &Config) -> Result<(Duplex<Self>, Duplex<Self>)> {
        let (near, far) = buffered_write::pair(device, device, config)?;
        Ok((near.into(), far.into()))
    }

    fn connect_sender(
        stream: &mut TcpStream,
        device: &Device,
        config: &Config,
        application: &[u8],
    ) -> Result<Writer, ConnectError> {
        let made = buffered_write::connect_sender_over(stream, device, config, application);
        made.map(Into::into)
    }

    fn connect(
        stream: &mut TcpStream,
        device: &Device,
        config: &Config,
        application: &[u8],
    ) -> Result<Duplex<Self>, ConnectError> {
        buffered_write::connect_over(stream, device, config, application).map(Into::into)
    }

    fn accept(
        incoming: Incoming,
        device: &Device,
        config: &Config,
    ) -> Result<Duplex<BufferedWrite>, ConnectError> {
        incoming.accept(device, config).map(Into::into)
    }

    fn accept_into(
        incoming: Incoming,
        receiver: &mut Receiver,
        _: Option<&SharedPool>,
        device: &Device,
        config: &Config,
    ) -> Result<(), ConnectError> {
        incoming.accept_into(receiver, device, config).map(drop)
    }
}

/// The receiver's ring, and how the sender tells its tail.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    #[serde(rename = "r")]
    ring_bytes: u64,
    #[serde(rename = "h")]
    head_threshold: u64,
    /// Receives for immediates, if the tail is told by these.
    #[serde(rename = "w")]
    window: Option<u32>,
    /// What the sender gathers, for the report of the other end.
    #[serde(rename = "b")]
    batch_bytes: u32,
}

impl Wish for Wanted {
    fn check(&self, size: u32) -> Result<()> {
        let (ring, most) = (self.ring_bytes, RingShape::MAX_BYTES);
        ensure!(ring <= most, "a ring of {ring} bytes: there may be {most}");
        ensure!(u64::from(size) < ring, "messages of {size} bytes in a ring of {ring}");
        Ok(())
    }

    fn room(&self, senders: u32, _: Option<u32>, back: bool) -> Room {
        let rings = u64::from(senders) * if back { 2 } else { 1 };
        let what = format!("{rings} rings of {} bytes", self.ring_bytes);
        let bytes = rings.saturating_mul(self.ring_bytes);
        Room { bytes, what, flags: "--ring-bytes or --senders" }
    }

    fn flags(&self, _: Purpose) -> Vec<Flag> {
        let tail = if self.window.is_some() { "immediate" } else { "written" };
        let window = self.window.map_or(switch(false), |window| window.to_string());
        vec![
            ("--ring-bytes", shown(&self.ring_bytes)),
            ("--head-threshold", shown(&self.head_threshold)),
            ("--tail", tail.into()),
            ("--recv-window", window),
            ("--batch-bytes", shown(&self.batch_bytes)),
        ]
    }
}

/// A sender, and where a message is made that is copied into its ring afterwards: a peer
/// may read the ring at any time, so that no slice of it is lent.
pub(crate) struct Writer {
    sender: Sender,
    scratch: Vec<u8>,
}

impl From<Sender> for Writer {
    fn from(sender: Sender) -> Writer {
        Writer { sender, scratch: Vec::new() }
    }
}

impl Sending for Writer {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.sender.send_async(message)?;
        Ok(())
    }

    #[inline]
    fn send_with(&mut self, bytes: usize, mut fill: impl FnMut(&mut [u8])) -> Result<()> {
        if self.scratch.len() < bytes {
            self.scratch.resize(bytes, 0);
        }
        fill(&mut self.scratch[..bytes]);
        self.sender.send_async(&self.scratch[..bytes])?;
        Ok(())
    }

    #[inline]
    fn flush(&mut self) -> Result<()> {
        Ok(self.sender.flush()?)
    }

    fn wait_all(&mut self) -> Result<()> {
        Ok(self.sender.wait_all()?)
    }

    fn close(self) -> Result<()> {
        Ok(self.sender.close()?)
    }

    fn work(&self) -> Work {
        let stats = self.sender.stats();
        let (transfers, transferred) = (stats.pushes, stats.pushed_bytes);
        Work { operations: stats.work_requests, transfers, transferred }
    }
}

impl Receiving for Receiver {
    #[inline]
    fn take(
        &mut self,
        time: Option<Duration>,
        each: impl FnMut(u32, &[u8]) -> Result<()>,
    ) -> Result<Taken> {
        take_each!(self, time, each)
    }

    fn work(&self) -> Work {
        Work::requests(self.stats().work_requests)
    }

    fn registered_bytes(&self) -> u64 {
        Receiver::registered_bytes(self)
    }
}
