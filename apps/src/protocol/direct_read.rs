//! Direct Read, as the commands use it.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rdma_conn::device::Device;
use rdma_conn::direct_read::{
    self, AckMode, Buffer, BufferConfig, DirectRead, Incoming, Message, Outcome as Fate, Reading,
    Receiver, RecvError, SendError, Sender, SignalAt,
};
use rdma_conn::send_recv::{ConnectError, SharedPool, Transport};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Described, Duplex, Kind, Purpose, Receiving, Room, Sending, TURN, Taken, Wish, Work};
use crate::args::{Common, ConnectionArgs};
use crate::outcome::{Outcome, usage};
use crate::session::{ENTRY_BYTES, Flag, number, shown};

/// Buffers of a large message are many bytes: without other wishes the window shrinks so
/// that they stay below this.
const BUFFER_BUDGET_BYTES: u64 = 128 << 20;

/// The policies, and the length of messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config {
    policies: direct_read::Config,
    size: u32,
}

impl Config {
    fn new(common: &Common, args: &ConnectionArgs, size: u32, window: u32) -> Config {
        let base = direct_read::Config::default();
        let policies = direct_read::Config {
            window,
            ack: args.ack.map_or(base.ack, |ack| ack.0),
            signal_at: args.signal_at.map_or(base.signal_at, |at| at.place()),
            wait: args.wait.strategy(),
            transport: Transport { gid_index: common.gid_index, ..base.transport },
            ..base
        };
        Config { policies, size }
    }

    /// A buffer of the sender's, or of the receiver's.
    fn buffer(&self, device: &Device, is_offered: bool) -> Result<Buffer> {
        let signal = is_offered && self.policies.signal_at == SignalAt::Tail;
        let config = BufferConfig { peers_read: is_offered, signal };
        let buffer = device.pd().register_buffer(self.size as usize, config);
        buffer.with_context(|| format!("registering a buffer of {} bytes", self.size))
    }
}

fn place_name(at: SignalAt) -> &'static str {
    match at {
        SignalAt::Separate => "separate",
        SignalAt::Tail => "tail",
    }
}

impl Kind for DirectRead {
    const NAME: &'static str = "direct-read";
    const UNDERSTANDS: &'static [&'static str] = &["--unacked", "--ack", "--signal-at"];

    type Config = Config;
    type Wish = Wanted;
    type Sender = Offering;
    type Receiver = Taking;

    fn config(common: &Common, args: &ConnectionArgs, purpose: Purpose, size: u32) -> Config {
        let fits = (BUFFER_BUDGET_BYTES / u64::from(size.max(1))).max(2) as u32;
        let window = match purpose {
            Purpose::Throughput | Purpose::Stream => {
                direct_read::Config::default().window.min(fits)
            }
            Purpose::Latency => 1,
        };
        Config::new(common, args, size, args.unacked.unwrap_or(window))
    }

    fn check(_: &ConnectionArgs, config: &Config, _: u32) -> Outcome {
        let is_window = config.policies.validate();
        is_window.map_err(|e| usage(format!("--unacked {}: {}", e.value, e.rule)))
    }

    fn wish(_: &ConnectionArgs, config: &Config) -> Wanted {
        let direct_read::Config { window, ack, signal_at, .. } = config.policies;
        let tail = signal_at == SignalAt::Tail;
        Wanted { message_bytes: config.size, unacked: window, ack: ack.code(), tail }
    }

    fn asked(args: &ConnectionArgs) -> Vec<Flag> {
        let flags = [
            number("--unacked", args.unacked),
            args.ack.map(|ack| ("--ack", ack.0.name().to_owned())),
            args.signal_at.map(|at| ("--signal-at", place_name(at.place()).to_owned())),
        ];
        flags.into_iter().flatten().collect()
    }

    fn hosted(common: &Common, args: &ConnectionArgs, _: Purpose, _: u32, wish: &Wanted) -> Config {
        let own = Config::new(common, args, wish.message_bytes, wish.unacked);
        let (ack, signal_at) = (wish.mode(), wish.place());
        Config { policies: direct_read::Config { ack, signal_at, ..own.policies }, ..own }
    }

    fn describe(config: &Config) -> Described {
        let direct_read::Config { window, ack, signal_at, .. } = config.policies;
        let mut described = Described::new();
        let mut add = |name: &str, value| drop(described.insert(name.into(), value));
        add("unacked", json!(window));
        add("batch", json!(1));
        add("ack", json!(ack.name()));
        add("fence", json!(ack == AckMode::FencedWrite));
        if ack.signals() {
            add("signal_at", json!(place_name(signal_at)));
        }
        described
    }

    fn title(config: &Config) -> String {
        let direct_read::Config { window, ack, .. } = config.policies;
        format!("{window} unacknowledged, acknowledged by {}", ack.name())
    }

    fn receiver(
        device: &Device,
        config: &Config,
        peers: u32,
        _: Option<&SharedPool>,
    ) -> Result<Taking, ConnectError> {
        let receiver = direct_read::receiver(device, &config.policies, peers)?;
        Ok(Taking::new(receiver, device, config, peers))
    }

    fn join(
        receiver: &mut Taking,
        _: Option<&SharedPool>,
        device: &Device,
        config: &Config,
    ) -> Result<Offering, ConnectError> {
        let sender = direct_read::join(&mut receiver.receiver, device, device, &config.policies)?;
        Ok(Offering::new(sender, device, config))
    }

    fn pair(device: &Device, config: &Config) -> Result<(Duplex<Self>, Duplex<Self>)> {
        let half = || {
            let (sender, receiver) = direct_read::pair(device, device, &config.policies)?;
            let taking = Taking::new(receiver, device, config, 1);
            Ok::<_, ConnectError>((Offering::new(sender, device, config), taking))
        };
        let ((to, there), (fro, here)) = (half()?, half()?);
        let (near, far) =
            (Duplex { sender: to, receiver: here }, Duplex { sender: fro, receiver: there });
        Ok((near, far))
    }

    fn connect_sender(
        stream: &mut TcpStream,
        device: &Device,
        config: &Config,
        application: &[u8],
    ) -> Result<Offering, ConnectError> {
        let sender = direct_read::connect_over(stream, device, &config.policies, application)?;
        Ok(Offering::new(sender, device, config))
    }

    /// A connection goes one way: there is one for each.
    fn connect(
        stream: &mut TcpStream,
        device: &Device,
        config: &Config,
        application: &[u8],
    ) -> Result<Duplex<Self>, ConnectError> {
        let sender = Self::connect_sender(stream, device, config, application)?;
        let back = Incoming::greet(again(stream)?)?.accept(device, &config.policies)?;
        Ok(Duplex { sender, receiver: Taking::new(back, device, config, 1) })
    }

    fn accept(
        incoming: Incoming,
        device: &Device,
        config: &Config,
    ) -> Result<Duplex<DirectRead>, ConnectError> {
        let mut stream = again(incoming.stream())?;
        let receiver = incoming.accept(device, &config.policies)?;
        let sender = DirectRead::connect_sender(&mut stream, device, config, b"")?;
        Ok(Duplex { sender, receiver: Taking::new(receiver, device, config, 1) })
    }

    fn accept_into(
        incoming: Incoming,
        receiver: &mut Taking,
        _: Option<&SharedPool>,
        device: &Device,
        _: &Config,
    ) -> Result<(), ConnectError> {
        incoming.accept_into(&mut receiver.receiver, device).map(drop)
    }
}

fn again(stream: &TcpStream) -> Result<TcpStream, ConnectError> {
    stream.try_clone().map_err(|error| ConnectError::System { what: "the stream", error })
}

/// Buffers, and how they are acknowledged.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    #[serde(rename = "m")]
    message_bytes: u32,
    #[serde(rename = "u")]
    unacked: u32,
    #[serde(rename = "a")]
    ack: u8,
    #[serde(rename = "t")]
    tail: bool,
}

impl Wanted {
    fn mode(&self) -> AckMode {
        AckMode::from_code(self.ack).unwrap_or(AckMode::Write)
    }

    fn place(&self) -> SignalAt {
        if self.tail { SignalAt::Tail } else { SignalAt::Separate }
    }
}

impl Wish for Wanted {
    fn check(&self, size: u32) -> Result<()> {
        ensure!(AckMode::from_code(self.ack).is_some(), "an unknown way to acknowledge");
        let window = 1..=rdma_conn::conn_core::direct_read::MAX_WINDOW;
        ensure!(window.contains(&self.unacked), "a window of {} messages", self.unacked);
        let buffer = self.message_bytes;
        ensure!(size <= buffer, "messages of {size} bytes in buffers of {buffer}");
        Ok(())
    }

    fn room(&self, senders: u32, _: Option<u32>, back: bool) -> Room {
        let ways = if back { 2 } else { 1 };
        let buffers = u64::from(self.unacked) * u64::from(senders) * ways;
        let bytes = buffers.saturating_mul(self.message_bytes.max(ENTRY_BYTES).into());
        let what = format!("{buffers} buffers of {} bytes", self.message_bytes);
        Room { bytes, what, flags: "--size, --senders or --unacked" }
    }

    fn flags(&self, _: Purpose) -> Vec<Flag> {
        vec![
            ("--unacked", shown(&self.unacked)),
            ("--ack", self.mode().name().to_owned()),
            ("--signal-at", place_name(self.place()).to_owned()),
        ]
    }
}

/// A sender, and the buffers that it offers in turn.
#[derive(Debug)]
pub(crate) struct Offering {
    sender: Sender,
    device: Device,
    config: Config,
    /// Buffers that are not on offer; whether they have the message that is sent again
    /// and again.
    free: Vec<(Buffer, bool)>,
    /// How many there are.
    buffers: u32,
    /// Whether those on offer have it.
    primed: VecDeque<bool>,
}

impl Offering {
    fn new(sender: Sender, device: &Device, config: &Config) -> Offering {
        let (device, config) = (device.clone(), *config);
        Offering { sender, device, config, free: vec![], buffers: 0, primed: VecDeque::new() }
    }

    /// A buffer that may be filled.
    fn buffer(&mut self) -> Result<(Buffer, bool)> {
        if let Some(free) = self.free.pop() {
            return Ok(free);
        }
        if self.buffers < self.config.policies.window {
            self.buffers += 1;
            return Ok((self.config.buffer(&self.device, true)?, false));
        }
        self.take_all()?;
        while self.free.is_empty() {
            self.take_one()?;
        }
        self.free.pop().context("a buffer that came back")
    }

    /// Takes back what is there.
    fn take_all(&mut self) -> Result<()> {
        while let Some((_, sent)) = self.sender.try_take().map_err(told)? {
            self.keep(sent)?;
        }
        Ok(())
    }

    /// Waits for the next one.
    fn take_one(&mut self) -> Result<()> {
        let sent = self.sender.wait_next().map_err(told)?;
        self.keep(sent)
    }

    fn keep(&mut self, sent: direct_read::Sent<Buffer>) -> Result<()> {
        ensure!(sent.outcome == Fate::Read, "a message was refused");
        let primed = self.primed.pop_front().unwrap_or(false);
        self.free.push((sent.buffer, primed));
        Ok(())
    }

    fn offer(&mut self, buffer: Buffer, bytes: usize, primed: bool) -> Result<()> {
        match self.sender.send_part_async(buffer, 0..bytes, b"") {
            Ok(_) => {
                self.primed.push_back(primed);
                Ok(())
            }
            Err(not_sent) => Err(told(not_sent.error)),
        }
    }
}

/// The end of a connection is told as that of any other one.
fn told(error: SendError) -> anyhow::Error {
    match error {
        SendError::Ended(ended) => rdma_conn::send_recv::SendError::Ended(ended).into(),
        other => other.into(),
    }
}

impl Sending for Offering {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.send_with(message.len(), |room| room.copy_from_slice(message))
    }

    /// Copied into each buffer once: whoever offers memory has the message there.
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
        self.sender.wait_all().map_err(told)?;
        self.take_all()
    }

    fn close(self) -> Result<()> {
        self.sender.close().map(drop).map_err(told)
    }

    fn work(&self) -> Work {
        Work::requests(self.sender.stats().work_requests)
    }
}

/// A receiver, and the buffers that it reads into in turn.
#[derive(Debug)]
pub(crate) struct Taking {
    receiver: Receiver,
    device: Device,
    config: Config,
    free: Vec<Buffer>,
    /// How many there are, and may be.
    buffers: u32,
    most: u32,
    readings: VecDeque<Reading>,
}

impl Taking {
    fn new(receiver: Receiver, device: &Device, config: &Config, peers: u32) -> Taking {
        let (device, config) = (device.clone(), *config);
        let most = config.policies.window.saturating_mul(peers);
        let readings = VecDeque::new();
        Taking { receiver, device, config, free: vec![], buffers: 0, most, readings }
    }

    /// Begins to read all that is asked for, as long as there are buffers; whether all
    /// senders have closed.
    fn begin_all(&mut self) -> Result<bool> {
        while self.free.len() + ((self.most - self.buffers) as usize) > 0 {
            let buffer = match self.free.pop() {
                Some(buffer) => buffer,
                None => {
                    self.buffers += 1;
                    self.config.buffer(&self.device, false)?
                }
            };
            match self.receiver.try_next_request() {
                Ok(request) => match request.read_into(buffer) {
                    Ok(reading) => self.readings.push_back(reading),
                    Err(e) => return Err(e.why.into()),
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

    /// Hands out the oldest message that was begun, if it comes in time.
    fn await_oldest(
        &mut self,
        time: Duration,
        each: &mut impl FnMut(u32, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        let Some(reading) = self.readings.front().copied() else { return Ok(false) };
        let message = match self.receiver.wait_timeout(reading, time) {
            Ok(message) => message,
            Err(RecvError::TimedOut) => return Ok(false),
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

impl Receiving for Taking {
    fn take(
        &mut self,
        time: Option<Duration>,
        mut each: impl FnMut(u32, &[u8]) -> Result<()>,
    ) -> Result<Taken> {
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
            0 if closed && self.readings.is_empty() => Taken::Closed,
            0 => Taken::Nothing,
            n => Taken::Some(n),
        })
    }

    fn work(&self) -> Work {
        Work::requests(self.receiver.stats().work_requests)
    }

    fn registered_bytes(&self) -> u64 {
        u64::from(self.most) * u64::from(self.config.size)
    }
}
