//! Direct Write, as the commands use it.

use anyhow::{Result, ensure};
use base::outcome::CommandResult;
use rdma_conn::DirectWrite;
use rdma_conn::direct_write::{Config, Detection, Receiver, Sender};

use super::worked::Worked;
use super::writer::by_writer;
use super::{MeasuredProtocol, Purpose, SessionMemory};
use crate::cli::{ConnectionArgs, ProtocolKind, WaitFlag};
use crate::measure::{LoadShape, Work};
use crate::protocol::by_flag::by_flag_within;
use crate::settings::direct_write as settings;

/// Buffers of long messages are many bytes: without other wishes there are so few of them that
/// they stay below this.
const BUFFER_BUDGET_BYTES: u64 = 4 << 20;

impl MeasuredProtocol for DirectWrite {
    const WHICH: ProtocolKind = ProtocolKind::DirectWrite;

    by_writer!();

    fn base(args: &ConnectionArgs, purpose: Purpose, size: u32) -> Config {
        let base = Config::default();
        let fits = (BUFFER_BUDGET_BYTES / u64::from(size.max(1))).clamp(4, 1024) as u32;
        let buffers = base.buffers.min(fits);
        let detection = match (purpose, args.wait) {
            (_, WaitFlag::Block) | (Purpose::Stream, _) => base.detection,
            _ => Detection::Polled,
        };
        let batch = if purpose == Purpose::Throughput { (buffers / 8).clamp(1, 8) } else { 1 };
        let send_queue = base.send_queue.min(2 * buffers);
        Config { buffers, message_bytes: size, detection, batch, send_queue, ..base }
    }

    fn check(_: &ConnectionArgs, config: &Config, _: u32) -> CommandResult {
        config.validate().map_err(|e| by_flag_within(&e, &[]))
    }

    fn check_told(config: &Config, size: u32) -> Result<()> {
        let buffers = config.buffers;
        ensure!((1..=1 << 16).contains(&buffers), "{buffers} buffers");
        ensure!(size <= config.message_bytes, "messages of {size} bytes in smaller buffers");
        Ok(())
    }

    fn room(config: &Config, shape: LoadShape, back: bool) -> SessionMemory {
        let buffers =
            u64::from(config.buffers) * u64::from(shape.senders) * if back { 2 } else { 1 };
        let each = (u64::from(config.message_bytes) + 24).next_multiple_of(64);
        let bytes = buffers.saturating_mul(each);
        let what = format!("{buffers} buffers of {} bytes", config.message_bytes);
        SessionMemory { bytes, what, flags: "--size, --senders or --buffers" }
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
