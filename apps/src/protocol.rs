//! The connections that `bench`, `pingpong` and `pipe` use: each is a file of this folder,
//! and a word of the table. The commands are generic over [`Kind`], so that there is one
//! path of code for all of them, and no call through a pointer on any message's way.

mod buffered_read;
mod buffered_write;
mod direct_read;
mod ring;
mod send_recv;

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, bail};
use rdma_conn::buffered_read::BufferedRead;
use rdma_conn::buffered_write::BufferedWrite;
use rdma_conn::conn_core::handshake::ProtocolId;
use rdma_conn::device::Device;
use rdma_conn::direct_read::DirectRead;
use rdma_conn::listener::{Incoming, Served};
use rdma_conn::send_recv::{ConnectError, SendRecv, SharedPool};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::args::{Common, ConnectionArgs};
use crate::bench::{Crowd, Load, Measured, Shape};
use crate::outcome::{Outcome, usage};
use crate::session::Flag;

/// Makes the table of the connections.
macro_rules! protocols {
    ($($kind:ident),+) => {
        /// Which connection.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Protocol {
            $($kind),+
        }

        impl Protocol {
            pub(crate) const ALL: &[Protocol] = &[$(Protocol::$kind),+];

            /// What people write for it, and what the JSON says.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Protocol::$kind => <$kind as Kind>::NAME),+ }
            }

            /// Its number in the handshake.
            pub(crate) fn number(self) -> ProtocolId {
                match self { $(Protocol::$kind => <$kind as Served>::PROTOCOL),+ }
            }

            fn understands(self) -> &'static [&'static str] {
                match self { $(Protocol::$kind => <$kind as Kind>::UNDERSTANDS),+ }
            }

            /// Does something with its type.
            pub(crate) fn with<W: With>(self, what: W) -> W::Out {
                match self { $(Protocol::$kind => what.with::<$kind>()),+ }
            }
        }
    };
}

protocols!(SendRecv, BufferedRead, BufferedWrite, DirectRead);

/// Something to be done with one connection or another.
pub(crate) trait With {
    type Out;

    fn with<K: Kind>(self) -> Self::Out;
}

impl Protocol {
    /// The one of this name.
    pub(crate) fn named(name: &str) -> Option<Protocol> {
        Protocol::ALL.iter().copied().find(|protocol| protocol.name() == name)
    }

    /// All names, for people.
    pub(crate) fn names() -> String {
        Protocol::ALL.iter().map(|p| p.name()).collect::<Vec<_>>().join(", ")
    }

    /// Refuses flags that this connection has no use for, by name.
    pub(crate) fn check_flags(self, given: &[&'static str]) -> Outcome {
        let stray = |flag: &&&str| !self.understands().contains(*flag);
        let Some(flag) = given.iter().find(stray) else { return Ok(()) };
        let knows = |other: &&Protocol| other.understands().contains(flag);
        let others: Vec<&str> = Protocol::ALL.iter().filter(knows).map(|p| p.name()).collect();
        let remedy = match others[..] {
            [] => "leave it out".into(),
            _ => format!("leave it out, or use --protocol {}", others.join(" or ")),
        };
        Err(usage(format!("{flag} means nothing to {}: {remedy}", self.name())))
    }
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// One way, as fast as it goes.
    Throughput,
    /// There and back, one at a time.
    Latency,
    /// A stream of bytes, in pieces.
    Stream,
}

/// What one end or both have done.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Work {
    /// Send-queue work requests.
    #[serde(rename = "operations")]
    pub(crate) operations: u64,
    /// Transfers of data that may carry several messages or a part of one, and their
    /// bytes; none where a transfer is a message.
    #[serde(default)]
    pub(crate) transfers: u64,
    #[serde(default)]
    pub(crate) transferred: u64,
}

impl Work {
    /// So many requests, of which none gathers messages.
    pub(crate) fn requests(operations: u64) -> Work {
        Work { operations, ..Work::default() }
    }

    /// Bytes of a transfer on the average.
    pub(crate) fn mean_transfer_bytes(&self) -> Option<f64> {
        (self.transfers > 0).then(|| self.transferred as f64 / self.transfers as f64)
    }
}

impl std::ops::Add for Work {
    type Output = Work;

    fn add(self, other: Work) -> Work {
        Work {
            operations: self.operations + other.operations,
            transfers: self.transfers + other.transfers,
            transferred: self.transferred + other.transferred,
        }
    }
}

/// Settings as the JSON has them.
pub(crate) type Described = serde_json::Map<String, serde_json::Value>;

/// One connection: its settings, its set-up, and its halves.
pub(crate) trait Kind: Served + Sized + 'static {
    /// What people write for it, and what the JSON says.
    const NAME: &'static str;
    /// The flags that it has a use for, of those that not every connection has.
    const UNDERSTANDS: &'static [&'static str];

    type Config: Copy + std::fmt::Debug + Send + Sync;
    type Wish: Wish;
    type Sender: Sending;
    type Receiver: Receiving;

    /// The settings for messages of `size` bytes: what was asked for, and what suits.
    fn config(common: &Common, args: &ConnectionArgs, purpose: Purpose, size: u32) -> Self::Config;

    /// Refuses settings that cannot be for messages of `size` bytes, by flag.
    fn check(args: &ConnectionArgs, config: &Self::Config, size: u32) -> Outcome;

    /// Receive buffers that one sender needs, where they can be shared.
    fn shared_window(config: &Self::Config) -> u32 {
        let _ = config;
        0
    }

    /// What the other end has to know of the settings.
    fn wish(args: &ConnectionArgs, config: &Self::Config) -> Self::Wish;

    /// What was asked for at the listening end, and is the connecting end's to choose.
    fn asked(args: &ConnectionArgs) -> Vec<Flag>;

    /// The listening end's settings for what the connecting end wants.
    fn hosted(
        common: &Common,
        args: &ConnectionArgs,
        purpose: Purpose,
        size: u32,
        wish: &Self::Wish,
    ) -> Self::Config;

    /// The settings for the JSON.
    fn describe(config: &Self::Config) -> Described;

    /// The settings for people, in a few words.
    fn title(config: &Self::Config) -> String;

    /// Buffers that all receivers share, if they are to.
    fn pool(device: &Device, config: &Self::Config, shape: Shape) -> Result<Option<SharedPool>> {
        let _ = (device, config, shape);
        Ok(None)
    }

    /// A receiver for so many peers, without any yet.
    fn receiver(
        device: &Device,
        config: &Self::Config,
        peers: u32,
        pool: Option<&SharedPool>,
    ) -> Result<Self::Receiver, ConnectError>;

    /// A new sender to a receiver of this process.
    fn join(
        receiver: &mut Self::Receiver,
        pool: Option<&SharedPool>,
        device: &Device,
        config: &Self::Config,
    ) -> Result<Self::Sender, ConnectError>;

    /// Measures one connection with ends that several threads share.
    fn crowd(
        device: &Device,
        config: &Self::Config,
        crowd: Crowd,
        load: &Load,
    ) -> Result<Measured> {
        let _ = (device, config, crowd, load);
        bail!("no end of {} is shared by several threads", Self::NAME)
    }

    /// Both ends of a connection that goes both ways.
    fn pair(device: &Device, config: &Self::Config) -> Result<(Duplex<Self>, Duplex<Self>)>;

    /// Connects to whoever listens at the other end of `stream`; this end sends only.
    fn connect_sender(
        stream: &mut TcpStream,
        device: &Device,
        config: &Self::Config,
        application: &[u8],
    ) -> Result<Self::Sender, ConnectError>;

    /// As [`connect_sender`](Kind::connect_sender), both ways.
    fn connect(
        stream: &mut TcpStream,
        device: &Device,
        config: &Self::Config,
        application: &[u8],
    ) -> Result<Duplex<Self>, ConnectError>;

    /// Accepts a connection that goes both ways.
    fn accept(
        incoming: Incoming<Self>,
        device: &Device,
        config: &Self::Config,
    ) -> Result<Duplex<Self>, ConnectError>;

    /// Accepts one more peer of `receiver`.
    fn accept_into(
        incoming: Incoming<Self>,
        receiver: &mut Self::Receiver,
        pool: Option<&SharedPool>,
        device: &Device,
        config: &Self::Config,
    ) -> Result<(), ConnectError>;
}

/// Both halves of one end.
pub(crate) struct Duplex<K: Kind> {
    pub(crate) sender: K::Sender,
    pub(crate) receiver: K::Receiver,
}

impl<K: Kind> Duplex<K> {
    pub(crate) fn work(&self) -> Work {
        self.sender.work() + self.receiver.work()
    }
}

/// What a connecting end wants of the other one, as a part of the session's parameters.
pub(crate) trait Wish:
    Serialize + DeserializeOwned + Clone + PartialEq + std::fmt::Debug + Send + Sync
{
    /// Refuses what nobody may ask for.
    fn check(&self, size: u32) -> Result<()>;

    /// Bytes that this end makes room for: for so many senders, with so many shared
    /// buffers, and messages that go back or do not.
    fn room(&self, senders: u32, shared: Option<u32>, back: bool) -> Room;

    /// The settings by name, so that two can be compared.
    fn flags(&self, purpose: Purpose) -> Vec<Flag>;

    /// The preset that was asked for, if there are any.
    fn preset(&self) -> Option<&str> {
        None
    }
}

/// Memory that a session takes.
pub(crate) struct Room {
    pub(crate) bytes: u64,
    /// Of what it consists.
    pub(crate) what: String,
    /// What makes it smaller.
    pub(crate) flags: &'static str,
}

/// The sending half.
pub(crate) trait Sending: Send {
    /// Sends a message, as soon as there is room for it.
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// As [`send`](Sending::send), of the message that was sent so before, every time.
    fn send_again(&mut self, message: &[u8]) -> Result<()> {
        self.send(message)
    }

    /// As [`send`](Sending::send), and `fill` writes its `bytes` bytes, once.
    fn send_with(&mut self, bytes: usize, fill: impl FnMut(&mut [u8])) -> Result<()>;

    /// Sends what `fill` writes into room for as many bytes as `scratch` has, unless it
    /// writes nothing; how many bytes. The room may be `scratch`.
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

/// What came of looking for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// So many.
    Some(u64),
    /// None is there, or none came in time.
    Nothing,
    /// All peers have closed.
    Closed,
}

/// Messages that a receiver hands out before another one has its turn, about.
pub(crate) const TURN: u64 = 64;

/// The receiving half, for one peer or many.
pub(crate) trait Receiving: Send {
    /// Hands what is there to `each`, with its peer's number, up to about [`TURN`]
    /// messages. Waits for the first one for `time`, if that is given.
    fn take(
        &mut self,
        time: Option<Duration>,
        each: impl FnMut(u32, &[u8]) -> Result<()>,
    ) -> Result<Taken>;

    fn work(&self) -> Work;

    /// Bytes of memory that messages are received in.
    fn registered_bytes(&self) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_each_ones_own() {
        for (at, one) in Protocol::ALL.iter().enumerate() {
            assert_eq!(Protocol::named(one.name()), Some(*one));
            let others = &Protocol::ALL[at + 1..];
            assert!(others.iter().all(|other| other.number() != one.number()), "{one:?}");
        }
        assert_eq!(Protocol::named("telepathy"), None);
    }

    #[test]
    fn a_flag_of_another_connection_is_refused_with_that_ones_name() {
        Protocol::SendRecv.check_flags(&["--unacked", "--srq"]).unwrap();
        let says = Protocol::SendRecv.check_flags(&["--telepathy"]).unwrap_err().to_string();
        assert_eq!(says, "--telepathy means nothing to send-recv: leave it out");
    }
}
