//! Buffered Read, as the commands use it.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, ensure};
use rdma_conn::buffered_read::{self, BufferedRead, Config, Incoming, Receiver, Sender};
use rdma_conn::device::Device;
use rdma_conn::ring::RingShape;
use rdma_conn::send_recv::{ConnectError, Peer, RecvError, SendError, SharedPool, Transport};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::ring::{by_flag, shape, take_each};
use super::{Described, Duplex, Kind, Purpose, Receiving, Room, Sending, Taken, Wish, Work};
use crate::args::{Common, ConnectionArgs};
use crate::bench::{Crowd, Load, Measured, crowd};
use crate::outcome::Outcome;
use crate::session::{Flag, number, shown, switch};

impl From<buffered_read::Connection> for Duplex<BufferedRead> {
    fn from(made: buffered_read::Connection) -> Duplex<BufferedRead> {
        Duplex { sender: made.sender, receiver: made.receiver }
    }
}

impl Kind for BufferedRead {
    const NAME: &'static str = "buffered-read";
    const UNDERSTANDS: &'static [&'static str] = &[
        "--ring-bytes",
        "--head-threshold",
        "--reads",
        "--max-read-bytes",
        "--no-reads-ahead",
        "--sending-threads",
        "--receiving-threads",
    ];

    type Config = Config;
    type Wish = Wanted;
    type Sender = Sender;
    type Receiver = Receiver;

    fn config(common: &Common, args: &ConnectionArgs, _: Purpose, size: u32) -> Config {
        let base = Config::default();
        let ring = shape(args, size, base.ring);
        Config {
            ring,
            peer_ring_bytes: base.peer_ring_bytes.max(ring.ring_bytes),
            max_read_bytes: args.max_read_bytes.unwrap_or(base.max_read_bytes),
            reads: args.reads.unwrap_or(base.reads),
            ahead: !args.no_reads_ahead,
            head_threshold: args.head_threshold.map_or(base.head_threshold, u64::from),
            wait: args.wait.strategy(),
            transport: Transport { gid_index: common.gid_index, ..base.transport },
            ..base
        }
    }

    fn check(args: &ConnectionArgs, config: &Config, _: u32) -> Outcome {
        config.validate().map_err(|e| by_flag(&e, args, config.ring))
    }

    fn wish(_: &ConnectionArgs, config: &Config) -> Wanted {
        Wanted {
            ring_bytes: config.ring.ring_bytes,
            head_threshold: config.head_threshold,
            max_read_bytes: config.max_read_bytes,
            reads: config.reads,
            ahead: config.ahead,
        }
    }

    fn asked(args: &ConnectionArgs) -> Vec<Flag> {
        let flags = [
            number("--ring-bytes", args.ring_bytes),
            number("--head-threshold", args.head_threshold),
            number("--max-read-bytes", args.max_read_bytes),
            number("--reads", args.reads),
            args.no_reads_ahead.then(|| ("--no-reads-ahead", switch(true))),
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
            peer_ring_bytes: own.peer_ring_bytes.max(wish.ring_bytes),
            head_threshold: wish.head_threshold,
            max_read_bytes: wish.max_read_bytes,
            reads: wish.reads,
            ahead: wish.ahead,
            ..own
        }
    }

    fn describe(config: &Config) -> Described {
        let mut described = Described::new();
        let mut add = |name: &str, value| drop(described.insert(name.into(), value));
        add("ring_bytes", json!(config.ring.ring_bytes));
        add("max_read_bytes", json!(config.max_read_bytes));
        add("reads", json!(config.reads));
        add("reads_ahead", json!(config.ahead));
        if config.head_threshold > 0 {
            add("head_threshold", json!(config.head_threshold));
        }
        described
    }

    fn title(config: &Config) -> String {
        let ahead = if config.ahead { ", ahead" } else { "" };
        let (ring, reads) = (config.ring.ring_bytes >> 10, config.reads);
        format!(
            "a ring of {ring} KiB, up to {reads} READs of {} bytes{ahead}",
            config.max_read_bytes
        )
    }

    fn receiver(
        _: &Device,
        config: &Config,
        peers: u32,
        _: Option<&SharedPool>,
    ) -> Result<Receiver, ConnectError> {
        buffered_read::receiver(config, peers)
    }

    fn join(
        receiver: &mut Receiver,
        _: Option<&SharedPool>,
        device: &Device,
        config: &Config,
    ) -> Result<Sender, ConnectError> {
        buffered_read::join(receiver, device, device, config)
    }

    fn crowd(device: &Device, config: &Config, crowd: Crowd, load: &Load) -> Result<Measured> {
        crowd::measure(device, config, crowd, load)
    }

    fn pair(device: &Device, config: &Config) -> Result<(Duplex<Self>, Duplex<Self>)> {
        let (near, far) = buffered_read::pair(device, device, config)?;
        Ok((near.into(), far.into()))
    }

    fn connect_sender(
        stream: &mut TcpStream,
        device: &Device,
        config: &Config,
        application: &[u8],
    ) -> Result<Sender, ConnectError> {
        buffered_read::connect_sender_over(stream, device, config, application)
    }

    fn connect(
        stream: &mut TcpStream,
        device: &Device,
        config: &Config,
        application: &[u8],
    ) -> Result<Duplex<Self>, ConnectError> {
        buffered_read::connect_over(stream, device, config, application).map(Into::into)
    }

    fn accept(
        incoming: Incoming,
        device: &Device,
        config: &Config,
    ) -> Result<Duplex<BufferedRead>, ConnectError> {
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

/// The sender's ring, and how it is to be read.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    #[serde(rename = "r")]
    ring_bytes: u64,
    #[serde(rename = "h")]
    head_threshold: u64,
    #[serde(rename = "m")]
    max_read_bytes: u32,
    #[serde(rename = "n")]
    reads: u32,
    #[serde(rename = "a")]
    ahead: bool,
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
        Room {
            bytes: rings.saturating_mul(self.ring_bytes),
            what,
            flags: "--ring-bytes or --senders",
        }
    }

    fn flags(&self, _: Purpose) -> Vec<Flag> {
        vec![
            ("--ring-bytes", shown(&self.ring_bytes)),
            ("--head-threshold", shown(&self.head_threshold)),
            ("--max-read-bytes", shown(&self.max_read_bytes)),
            ("--reads", shown(&self.reads)),
            ("--no-reads-ahead", switch(!self.ahead)),
        ]
    }
}

impl Sending for Sender {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.send_async(message)?;
        Ok(())
    }

    #[inline]
    fn send_with(&mut self, bytes: usize, mut fill: impl FnMut(&mut [u8])) -> Result<()> {
        match self.try_send_with(bytes, &mut fill) {
            Err(SendError::Full(_)) => {
                let mut room = self.reserve(bytes)?;
                fill(&mut room);
                room.send(bytes)?;
            }
            done => drop(done?),
        }
        Ok(())
    }

    /// Straight into the ring.
    fn send_up_to(
        &mut self,
        scratch: &mut [u8],
        mut fill: impl FnMut(&mut [u8]) -> Result<usize>,
    ) -> Result<usize> {
        let mut room = self.reserve(scratch.len())?;
        let bytes = fill(&mut room)?;
        if bytes > 0 {
            room.send(bytes)?;
        }
        Ok(bytes)
    }

    #[inline]
    fn flush(&mut self) -> Result<()> {
        Ok(Sender::flush(self)?)
    }

    fn wait_all(&mut self) -> Result<()> {
        Ok(Sender::wait_all(self)?)
    }

    fn close(self) -> Result<()> {
        Ok(Sender::close(self)?)
    }

    fn work(&self) -> Work {
        Work::requests(self.stats().work_requests)
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
        let stats = self.stats();
        let (transfers, transferred) = (stats.reads, stats.read_bytes);
        Work { operations: stats.work_requests, transfers, transferred }
    }

    fn registered_bytes(&self) -> u64 {
        Receiver::registered_bytes(self)
    }
}
