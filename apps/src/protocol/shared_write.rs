//! Shared Write, as the commands use it.

use anyhow::{Result, ensure};
use base::outcome::{CommandResult, usage};
use rdma_conn::SharedWrite;
use rdma_conn::conn_core::shared_write::Layout;
use rdma_conn::shared_write::{Config, Receiver, Sender};

use super::worked::Worked;
use super::writer::by_writer;
use super::{MeasuredProtocol, Purpose, SessionMemory};
use crate::cli::{ConnectionArgs, ProtocolKind};
use crate::measure::figures::counted_as;
use crate::measure::{LoadShape, Work};
use crate::protocol::by_flag::by_flag_within;
use crate::settings::shared_write as settings;

/// Extents for long messages are many bytes: by default there are so few of them that they stay
/// below this.
const RING_BUDGET_BYTES: u32 = 8 << 20;
/// Send slots of long messages, likewise.
const SEND_BUDGET_BYTES: u32 = 4 << 20;
/// The least extents for each peer of a receiver.
const EXTENTS_OF_A_PEER: u32 = 2;
/// Bytes of an extent for messages of `size` bytes, where none were given.
fn extent_bytes(size: u32) -> u32 {
    Config { message_bytes: size, extent_bytes: 0, ..Config::default() }.chosen_extent_bytes()
}

impl MeasuredProtocol for SharedWrite {
    const WHICH: ProtocolKind = ProtocolKind::SharedWrite;

    by_writer!();

    fn base(_: &ConnectionArgs, purpose: Purpose, size: u32) -> Config {
        let base = match purpose {
            Purpose::Throughput | Purpose::Stream => Config::default(),
            Purpose::Latency => Config::low_latency(),
        };
        let extent_bytes = extent_bytes(size);
        let extents = base.extents.min((RING_BUDGET_BYTES / extent_bytes).max(4));
        let send_queue = base.send_queue.min((SEND_BUDGET_BYTES / size.max(1)).max(6));
        let batch = if purpose == Purpose::Throughput { (send_queue / 16).clamp(1, 8) } else { 1 };
        Config { extents, extent_bytes, message_bytes: size, batch, send_queue, ..base }
    }

    fn suit(config: Config, _: &ConnectionArgs, _: Purpose, size: u32) -> Config {
        match config.extent_bytes {
            0 => Config { extent_bytes: extent_bytes(size), ..config },
            _ => config,
        }
    }

    fn suit_peers(config: Config, args: &ConnectionArgs, peers: u32) -> Config {
        let least = if args.given.extents.is_some() { 0 } else { EXTENTS_OF_A_PEER * peers };
        Config { extents: config.extents.max(least), ..config }
    }

    fn check(_: &ConnectionArgs, config: &Config, _: u32) -> CommandResult {
        config.validate().map_err(|e| by_flag_within(&e, &[]))?;
        Self::check_peers(config, 1)
    }

    fn check_peers(config: &Config, peers: u32) -> CommandResult {
        let (has, least) = (config.extents, EXTENTS_OF_A_PEER * peers);
        if has >= least {
            return Ok(());
        }
        let senders = counted_as(peers.into(), "sender", "senders");
        Err(usage(format!("--extents {has}: it may be {least} or more with {senders}")))
    }

    fn check_told(config: &Config, size: u32) -> Result<()> {
        config.validate()?;
        let most = config.message_bytes;
        ensure!(size <= most, "messages of {size} bytes, which are over {most}");
        Ok(())
    }

    fn room(config: &Config, shape: LoadShape, back: bool) -> SessionMemory {
        let Config { extents, extent_bytes, message_bytes, .. } = *config;
        let receivers = shape.receivers();
        let ring = Layout::new(extents, extent_bytes, message_bytes, shape.peers());
        let rings = u64::from(receivers) * if back { 2 } else { 1 };
        let bytes = ring.map_or(u64::MAX, |ring| ring.bytes().saturating_mul(rings));
        let what = format!("{rings} rings of {extents} extents of {extent_bytes} bytes");
        SessionMemory { bytes, what, flags: "--extents or --extent-bytes" }
    }
}

impl Worked for Sender {
    fn work(&self) -> Work {
        Work::requests(self.stats().work_requests)
    }
}

impl Worked for Receiver {
    fn work(&self) -> Work {
        Work::requests(self.stats().work_requests)
    }
}
