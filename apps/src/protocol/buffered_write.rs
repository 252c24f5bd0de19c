//! Buffered Write, as the commands use it.

use anyhow::Result;
use base::outcome::CommandResult;
use rdma_conn::BufferedWrite;
use rdma_conn::buffered_write::{Config, Receiver, Sender, Tail};
use rdma_conn::ring::RingShape;

use super::ring::{by_flag, check_told, room, shape};
use super::worked::Worked;
use super::writer::by_writer;
use super::{MeasuredProtocol, Purpose, SessionMemory};
use crate::cli::{ConnectionArgs, ProtocolKind, WaitFlag};
use crate::measure::{LoadShape, Work};
use crate::settings::buffered_write as settings;

/// Bytes that gather before the peer is told of them, where throughput is wanted: for short
/// messages less than a core's cache, for long ones enough that the reader does not follow close
/// behind the writer.
fn gathered_bytes(size: u32) -> u32 {
    if size < LONG { 8 << 10 } else { 128 << 10 }
}

/// Messages from this size on are written straight from where they are, and hardly ever
/// gather in a cache.
const LONG: u32 = 4 << 10;

/// Chooses how the tail is told: by a write of its own where that is faster, unless waiting threads
/// sleep.
fn tail(args: &ConnectionArgs, purpose: Purpose, size: u32) -> Tail {
    let is_fast = (purpose == Purpose::Latency || size >= LONG) && args.wait != WaitFlag::Block;
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

impl MeasuredProtocol for BufferedWrite {
    const WHICH: ProtocolKind = ProtocolKind::BufferedWrite;

    by_writer!();

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

    fn check(args: &ConnectionArgs, config: &Config, _: u32) -> CommandResult {
        config.validate().map_err(|e| by_flag(&e, args, config.ring))
    }

    fn check_told(config: &Config, size: u32) -> Result<()> {
        check_told(config.ring.ring_bytes, size)
    }

    fn room(config: &Config, shape: LoadShape, back: bool) -> SessionMemory {
        room(config.ring.ring_bytes, shape.senders, back)
    }
}

impl Worked for Sender {
    fn work(&self) -> Work {
        let stats = self.stats();
        let (transfers, transferred) = (stats.pushes, stats.pushed_bytes);
        Work { operations: stats.work_requests, transfers, transferred }
    }
}

impl Worked for Receiver {
    fn work(&self) -> Work {
        Work::requests(self.stats().work_requests)
    }
}
