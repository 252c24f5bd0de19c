//! Direct Write, as the commands use it.

use std::time::Duration;

use anyhow::{Result, ensure};
use rdma_conn::device::Device;
use rdma_conn::direct_write::{Config, Detection, Receiver, Sender};
use rdma_conn::send_recv::Transport;
use rdma_conn::{DirectWrite, RecvHalf, WaitStrategy};

use super::ring::take_each;
use super::writer::{Worked, Writer};
use super::{Kind, Purpose, Receiving, Room, Taken};
use crate::cli::{ConnectionArgs, Protocol, Wait};
use crate::measure::Work;
use crate::outcome::{Outcome, by_flag_within};
use crate::settings::{Setting, direct_write as settings};

/// Buffers of long messages are many bytes: without other wishes there are so few of them that
/// they stay below this.
const BUFFER_BUDGET_BYTES: u64 = 4 << 20;

impl Kind for DirectWrite {
    const WHICH: Protocol = Protocol::DirectWrite;

    type Settings = Config;
    type SendEnd = Writer<Sender>;
    type RecvEnd = Receiver;

    const SETTINGS: &'static [Setting<Config>] = settings::SETTINGS;

    fn base(args: &ConnectionArgs, purpose: Purpose, size: u32) -> Config {
        let base = Config::default();
        let fits = (BUFFER_BUDGET_BYTES / u64::from(size.max(1))).clamp(4, 1024) as u32;
        let buffers = base.buffers.min(fits);
        let detection = match (purpose, args.wait) {
            (_, Wait::Block) | (Purpose::Stream, _) => base.detection,
            _ => Detection::Polled,
        };
        let batch = if purpose == Purpose::Throughput { (buffers / 8).clamp(1, 8) } else { 1 };
        let send_queue = base.send_queue.min(2 * buffers);
        Config { buffers, message_bytes: size, detection, batch, send_queue, ..base }
    }

    fn common(config: &mut Config) -> (&mut WaitStrategy, &mut Transport) {
        (&mut config.common.wait, &mut config.common.transport)
    }

    fn check(_: &ConnectionArgs, config: &Config, _: u32) -> Outcome {
        config.validate().map_err(|e| by_flag_within(&e, &[]))
    }

    fn check_told(config: &Config, size: u32) -> Result<()> {
        let buffers = config.buffers;
        ensure!((1..=1 << 16).contains(&buffers), "{buffers} buffers");
        ensure!(size <= config.message_bytes, "messages of {size} bytes in smaller buffers");
        Ok(())
    }

    fn room(config: &Config, senders: u32, _: Option<u32>, back: bool) -> Room {
        let buffers = u64::from(config.buffers) * u64::from(senders) * if back { 2 } else { 1 };
        let each = (u64::from(config.message_bytes) + 24).next_multiple_of(64);
        let bytes = buffers.saturating_mul(each);
        let what = format!("{buffers} buffers of {} bytes", config.message_bytes);
        Room { bytes, what, flags: "--size, --senders or --buffers" }
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
        take_each(self, time, each)
    }

    fn work(&self) -> Work {
        Work::requests(self.stats().work_requests)
    }

    fn registered_bytes(&self) -> u64 {
        RecvHalf::registered_bytes(self)
    }
}
