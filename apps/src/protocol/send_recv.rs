//! Send/Receive, as the commands use it.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, ensure};
use rdma_conn::device::Device;
use rdma_conn::send_recv::{
    self, Config, ConnectError, Incoming, Preset, Receiver, RecvError, SendError, SendRecv, Sender,
    SharedConfig, SharedPool,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Described, Duplex, Kind, Purpose, Receiving, Room, Sending, TURN, Taken, Wish, Work};
use crate::args::{Common, ConnectionArgs};
use crate::bench::Shape;
use crate::outcome::{Outcome, by_flag};
use crate::session::{ENTRY_BYTES, Flag, MOST_BUFFER_BYTES, number, shown, switch};

/// Receive and send buffers of a large message are many bytes: without other wishes
/// the windows shrink so that they stay below this.
const BUFFER_BUDGET_BYTES: u64 = 128 << 20;

/// The preset for what it is for, where none is asked for.
fn preset(purpose: Purpose) -> Preset {
    match purpose {
        Purpose::Throughput | Purpose::Stream => Preset::Batched,
        Purpose::Latency => Preset::Sequential,
    }
}

/// Without other wishes long messages have fewer buffers.
fn shrink(config: Config, args: &ConnectionArgs, size: u32) -> Config {
    // With two unacknowledged, there are five receive buffers.
    let has_room = u64::from(size) * 5 <= MOST_BUFFER_BYTES;
    let least = if has_room { 2 } else { 1 };
    let fits = (BUFFER_BUDGET_BYTES / u64::from(size.max(1)) / 3).max(least) as u32;
    if args.unacked.is_some() || config.unacked <= fits {
        return config;
    }
    let recv_window = if args.recv_window.is_none() { 2 * fits } else { config.recv_window };
    Config { unacked: fits, batch: config.batch.min(fits), recv_window, ..config }
}

/// Buffers of a ping-pong at one end, in bytes: so few that they stay in a cache.
const PINGPONG_BYTES: u64 = 256 << 10;

/// One message is on its way at a time, but its acknowledgement and its credit need not be
/// waited for before the next one: short messages have some buffers more.
fn for_latency(config: Config, args: &ConnectionArgs, size: u32) -> Config {
    let unacked = (PINGPONG_BYTES / u64::from(size.max(1))).clamp(1, 8) as u32;
    if args.preset.is_some() || args.unacked.is_some() || unacked == 1 {
        return shrink_window(config, args);
    }
    let recv_window = args.recv_window.unwrap_or(2 * unacked);
    Config { unacked, recv_window, ..config }
}

/// As [`shrink`], where one message is on its way at a time.
fn shrink_window(config: Config, args: &ConnectionArgs) -> Config {
    let buffers = u64::from(config.recv_window) + 1 + u64::from(config.unacked);
    let is_open = args.recv_window.is_none() && config.unacked == 1;
    match is_open && buffers * u64::from(config.message_bytes) > MOST_BUFFER_BYTES {
        true => Config { recv_window: 2, ..config },
        false => config,
    }
}

impl Kind for SendRecv {
    const NAME: &'static str = "send-recv";
    const UNDERSTANDS: &'static [&'static str] = &[
        "--preset",
        "--unacked",
        "--batch",
        "--signal-every",
        "--recv-window",
        "--poll-batch",
        "--repost-batch",
        "--pack",
        "--inline",
        "--no-credits",
        "--srq",
        "--srq-buffers",
        "--rate auto",
    ];

    type Config = Config;
    type Wish = Wanted;
    type Sender = Sender;
    type Receiver = Receiver;

    fn config(common: &Common, args: &ConnectionArgs, purpose: Purpose, size: u32) -> Config {
        let config = args.send_recv(common, preset(purpose), size);
        match purpose {
            Purpose::Throughput | Purpose::Stream => shrink(config, args, size),
            Purpose::Latency => for_latency(config, args, size),
        }
    }

    fn check(args: &ConnectionArgs, config: &Config, size: u32) -> Outcome {
        config.validate().map_err(|e| by_flag(&e, config))?;
        args.check_pack(size)
    }

    fn shared_window(config: &Config) -> u32 {
        config.recv_window + 1
    }

    fn wish(args: &ConnectionArgs, config: &Config) -> Wanted {
        Wanted {
            message_bytes: config.message_bytes,
            unacked: config.unacked,
            batch: config.batch,
            preset: args.preset.map(|preset| preset.name().to_owned()),
            pack_bytes: config.pack_bytes,
            recv_window: config.recv_window,
            credits: config.credits,
        }
    }

    fn asked(args: &ConnectionArgs) -> Vec<Flag> {
        let flags = [
            args.preset.map(|preset| ("--preset", preset.name().to_owned())),
            number("--unacked", args.unacked),
            number("--batch", args.batch),
            number("--recv-window", args.recv_window),
            number("--pack", args.pack),
            args.no_credits.then(|| ("--no-credits", switch(true))),
        ];
        flags.into_iter().flatten().collect()
    }

    fn hosted(
        common: &Common,
        args: &ConnectionArgs,
        purpose: Purpose,
        _: u32,
        wish: &Wanted,
    ) -> Config {
        let own = args.send_recv(common, preset(purpose), wish.message_bytes);
        Config {
            message_bytes: wish.message_bytes,
            unacked: wish.unacked,
            batch: wish.batch,
            // Chosen for a window of this end's own, they may not fit.
            repost_batch: own.repost_batch.min(wish.recv_window),
            signal_every: own.signal_every.min(wish.unacked),
            recv_window: wish.recv_window,
            credits: wish.credits,
            pack_bytes: wish.pack_bytes,
            ..own
        }
    }

    fn describe(config: &Config) -> Described {
        let mut described = Described::new();
        let mut add = |name: &str, value| drop(described.insert(name.into(), value));
        add("unacked", json!(config.unacked));
        add("batch", json!(config.batch));
        add("recv_window", json!(config.recv_window));
        add("credits", json!(config.credits));
        if config.pack_bytes > 0 {
            add("pack_bytes", json!(config.pack_bytes));
        }
        described
    }

    fn title(config: &Config) -> String {
        format!("{} unacknowledged, {} to a doorbell", config.unacked, config.batch)
    }

    fn pool(device: &Device, config: &Config, shape: Shape) -> Result<Option<SharedPool>> {
        let Some(reposting) = shape.srq else { return Ok(None) };
        let shared = SharedConfig {
            buffers: shape.srq_buffers.unwrap_or((config.recv_window + 1) * shape.senders),
            buffer_bytes: config.message_bytes,
            max_peers: shape.senders,
            reposting,
            repost_batch: if config.repost_batch == 0 { 32 } else { config.repost_batch },
        };
        Ok(Some(SharedPool::new(device, shared)?))
    }

    fn receiver(
        device: &Device,
        config: &Config,
        peers: u32,
        pool: Option<&SharedPool>,
    ) -> Result<Receiver, ConnectError> {
        send_recv::receiver(device, config, peers, pool)
    }

    fn join(
        receiver: &mut Receiver,
        pool: Option<&SharedPool>,
        device: &Device,
        config: &Config,
    ) -> Result<Sender, ConnectError> {
        match pool {
            Some(pool) => send_recv::join_shared(receiver, pool, device, device, config),
            None => send_recv::join(receiver, device, device, config),
        }
    }

    fn pair(device: &Device, config: &Config) -> Result<(Duplex<Self>, Duplex<Self>)> {
        let (near, far) = send_recv::pair(device, device, config)?;
        Ok((near.into(), far.into()))
    }

    fn connect_sender(
        stream: &mut TcpStream,
        device: &Device,
        config: &Config,
        application: &[u8],
    ) -> Result<Sender, ConnectError> {
        send_recv::connect_sender_over(stream, device, config, application)
    }

    fn connect(
        stream: &mut TcpStream,
        device: &Device,
        config: &Config,
        application: &[u8],
    ) -> Result<Duplex<Self>, ConnectError> {
        send_recv::connect_over(stream, device, config, application).map(Into::into)
    }

    fn accept(
        incoming: Incoming,
        device: &Device,
        config: &Config,
    ) -> Result<Duplex<SendRecv>, ConnectError> {
        incoming.accept(device, config).map(Into::into)
    }

    fn accept_into(
        incoming: Incoming,
        receiver: &mut Receiver,
        pool: Option<&SharedPool>,
        device: &Device,
        config: &Config,
    ) -> Result<(), ConnectError> {
        incoming.accept_into(receiver, pool, device, config).map(drop)
    }
}

impl From<send_recv::Connection> for Duplex<SendRecv> {
    fn from(made: send_recv::Connection) -> Duplex<SendRecv> {
        Duplex { sender: made.sender, receiver: made.receiver }
    }
}

/// Buffers, and what the sender sends with.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    /// Bytes of each buffer.
    #[serde(rename = "m")]
    pub(crate) message_bytes: u32,
    /// What the sender sends with, for the report of the other end.
    #[serde(rename = "u")]
    pub(crate) unacked: u32,
    #[serde(rename = "b")]
    pub(crate) batch: u32,
    #[serde(rename = "e")]
    pub(crate) preset: Option<String>,
    #[serde(rename = "k")]
    pub(crate) pack_bytes: u32,
    /// Receive buffers for each sender.
    #[serde(rename = "w")]
    pub(crate) recv_window: u32,
    /// Whether credits are used.
    #[serde(rename = "d")]
    pub(crate) credits: bool,
}

impl Wish for Wanted {
    fn check(&self, size: u32) -> Result<()> {
        let (window, has) = (1..=Config::MAX_WINDOW, self.recv_window);
        ensure!(
            window.contains(&has),
            "a window of {has} buffers: there may be {} to {}",
            window.start(),
            window.end()
        );
        let buffer = self.message_bytes;
        ensure!(size <= buffer, "messages of {size} bytes in buffers of {buffer}");
        Ok(())
    }

    fn room(&self, senders: u32, shared: Option<u32>, back: bool) -> Room {
        let back = if back { u64::from(self.unacked) } else { 0 };
        let each = u64::from(self.recv_window) + 1 + back;
        let buffers = (each * u64::from(senders)).max(shared.map_or(0, u64::from));
        // The shortest ones take more in the queues than in memory.
        let bytes = buffers.saturating_mul(self.message_bytes.max(ENTRY_BYTES).into());
        let what = format!("{buffers} buffers of {} bytes", self.message_bytes);
        Room { bytes, what, flags: "--size, --senders, --recv-window or --srq-buffers" }
    }

    fn flags(&self, purpose: Purpose) -> Vec<Flag> {
        let default = || preset(purpose).name().into();
        vec![
            ("--preset", self.preset.clone().unwrap_or_else(default)),
            ("--unacked", shown(&self.unacked)),
            ("--batch", shown(&self.batch)),
            ("--recv-window", shown(&self.recv_window)),
            ("--pack", shown(&self.pack_bytes)),
            ("--no-credits", switch(!self.credits)),
        ]
    }

    fn preset(&self) -> Option<&str> {
        self.preset.as_deref()
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
        loop {
            match self.try_send_with(bytes, &mut fill) {
                Err(SendError::Full(_)) => self.wait_for_room()?,
                done => return Ok(done.map(drop)?),
            }
        }
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
        mut each: impl FnMut(u32, &[u8]) -> Result<()>,
    ) -> Result<Taken> {
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
                Err(RecvError::Closed) if count == 0 => return Ok(Taken::Closed),
                Err(RecvError::Closed) => break,
                Err(e) => return Err(e.into()),
            }
            count += 1;
        }
        Ok(if count > 0 { Taken::Some(count) } else { Taken::Nothing })
    }

    fn work(&self) -> Work {
        Work::requests(self.stats().work_requests)
    }

    fn registered_bytes(&self) -> u64 {
        Receiver::registered_bytes(self)
    }
}
