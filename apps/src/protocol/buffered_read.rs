//! Buffered Read, as the commands use it.

use anyhow::Result;
use base::outcome::CommandResult;
use rdma_conn::buffered_read::{Config, Receiver, Sender};
use rdma_conn::device::Device;
use rdma_conn::send_recv::{SendError, Transport};
use rdma_conn::{BufferedRead, WaitStrategy};
use rdma_conn::{Room as _, SendHalf as _};

use super::ring::{by_flag, check_told, room, shape};
use super::worked::Worked;
use super::{MeasuredProtocol, MeasuredSender, Purpose, SessionMemory, by_half};
use crate::cli::{ConnectionArgs, ProtocolKind};
use crate::measure::{Crowd, LoadShape, MessageLoad, RoundResult, Work, crowd};
use crate::settings::{Setting, buffered_read as settings};

impl MeasuredProtocol for BufferedRead {
    const WHICH: ProtocolKind = ProtocolKind::BufferedRead;

    type Settings = Config;
    type SendEnd = Sender;
    type RecvEnd = Receiver;

    const SETTINGS: &'static [Setting<Config>] = settings::SETTINGS;

    fn base(_: &ConnectionArgs, _: Purpose, size: u32) -> Config {
        let base = Config::default();
        let ring = shape(size, base.ring);
        Config { ring, peer_ring_bytes: base.peer_ring_bytes.max(ring.ring_bytes), ..base }
    }

    fn common(config: &mut Config) -> (&mut WaitStrategy, &mut Transport) {
        (&mut config.common.wait, &mut config.common.transport)
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

    fn crowd(
        device: &Device,
        config: &Config,
        crowd: Crowd,
        load: &MessageLoad,
    ) -> Result<RoundResult> {
        crowd::measure(device, config, crowd, load)
    }
}

impl MeasuredSender for Sender {
    by_half!();

    #[inline]
    fn send_with(&mut self, bytes: usize, mut fill: impl FnMut(&mut [u8])) -> Result<()> {
        match self.try_send_with(bytes, &mut fill) {
            Err(SendError::Full(_)) => {
                let mut room = self.reserve(bytes)?;
                fill(&mut room);
                room.commit(bytes)?;
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
            room.commit(bytes)?;
        }
        Ok(bytes)
    }

    fn work(&self) -> Work {
        Work::requests(self.stats().work_requests)
    }
}

impl Worked for Receiver {
    fn work(&self) -> Work {
        let stats = self.stats();
        let (transfers, transferred) = (stats.reads, stats.read_bytes);
        Work { operations: stats.work_requests, transfers, transferred }
    }
}
