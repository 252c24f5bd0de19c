//! The connections that `bench`, `pingpong` and `pipe` use: each is a file of this folder,
//! and has a name in [`ProtocolKind`]. The commands are generic over [`MeasuredProtocol`], so that
//! there is one path of code for all of them, and no call through a pointer on any message's way.

mod buffered_read;
mod buffered_write;
mod by_flag;
mod direct_read;
mod direct_write;
mod ring;
mod send_recv;
mod shared_write;
mod worked;
mod writer;

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::outcome::CommandResult;
use rdma_conn::WaitStrategy;
use rdma_conn::buffered_read::BufferedRead;
use rdma_conn::buffered_write::BufferedWrite;
use rdma_conn::device::Device;
use rdma_conn::direct_read::DirectRead;
use rdma_conn::direct_write::DirectWrite;
use rdma_conn::send_recv::{ConnectError, Preset, SendRecv, Transport};
use rdma_conn::shared_write::SharedWrite;
use rdma_conn::{Connection, Incoming};

use crate::cli::{CommonArgs, ConnectionArgs, ProtocolKind};
use crate::measure::{Crowd, LoadShape, MessageLoad, RoundResult, Work};
use crate::settings::{self, Setting, SettingTerms};

/// Something to be done with one connection or another.
pub(crate) trait With {
    type Out;

    fn with<K: MeasuredProtocol>(self) -> Self::Out;
}

impl ProtocolKind {
    /// Does something with its type.
    pub(crate) fn with<W: With>(self, what: W) -> W::Out {
        match self {
            ProtocolKind::SendRecv => what.with::<SendRecv>(),
            ProtocolKind::BufferedRead => what.with::<BufferedRead>(),
            ProtocolKind::BufferedWrite => what.with::<BufferedWrite>(),
            ProtocolKind::DirectRead => what.with::<DirectRead>(),
            ProtocolKind::DirectWrite => what.with::<DirectWrite>(),
            ProtocolKind::SharedWrite => what.with::<SharedWrite>(),
        }
    }
}

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// One way, as fast as it goes.
    Throughput,
    /// There and back, one at a time.
    Latency,
    /// A stream of bytes, in pieces.
    Stream,
}

impl Purpose {
    /// The preset of Send/Receive, where none is asked for.
    pub(crate) fn preset(self) -> Preset {
        match self {
            Purpose::Throughput | Purpose::Stream => Preset::Batched,
            Purpose::Latency => Preset::Sequential,
        }
    }
}

/// A connection as the command drives it: its settings, and the ends that measure and check.
pub(crate) trait MeasuredProtocol: rdma_conn::Protocol {
    /// Connection, as the command line has it.
    const WHICH: ProtocolKind;
    /// Name of the connection on the command line and in the JSON.
    const WORD: &'static str = Self::WHICH.name();

    /// Those of the library's configuration, and of the command's own use of it.
    type Settings: Copy + std::fmt::Debug + Send + Sync + 'static;
    type SendEnd: MeasuredSender;
    type RecvEnd: MeasuredReceiver;

    /// All settings that are its own.
    const SETTINGS: &'static [Setting<Self::Settings>];

    /// Receive buffers that each sender keeps, where they can be shared.
    const KEPT_BUFFERS: u32 = 0;

    /// Returns settings that suit messages of `size` bytes, before those that were given are set.
    fn base(args: &ConnectionArgs, purpose: Purpose, size: u32) -> Self::Settings;

    /// Adapts the settings to such messages, once `config` has those that were given.
    fn suit(
        config: Self::Settings,
        args: &ConnectionArgs,
        purpose: Purpose,
        size: u32,
    ) -> Self::Settings {
        let _ = (args, purpose, size);
        config
    }

    /// As [`suit`](MeasuredProtocol::suit), for a receiver with `peers` peers.
    fn suit_peers(config: Self::Settings, args: &ConnectionArgs, peers: u32) -> Self::Settings {
        let _ = (args, peers);
        config
    }

    /// Returns the settings that all connections have.
    fn common(config: &mut Self::Settings) -> (&mut WaitStrategy, &mut Transport);

    /// Refuses settings that cannot be for messages of `size` bytes, by flag.
    fn check(args: &ConnectionArgs, config: &Self::Settings, size: u32) -> CommandResult;

    /// Refuses settings that do not suffice for a receiver with `peers` peers, by flag.
    fn check_peers(config: &Self::Settings, peers: u32) -> CommandResult {
        let _ = (config, peers);
        Ok(())
    }

    /// Refuses what the connecting end has told and no peer may have.
    fn check_told(config: &Self::Settings, size: u32) -> Result<()>;

    /// Changes what this end has chosen so that it fits what the connecting end has told.
    fn clamp_settings(config: &mut Self::Settings) {
        let _ = config;
    }

    /// Bytes that the listening end makes room for: for these senders and receivers, and messages
    /// that go back or do not.
    fn room(config: &Self::Settings, shape: LoadShape, back: bool) -> SessionMemory;

    /// Buffers that all receivers share, if they are to.
    fn pool(
        device: &Device,
        settings: &Self::Settings,
        shape: LoadShape,
    ) -> Result<Option<Self::Pool>> {
        let _ = (device, settings, shape);
        Ok(None)
    }

    /// Bytes of memory that such buffers have.
    fn pool_bytes(pool: &Self::Pool) -> u64 {
        let _ = pool;
        0
    }

    /// The library's configuration.
    fn config(settings: &Self::Settings) -> &Self::Config;

    /// Makes the command's sending end from a sending half of the library.
    fn send_end(sender: Self::Sender, device: &Device, settings: &Self::Settings) -> Self::SendEnd;

    /// Makes the command's receiving end from a receiving half of the library, which has `peers`
    /// peers.
    fn recv_end(
        receiver: Self::Receiver,
        device: &Device,
        settings: &Self::Settings,
        peers: u32,
    ) -> Self::RecvEnd;

    /// The library's half.
    fn receiver_of(end: &mut Self::RecvEnd) -> &mut Self::Receiver;

    /// Measures one connection with ends that several threads share.
    fn crowd(
        device: &Device,
        config: &Self::Settings,
        crowd: Crowd,
        load: &MessageLoad,
    ) -> Result<RoundResult> {
        let _ = (device, config, crowd, load);
        bail!("no end of {} is shared by several threads", Self::WORD)
    }

    /// Both ends' halves, at this end of a connection.
    fn duplex(made: Connection<Self>, device: &Device, settings: &Self::Settings) -> Duplex<Self> {
        let sender = Self::send_end(made.sender, device, settings);
        Duplex { sender, receiver: Self::recv_end(made.receiver, device, settings, 1) }
    }

    /// A receiver for `peers` peers, none of which has connected yet.
    fn new_receiver(
        device: &Device,
        settings: &Self::Settings,
        peers: u32,
        pool: Option<&Self::Pool>,
    ) -> Result<Self::RecvEnd, ConnectError> {
        let made = rdma_conn::receiver_shared::<Self>(device, Self::config(settings), peers, pool)?;
        Ok(Self::recv_end(made, device, settings, peers))
    }

    /// A new sender to a receiver of this process.
    fn join(
        end: &mut Self::RecvEnd,
        pool: Option<&Self::Pool>,
        [device, sender_device]: [&Device; 2],
        settings: &Self::Settings,
    ) -> Result<Self::SendEnd, ConnectError> {
        let (receiver, config) = (Self::receiver_of(end), Self::config(settings));
        let sender = rdma_conn::join_shared::<Self>(receiver, pool, device, sender_device, config)?;
        Ok(Self::send_end(sender, sender_device, settings))
    }

    /// Both ends of a connection that goes both ways, on a device each.
    fn pair(
        [near_device, far_device]: [&Device; 2],
        settings: &Self::Settings,
    ) -> Result<(Duplex<Self>, Duplex<Self>)> {
        let config = Self::config(settings);
        let (near, far) = rdma_conn::pair::<Self>(near_device, far_device, config)?;
        Ok((Self::duplex(near, near_device, settings), Self::duplex(far, far_device, settings)))
    }

    /// Connects to the listening end of `stream`; this end sends only.
    fn connect_sender(
        stream: &mut TcpStream,
        device: &Device,
        settings: &Self::Settings,
        application: &[u8],
    ) -> Result<Self::SendEnd, ConnectError> {
        let config = Self::config(settings);
        let sender =
            rdma_conn::connect_sender_over::<Self, _>(stream, device, config, application)?;
        Ok(Self::send_end(sender, device, settings))
    }

    /// As [`connect_sender`](MeasuredProtocol::connect_sender), both ways.
    fn connect(
        stream: &mut TcpStream,
        device: &Device,
        settings: &Self::Settings,
        application: &[u8],
    ) -> Result<Duplex<Self>, ConnectError> {
        let config = Self::config(settings);
        let made = rdma_conn::connect_over::<Self, _>(stream, device, config, application)?;
        Ok(Self::duplex(made, device, settings))
    }

    /// Accepts a connection that goes both ways.
    fn accept(
        incoming: Incoming<Self>,
        device: &Device,
        settings: &Self::Settings,
    ) -> Result<Duplex<Self>, ConnectError> {
        let made = incoming.accept(device, Self::config(settings))?;
        Ok(Self::duplex(made, device, settings))
    }

    /// Accepts one more peer of a receiver.
    fn accept_into(
        incoming: Incoming<Self>,
        end: &mut Self::RecvEnd,
        pool: Option<&Self::Pool>,
        device: &Device,
        settings: &Self::Settings,
    ) -> Result<(), ConnectError> {
        let (receiver, config) = (Self::receiver_of(end), Self::config(settings));
        incoming.accept_into_shared(receiver, pool, device, config).map(drop)
    }
}

/// Both halves of one end.
pub(crate) struct Duplex<K: MeasuredProtocol> {
    pub(crate) sender: K::SendEnd,
    pub(crate) receiver: K::RecvEnd,
}

impl<K: MeasuredProtocol> Duplex<K> {
    pub(crate) fn work(&self) -> Work {
        self.sender.work() + self.receiver.work()
    }
}

/// The settings for messages of `size` bytes: what was asked for, and what suits.
pub(crate) fn config<K: MeasuredProtocol>(
    common: &CommonArgs,
    args: &ConnectionArgs,
    purpose: Purpose,
    size: u32,
) -> K::Settings {
    let mut config = K::base(args, purpose, size);
    settings::set_given(K::SETTINGS, &mut config, &args.given);
    let mut config = K::suit(config, args, purpose, size);
    let (wait, transport) = K::common(&mut config);
    *wait = args.wait.strategy();
    transport.gid_index = common.gid_index;
    config
}

/// The listening end's settings for what the connecting end has told.
///
/// # Errors
/// These are not the settings of such a connection.
pub(crate) fn hosted<K: MeasuredProtocol>(
    common: &CommonArgs,
    args: &ConnectionArgs,
    purpose: Purpose,
    size: u32,
    terms: &SettingTerms,
) -> Result<K::Settings> {
    let mut config = config::<K>(common, args, purpose, size);
    set_terms::<K>(&mut config, terms)?;
    K::clamp_settings(&mut config);
    Ok(config)
}

/// Returns the settings that the connecting end has told; the others suit messages of `size` bytes.
///
/// # Errors
/// These are not the settings of such a connection.
pub(crate) fn told<K: MeasuredProtocol>(size: u32, terms: &SettingTerms) -> Result<K::Settings> {
    let mut config = K::base(&ConnectionArgs::default(), Purpose::Throughput, size);
    set_terms::<K>(&mut config, terms)?;
    Ok(config)
}

/// Error where the settings that the connecting end tells cannot be understood.
pub(crate) const OTHER_VERSION: &str =
    "the connecting end is another version of rdma-conn: run the same one at both ends";

fn set_terms<K: MeasuredProtocol>(config: &mut K::Settings, terms: &SettingTerms) -> Result<()> {
    settings::set_terms(K::SETTINGS, config, terms).context(OTHER_VERSION)
}

/// Memory that a session takes.
pub(crate) struct SessionMemory {
    pub(crate) bytes: u64,
    /// Parts of the memory, in words.
    pub(crate) what: String,
    /// Flags that make it smaller.
    pub(crate) flags: &'static str,
}

/// The sending half.
pub(crate) trait MeasuredSender: Send {
    /// Sends a message, as soon as there is room for it.
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// As [`send`](MeasuredSender::send), of the message that was sent so before, every time.
    fn send_again(&mut self, message: &[u8]) -> Result<()> {
        self.send(message)
    }

    /// As [`send`](MeasuredSender::send), and `fill` writes its `bytes` bytes, once.
    fn send_with(&mut self, bytes: usize, fill: impl FnMut(&mut [u8])) -> Result<()>;

    /// Sends what `fill` writes into room for as many bytes as `scratch` has, unless it
    /// writes nothing; returns the number of bytes. The room may be `scratch`.
    fn send_up_to(
        &mut self,
        scratch: &mut [u8],
        mut fill: impl FnMut(&mut [u8]) -> Result<usize>,
    ) -> Result<usize> {
        let bytes = fill(scratch)?;
        if bytes > 0 {
            self.send(&scratch[..bytes])?;
        }
        Ok(bytes)
    }

    /// Lets nothing wait for more.
    fn flush(&mut self) -> Result<()>;

    /// Waits until all was delivered.
    fn wait_all(&mut self) -> Result<()>;

    /// Says goodbye, once all was delivered.
    fn close(self) -> Result<()>;

    fn work(&self) -> Work;
}

/// Methods of [`MeasuredSender`] that a sending half of the library has already.
macro_rules! by_half {
    ($($half:ident)?) => {
        #[inline]
        fn send(&mut self, message: &[u8]) -> Result<()> {
            rdma_conn::SendHalf::send(&mut (*self)$(.$half)?, message)?;
            Ok(())
        }

        #[inline]
        fn flush(&mut self) -> Result<()> {
            Ok(rdma_conn::SendHalf::flush(&mut (*self)$(.$half)?)?)
        }

        fn wait_all(&mut self) -> Result<()> {
            Ok(rdma_conn::SendHalf::wait_all(&mut (*self)$(.$half)?)?)
        }

        fn close(self) -> Result<()> {
            Ok(rdma_conn::SendHalf::close(self$(.$half)?)?)
        }
    };
}
use by_half;

/// Result of looking for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakeOutcome {
    /// Number of messages.
    Some(u64),
    /// None is available, or none arrived in time.
    Nothing,
    /// All peers have closed.
    Closed,
}

/// Messages that a receiver hands out before another one has its turn, about.
pub(crate) const TURN: u64 = 64;

/// The receiving half, for one peer or many.
pub(crate) trait MeasuredReceiver: Send {
    /// Hands the available messages to `each`, with the peer's number, up to about [`TURN`]
    /// messages. Waits for the first one for `time`, if that is given.
    fn take(
        &mut self,
        time: Option<Duration>,
        each: impl FnMut(u32, &[u8]) -> Result<()>,
    ) -> Result<TakeOutcome>;

    fn work(&self) -> Work;

    /// Bytes of memory that messages are received in.
    fn registered_bytes(&self) -> u64;
}

#[cfg(test)]
mod tests;
