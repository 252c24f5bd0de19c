//! Send/Receive, as the commands use it.

use std::time::Duration;

use anyhow::{Result, ensure};
use base::outcome::{CommandResult, usage};
use rdma_conn::conn_core::pack::{Packer, RECORD_HEADER};
use rdma_conn::device::Device;
use rdma_conn::send_recv::{
    Config, Receiver, RecvError, SendError, Sender, SharedConfig, SharedPool, Transport,
};
use rdma_conn::{RecvHalf, SendHalf, SendRecv, WaitStrategy};

use super::{
    MeasuredProtocol, MeasuredReceiver, MeasuredSender, Purpose, SessionMemory, TURN, TakeOutcome,
    by_half,
};
use crate::cli::{ConnectionArgs, ProtocolKind};
use crate::limits::{ENTRY_BYTES, MOST_BUFFER_BYTES};
use crate::measure::{LoadShape, Work};
use crate::protocol::by_flag::by_flag;
use crate::settings::Setting;
use crate::settings::send_recv as settings;

/// Receive and send buffers of a large message are many bytes: without other wishes
/// the windows shrink so that they stay below this.
const BUFFER_BUDGET_BYTES: u64 = 128 << 20;

/// Without other wishes long messages have fewer buffers.
fn shrink(config: Config, args: &ConnectionArgs, size: u32) -> Config {
    // With two unacknowledged, there are five receive buffers.
    let has_room = u64::from(size) * 5 <= MOST_BUFFER_BYTES;
    let least = if has_room { 2 } else { 1 };
    let fits = (BUFFER_BUDGET_BYTES / u64::from(size.max(1)) / 3).max(least) as u32;
    if args.given.unacked.is_some() || config.unacked <= fits {
        return config;
    }
    let recv_depth = if args.given.recv_depth.is_none() { 2 * fits } else { config.recv_depth };
    Config { unacked: fits, batch: config.batch.min(fits), recv_depth, ..config }
}

/// Buffers of a ping-pong at one end, in bytes: so few that they stay in a cache.
const PINGPONG_BYTES: u64 = 256 << 10;

/// One message is on its way at a time, but its acknowledgement and its credit need not be
/// waited for before the next one: short messages have some buffers more.
fn for_latency(config: Config, args: &ConnectionArgs, size: u32) -> Config {
    let unacked = (PINGPONG_BYTES / u64::from(size.max(1))).clamp(1, 8) as u32;
    if args.given.preset.is_some() || args.given.unacked.is_some() || unacked == 1 {
        return shrink_window(config, args);
    }
    let recv_depth = args.given.recv_depth.unwrap_or(2 * unacked);
    Config { unacked, recv_depth, ..config }
}

/// As [`shrink`], where one message is on its way at a time.
fn shrink_window(config: Config, args: &ConnectionArgs) -> Config {
    let buffers = u64::from(config.recv_depth) + 1 + u64::from(config.unacked);
    let is_open = args.given.recv_depth.is_none() && config.unacked == 1;
    match is_open && buffers * u64::from(config.message_bytes) > MOST_BUFFER_BYTES {
        true => Config { recv_depth: 2, ..config },
        false => config,
    }
}

impl MeasuredProtocol for SendRecv {
    const WHICH: ProtocolKind = ProtocolKind::SendRecv;

    type Settings = Config;
    type SendEnd = Sender;
    type RecvEnd = Receiver;

    const SETTINGS: &'static [Setting<Config>] = settings::SETTINGS;
    const KEPT_BUFFERS: u32 = SharedConfig::KEPT;

    fn base(args: &ConnectionArgs, purpose: Purpose, size: u32) -> Config {
        let asked = args.given.preset();
        let preset = Config::preset_for(asked.unwrap_or(purpose.preset()), size);
        let unacked = args.given.unacked;
        Config {
            message_bytes: size.max(1),
            batch: preset.batch.min(unacked.unwrap_or(preset.unacked)),
            recv_depth: unacked.map_or(preset.recv_depth, |n| n.saturating_mul(2).max(4)),
            ..preset
        }
    }

    fn suit(config: Config, args: &ConnectionArgs, purpose: Purpose, size: u32) -> Config {
        match purpose {
            Purpose::Throughput | Purpose::Stream => shrink(config, args, size),
            Purpose::Latency => for_latency(config, args, size),
        }
    }

    fn common(config: &mut Config) -> (&mut WaitStrategy, &mut Transport) {
        (&mut config.common.wait, &mut config.common.transport)
    }

    fn check(_: &ConnectionArgs, config: &Config, size: u32) -> CommandResult {
        config.validate().map_err(|e| by_flag(&e, config))?;
        check_pack(config.pack_bytes, size)
    }

    fn check_told(config: &Config, size: u32) -> Result<()> {
        let (window, has) = (1..=Config::MAX_WINDOW, config.recv_depth);
        ensure!(
            window.contains(&has),
            "a window of {has} buffers: there may be {} to {}",
            window.start(),
            window.end()
        );
        let buffer = config.message_bytes;
        ensure!(size <= buffer, "messages of {size} bytes in buffers of {buffer}");
        Ok(())
    }

    fn clamp_settings(config: &mut Config) {
        config.repost_batch = config.repost_batch.min(config.recv_depth);
        config.signal_every = config.signal_every.min(config.unacked);
    }

    fn room(config: &Config, shape: LoadShape, back: bool) -> SessionMemory {
        let back = if back { u64::from(config.unacked) } else { 0 };
        let each = u64::from(config.recv_depth) + 1 + back;
        let shared = shape.srq.and(shape.srq_buffers);
        let buffers = (each * u64::from(shape.senders)).max(shared.map_or(0, u64::from));
        // The shortest ones take more in the queues than in memory.
        let bytes = buffers.saturating_mul(config.message_bytes.max(ENTRY_BYTES).into());
        let what = format!("{buffers} buffers of {} bytes", config.message_bytes);
        SessionMemory { bytes, what, flags: "--size, --senders, --recv-depth or --srq-buffers" }
    }

    fn pool(device: &Device, config: &Config, shape: LoadShape) -> Result<Option<SharedPool>> {
        let Some(reposting) = shape.srq else { return Ok(None) };
        let chosen = SharedConfig::new(config, shape.senders);
        let buffers = shape.srq_buffers.unwrap_or(chosen.buffers);
        let shared = SharedConfig { buffers, reposting, ..chosen };
        Ok(Some(SharedPool::new(device, shared)?))
    }

    fn pool_bytes(pool: &SharedPool) -> u64 {
        pool.registered_bytes()
    }

    fn config(settings: &Config) -> &Config {
        settings
    }

    fn send_end(sender: Sender, _: &Device, _: &Config) -> Sender {
        sender
    }

    fn recv_end(receiver: Receiver, _: &Device, _: &Config, _: u32) -> Receiver {
        receiver
    }

    fn receiver_of(end: &mut Receiver) -> &mut Receiver {
        end
    }
}

/// A message that no pack holds is the command line's fault.
fn check_pack(pack: u32, size: u32) -> CommandResult {
    if pack == 0 || Packer::new(pack).largest() >= Some(size) {
        return Ok(());
    }
    let needed = u64::from(size) + u64::from(RECORD_HEADER);
    Err(usage(format!("--pack {pack} does not hold a message of {size} bytes: {needed} would")))
}

impl MeasuredSender for Sender {
    by_half!();

    #[inline]
    fn send_with(&mut self, bytes: usize, mut fill: impl FnMut(&mut [u8])) -> Result<()> {
        loop {
            match self.try_send_with(bytes, &mut fill) {
                Err(SendError::Full(_)) => self.wait_for_room(bytes)?,
                done => return Ok(done.map(drop)?),
            }
        }
    }

    fn work(&self) -> Work {
        Work::requests(self.stats().work_requests)
    }
}

impl MeasuredReceiver for Receiver {
    #[inline]
    fn take(
        &mut self,
        time: Option<Duration>,
        mut each: impl FnMut(u32, &[u8]) -> Result<()>,
    ) -> Result<TakeOutcome> {
        let mut count = 0;
        while count < TURN {
            let message = match (self.try_recv(), time) {
                (Err(RecvError::Empty), Some(time)) if count == 0 => self.recv_timeout(time),
                (other, _) => other,
            };
            match message {
                Ok(message) => {
                    each(message.peer().0, &message)?;
                    self.free(message);
                }
                Err(RecvError::Empty | RecvError::TimedOut) => break,
                Err(RecvError::Closed) if count == 0 => return Ok(TakeOutcome::Closed),
                Err(RecvError::Closed) => break,
                Err(e) => return Err(e.into()),
            }
            count += 1;
        }
        Ok(if count > 0 { TakeOutcome::Some(count) } else { TakeOutcome::Nothing })
    }

    fn work(&self) -> Work {
        Work::requests(self.stats().work_requests)
    }

    fn registered_bytes(&self) -> u64 {
        RecvHalf::registered_bytes(self)
    }
}
