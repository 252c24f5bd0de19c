//! Direct Read, as the commands use it.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::outcome::{CommandResult, usage};
use rdma_conn::WaitStrategy;
use rdma_conn::device::Device;
use rdma_conn::direct_read::{
    self, Buffer, BufferConfig, DirectRead, Message, Outcome as Fate, ReadError, Reading, Receiver,
    RecvError, Sender, SignalAt,
};
use rdma_conn::send_recv::Transport;
use rdma_conn::{OfferedMessage, ZeroCopyRecv, ZeroCopySend};

use super::{
    MeasuredProtocol, MeasuredReceiver, MeasuredSender, Purpose, SessionMemory, TURN, TakeOutcome,
};
use crate::cli::{ConnectionArgs, ProtocolKind};
use crate::limits::ENTRY_BYTES;
use crate::measure::{LoadShape, Work};
use crate::settings::Setting;
use crate::settings::direct_read::{self as settings, DirectReadSettings};

/// Buffers of a large message are many bytes: without other wishes the window shrinks so
/// that they stay below this.
const BUFFER_BUDGET_BYTES: u64 = 128 << 20;

/// A buffer of the sender's, or of the receiver's.
fn new_buffer(config: &DirectReadSettings, device: &Device, is_offered: bool) -> Result<Buffer> {
    let signal = is_offered && config.policies.signal_at == SignalAt::Tail;
    let buffer = BufferConfig { peers_read: is_offered, signal };
    let buffer = device.pd().register_buffer(config.size as usize, buffer);
    buffer.with_context(|| format!("registering a buffer of {} bytes", config.size))
}

impl MeasuredProtocol for DirectRead {
    const WHICH: ProtocolKind = ProtocolKind::DirectRead;

    type Settings = DirectReadSettings;
    type SendEnd = OfferingSender;
    type RecvEnd = ReadingReceiver;

    const SETTINGS: &'static [Setting<DirectReadSettings>] = settings::SETTINGS;

    fn base(_: &ConnectionArgs, purpose: Purpose, size: u32) -> DirectReadSettings {
        let policies = direct_read::Config::default();
        let fits = (BUFFER_BUDGET_BYTES / u64::from(size.max(1))).max(2) as u32;
        let window = match purpose {
            Purpose::Throughput | Purpose::Stream => policies.window.min(fits),
            Purpose::Latency => 1,
        };
        DirectReadSettings { policies: direct_read::Config { window, ..policies }, size }
    }

    fn common(config: &mut DirectReadSettings) -> (&mut WaitStrategy, &mut Transport) {
        (&mut config.policies.common.wait, &mut config.policies.common.transport)
    }

    fn check(_: &ConnectionArgs, config: &DirectReadSettings, _: u32) -> CommandResult {
        let is_window = config.policies.validate();
        is_window.map_err(|e| usage(format!("--unacked {}: it may be {}", e.value, e.rule)))
    }

    fn check_told(config: &DirectReadSettings, size: u32) -> Result<()> {
        let (most, has) = (rdma_conn::conn_core::direct_read::MAX_WINDOW, config.policies.window);
        ensure!((1..=most).contains(&has), "a window of {has} messages");
        let buffer = config.size;
        ensure!(size <= buffer, "messages of {size} bytes in buffers of {buffer}");
        Ok(())
    }

    fn room(config: &DirectReadSettings, shape: LoadShape, back: bool) -> SessionMemory {
        let ways = if back { 2 } else { 1 };
        let buffers = u64::from(config.policies.window) * u64::from(shape.senders) * ways;
        let bytes = buffers.saturating_mul(config.size.max(ENTRY_BYTES).into());
        let what = format!("{buffers} buffers of {} bytes", config.size);
        SessionMemory { bytes, what, flags: "--size, --senders or --unacked" }
    }

    fn config(settings: &DirectReadSettings) -> &direct_read::Config {
        &settings.policies
    }

    fn send_end(sender: Sender, device: &Device, settings: &DirectReadSettings) -> OfferingSender {
        OfferingSender::new(sender, device, settings)
    }

    fn recv_end(
        receiver: Receiver,
        device: &Device,
        settings: &DirectReadSettings,
        peers: u32,
    ) -> ReadingReceiver {
        ReadingReceiver::new(receiver, device, settings, peers)
    }

    fn receiver_of(end: &mut ReadingReceiver) -> &mut Receiver {
        &mut end.receiver
    }
}

/// A sender, and the buffers that it offers.
#[derive(Debug)]
pub(crate) struct OfferingSender {
    sender: Sender,
    device: Device,
    config: DirectReadSettings,
    /// Buffers that are not on offer, a stack; whether they have the message that is sent again
    /// and again.
    free: Vec<(Buffer, bool)>,
    /// Number of buffers, on offer or not.
    buffers: u32,
    /// For each buffer on offer, true if it has that message: in the order of the offers, in which
    /// the buffers are returned.
    primed: VecDeque<bool>,
}

impl OfferingSender {
    fn new(sender: Sender, device: &Device, config: &DirectReadSettings) -> OfferingSender {
        let (device, config) = (device.clone(), *config);
        OfferingSender { sender, device, config, free: vec![], buffers: 0, primed: VecDeque::new() }
    }

    /// A buffer that may be filled: the one that was returned last, whose bytes are the likeliest
    /// to be in a cache. There are no more buffers than were on offer at a time, because one that
    /// is back is used before a new one is made.
    fn buffer(&mut self) -> Result<(Buffer, bool)> {
        if self.free.is_empty() {
            self.take_all()?;
        }
        if let Some(free) = self.free.pop() {
            return Ok(free);
        }
        if self.buffers < self.config.policies.window {
            self.buffers += 1;
            return Ok((new_buffer(&self.config, &self.device, true)?, false));
        }
        while self.free.is_empty() {
            self.take_one()?;
        }
        self.free.pop().context("a buffer that was returned")
    }

    /// Takes back all returned buffers.
    fn take_all(&mut self) -> Result<()> {
        while let Some((_, sent)) = self.sender.try_take()? {
            self.keep(sent)?;
        }
        Ok(())
    }

    /// Waits for the next one.
    fn take_one(&mut self) -> Result<()> {
        let sent = self.sender.wait_next()?;
        self.keep(sent)
    }

    fn keep(&mut self, sent: direct_read::Sent<Buffer>) -> Result<()> {
        ensure!(sent.outcome == Fate::Read, "a message was refused");
        let primed = self.primed.pop_front().unwrap_or(false);
        self.free.push((sent.buffer, primed));
        Ok(())
    }

    fn offer(&mut self, buffer: Buffer, bytes: usize, primed: bool) -> Result<()> {
        match self.sender.offer_part(buffer, 0..bytes, b"") {
            Ok(_) => {
                self.primed.push_back(primed);
                Ok(())
            }
            Err(not_sent) => Err(not_sent.error.into()),
        }
    }
}

impl MeasuredSender for OfferingSender {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.send_with(message.len(), |room| room.copy_from_slice(message))
    }

    /// The message is copied into each buffer once: a primed buffer still holds it.
    fn send_again(&mut self, message: &[u8]) -> Result<()> {
        let (mut buffer, primed) = self.buffer()?;
        if !primed {
            buffer[..message.len()].copy_from_slice(message);
        }
        self.offer(buffer, message.len(), true)
    }

    fn send_with(&mut self, bytes: usize, mut fill: impl FnMut(&mut [u8])) -> Result<()> {
        let (mut buffer, _) = self.buffer()?;
        fill(&mut buffer[..bytes]);
        self.offer(buffer, bytes, false)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn wait_all(&mut self) -> Result<()> {
        self.sender.wait_all()?;
        self.take_all()
    }

    fn close(self) -> Result<()> {
        Ok(self.sender.close_and_take().map(drop)?)
    }

    fn work(&self) -> Work {
        Work::requests(self.sender.stats().work_requests)
    }
}

/// A receiver, and the buffers that it reads into in turn.
#[derive(Debug)]
pub(crate) struct ReadingReceiver {
    receiver: Receiver,
    device: Device,
    config: DirectReadSettings,
    free: Vec<Buffer>,
    /// Number of buffers, and the most that there may be.
    buffers: u32,
    most: u32,
    readings: VecDeque<Reading>,
}

impl ReadingReceiver {
    fn new(
        receiver: Receiver,
        device: &Device,
        config: &DirectReadSettings,
        peers: u32,
    ) -> ReadingReceiver {
        let (device, config) = (device.clone(), *config);
        let most = config.policies.window.saturating_mul(peers);
        let readings = VecDeque::new();
        ReadingReceiver { receiver, device, config, free: vec![], buffers: 0, most, readings }
    }

    /// Begins to read all that is asked for, as long as there are buffers; returns true if all
    /// senders have closed.
    fn begin_all(&mut self) -> Result<bool> {
        while self.free.len() + ((self.most - self.buffers) as usize) > 0 {
            let buffer = match self.free.pop() {
                Some(buffer) => buffer,
                None => {
                    self.buffers += 1;
                    new_buffer(&self.config, &self.device, false)?
                }
            };
            match self.receiver.try_next_request() {
                Ok(request) => match request.read_into(buffer) {
                    Ok(reading) => self.readings.push_back(reading),
                    Err(e) => return Err(e.error.into()),
                },
                Err(e) => {
                    self.free.push(buffer);
                    return match e {
                        RecvError::Empty => Ok(false),
                        RecvError::Closed => Ok(true),
                        other => Err(other.into()),
                    };
                }
            }
        }
        Ok(false)
    }

    /// Hands out the next message that has landed, if one has.
    fn hand_out(&mut self, each: &mut impl FnMut(u32, &[u8]) -> Result<()>) -> Result<bool> {
        let Some((reading, message)) = self.receiver.try_take()? else { return Ok(false) };
        // The first one, but for those of several senders.
        if let Some(at) = self.readings.iter().position(|begun| *begun == reading) {
            self.readings.remove(at);
        }
        self.give(message, each)?;
        Ok(true)
    }

    /// Hands out the oldest message that was begun, if it arrives in time.
    fn await_oldest(
        &mut self,
        time: Duration,
        each: &mut impl FnMut(u32, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        let Some(reading) = self.readings.front().copied() else { return Ok(false) };
        let message = match self.receiver.wait_timeout(reading, time) {
            Ok(message) => message,
            Err(ReadError::Recv(RecvError::TimedOut)) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        self.readings.pop_front();
        self.give(message, each)?;
        Ok(true)
    }

    fn give(
        &mut self,
        message: Message,
        each: &mut impl FnMut(u32, &[u8]) -> Result<()>,
    ) -> Result<()> {
        each(message.peer().0, &message)?;
        self.free.push(message.into_buffer());
        Ok(())
    }
}

impl MeasuredReceiver for ReadingReceiver {
    fn take(
        &mut self,
        time: Option<Duration>,
        mut each: impl FnMut(u32, &[u8]) -> Result<()>,
    ) -> Result<TakeOutcome> {
        let (mut count, mut closed) = (0, false);
        while count < TURN {
            closed = self.begin_all()?;
            // All that is there, before the next ones are begun: each look at the device costs,
            // and the sender offers meanwhile.
            let before = count;
            while count < TURN && self.hand_out(&mut each)? {
                count += 1;
            }
            if count > before {
                continue;
            }
            let Some(time) = time.filter(|_| count == 0 && !closed) else { break };
            if !self.readings.is_empty() {
                count += u64::from(self.await_oldest(time, &mut each)?);
                break;
            }
            match self.receiver.next_request_timeout(time) {
                Ok(_) | Err(RecvError::Closed) => {}
                Err(RecvError::TimedOut) => break,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(match count {
            0 if closed && self.readings.is_empty() => TakeOutcome::Closed,
            0 => TakeOutcome::Nothing,
            n => TakeOutcome::Some(n),
        })
    }

    fn work(&self) -> Work {
        Work::requests(self.receiver.stats().work_requests)
    }

    fn registered_bytes(&self) -> u64 {
        u64::from(self.most) * u64::from(self.config.size)
    }
}

#[cfg(test)]
mod tests;
