//! Buffered Write, as the commands use it.

use std::time::Duration;

use anyhow::Result;
use rdma_conn::RecvHalf;
use rdma_conn::buffered_write::{Config, Receiver, Sender, Tail};
use rdma_conn::device::Device;
use rdma_conn::ring::RingShape;
use rdma_conn::send_recv::Transport;
use rdma_conn::{BufferedWrite, WaitStrategy};

use super::ring::{by_flag, check_told, room, shape, take_each};
use super::writer::{Worked, Writer};
use super::{Kind, Purpose, Receiving, Room, Taken};
use crate::cli::{ConnectionArgs, Protocol, Wait};
use crate::measure::Work;
use crate::outcome::Outcome;
use crate::settings::{Setting, buffered_write as settings};

/// Bytes that gather before the peer is told of them, where throughput is wanted: of short
/// messages fewer than a core's cache holds, of long ones so many that the reader does not
/// follow close behind the writer.
fn gathered_bytes(size: u32) -> u32 {
    if size < LONG { 8 << 10 } else { 128 << 10 }
}

/// Messages from this size on are written straight from where they are, and hardly ever
/// gather in a cache.
const LONG: u32 = 4 << 10;

/// How the tail is told: by a write of its own where that is faster, unless waiting threads sleep.
fn tail(args: &ConnectionArgs, purpose: Purpose, size: u32) -> Tail {
    let is_fast = (purpose == Purpose::Latency || size >= LONG) && args.wait != Wait::Block;
    if is_fast { Tail::Written } else { Config::default().tail }
}

/// A ring: for a stream of long messages one of which both ends' caches hold a part, so that
/// neither waits for lines that the other one has.
fn stream_shape(purpose: Purpose, size: u32, base: RingShape) -> RingShape {
    let shape = shape(size, base);
    let is_stream = purpose == Purpose::Throughput && size >= LONG;
    let least = if is_stream { 4 << 20 } else { 0 };
    RingShape { ring_bytes: shape.ring_bytes.max(least), ..shape }
}

impl Kind for BufferedWrite {
    const WHICH: Protocol = Protocol::BufferedWrite;

    type Settings = Config;
    type SendEnd = Writer<Sender>;
    type RecvEnd = Receiver;

    const SETTINGS: &'static [Setting<Config>] = settings::SETTINGS;

    fn base(args: &ConnectionArgs, purpose: Purpose, size: u32) -> Config {
        let base = Config::default();
        let ring = stream_shape(purpose, size, base.ring);
        Config {
            ring,
            max_peer_ring_bytes: base.max_peer_ring_bytes.max(ring.ring_bytes),
            tail: tail(args, purpose, size),
            batch_bytes: if purpose == Purpose::Throughput { gathered_bytes(size) } else { 0 },
            ..base
        }
    }

    fn common(config: &mut Config) -> (&mut WaitStrategy, &mut Transport) {
        (&mut config.common.wait, &mut config.common.transport)
    }

    fn check(args: &ConnectionArgs, config: &Config, _: u32) -> Outcome {
        config.validate().map_err(|e| by_flag(&e, args, config.ring))
    }

    fn check_told(config: &Config, size: u32) -> Result<()> {
        check_told(config.ring.ring_bytes, size)
    }

    fn room(config: &Config, senders: u32, _: Option<u32>, back: bool) -> Room {
        room(config.ring.ring_bytes, senders, back)
    }

    fn config(settings: &Config) -> &Config {
        settings
    }

    fn send_end(sender: Sender, _: &Device, _: &Config) -> Writer<Sender> {
        sender.into()
    }

    fn recv_end(receiver: Receiver, _: &Device, _: &Config, _: u32) -> Receiver {
        receiver
    }

    fn receiver_of(end: &mut Receiver) -> &mut Receiver {
        end
    }
}

impl Worked for Sender {
    fn work(&self) -> Work {
        let stats = self.stats();
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
        take_each(self, time, each)
    }

    fn work(&self) -> Work {
        Work::requests(self.stats().work_requests)
    }

    fn registered_bytes(&self) -> u64 {
        RecvHalf::registered_bytes(self)
    }
}
