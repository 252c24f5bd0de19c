//! Traits of a protocol: the type parameter of everything in [`connection`](crate::connection) and
//! [`listener`](crate::listener).
//!
//! There are two traits. [`Served`] is what a [`Listener`](crate::Listener) needs to receive a
//! Hello: the protocol's number, name and its part of the application data. [`Protocol`] adds the
//! settings and the halves, which are needed to connect and to accept. Each connection type has
//! both. So has a protocol that another crate defines (`examples/own_protocol.rs`): its connections
//! are made, listened for, awaited and read as streams as those of this crate are.

use std::fmt;

use conn_core::handshake::{Options, ProtocolId};

use crate::common::Common;
use crate::device::Device;
use crate::error::{ConfigError, ConnectError};
use crate::half::{RecvHalf, SendHalf};
use crate::setup::{Agreement, HalfTerms, NewLink, NewSender, unfit};

/// A kind of connection that can be listened for: the part of [`Protocol`] that needs no halves.
/// Types without values implement it, as [`SendRecv`](crate::SendRecv).
pub trait Served: fmt::Debug + Sized + 'static {
    /// Its number in the handshake: from [`ProtocolId::PRIVATE`] on where it is defined outside of
    /// this crate.
    const ID: ProtocolId;
    /// Its name in texts for people.
    const NAME: &'static str;
    /// Terms that either end states for its memory: `()` for none.
    type Terms: HalfTerms;
}

/// A protocol of messages. A program that is generic over it runs over each of them:
///
/// ```
/// use rdma_conn::{BufferedRead, BufferedWrite, Protocol, RecvHalf, SendHalf, SendRecv, pair};
///
/// fn greet<P: Protocol>() -> Result<(), Box<dyn std::error::Error>> {
///     let device = rdma_conn::device::soft()?;
///     let (mut left, mut right) = pair::<P>(&device, &device, &P::Config::default())?;
///     left.sender.send(b"hello")?;
///     assert_eq!(&*right.receiver.recv()?, b"hello", "{}", P::NAME);
///     Ok(())
/// }
///
/// greet::<SendRecv>()?;
/// greet::<BufferedRead>()?;
/// greet::<BufferedWrite>()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Protocol: Served {
    /// The settings of either half.
    type Config: fmt::Debug + Clone + Default + Send + Sync + AsRef<Common> + AsMut<Common>;
    /// Receive buffers that several receivers may have in common, or [`NoPool`].
    type Pool: fmt::Debug + Clone + Send + Sync;
    /// The half that sends.
    type Sender: SendHalf;
    /// The half that receives, from one peer or from many.
    type Receiver: RecvHalf;

    /// A sender in the making.
    type NewSender: NewSender<Terms = Self::Terms, Done = Self::Sender>;
    /// A link of a receiver in the making.
    type NewLink: NewLink<Terms = Self::Terms, Receiver = Self::Receiver>;

    /// Checks a configuration; nothing is made of one that is refused.
    ///
    /// # Errors
    /// The first field that is wrong, with the rule.
    fn validate(config: &Self::Config) -> Result<(), ConfigError> {
        config.as_ref().validate()
    }

    /// A receiver without peers, for up to `max_peers` of them. The configuration was checked. If
    /// `pool` is given, its peers may use the pool's buffers.
    ///
    /// # Errors
    /// [`ConnectError::Device`], [`ConnectError::Config`].
    fn receiver(
        device: &Device,
        config: &Self::Config,
        max_peers: u32,
        pool: Option<&Self::Pool>,
    ) -> Result<Self::Receiver, ConnectError>;

    /// Makes a sender, to be connected. The configuration was checked.
    ///
    /// # Errors
    /// [`ConnectError::Device`].
    fn new_sender(device: &Device, config: &Self::Config) -> Result<Self::NewSender, ConnectError>;

    /// Makes a link of `receiver`, to be connected. The configuration was checked.
    ///
    /// # Errors
    /// [`ConnectError::Device`], [`ConnectError::TooManyPeers`].
    fn new_link(
        device: &Device,
        config: &Self::Config,
        receiver: &mut Self::Receiver,
        pool: Option<&Self::Pool>,
    ) -> Result<Self::NewLink, ConnectError>;

    /// Returns the settings that both ends must share. `shares` is true if this end's receiver
    /// takes its buffers from a pool.
    ///
    /// # Errors
    /// [`ConnectError::Device`].
    fn agreement(
        device: &Device,
        config: &Self::Config,
        shares: bool,
    ) -> Result<Agreement, ConnectError> {
        let _ = (device, config, shares);
        Ok(Agreement::default())
    }

    /// Refuses a peer with options that do not match ours. By default, any option is refused.
    ///
    /// # Errors
    /// [`unfit`], with the mismatch.
    fn check_options(ours: Options, theirs: Options) -> Result<(), ConnectError> {
        let _ = ours;
        match theirs {
            Options::NONE => Ok(()),
            Options(bits) => {
                Err(unfit(format!("it wants options that this protocol does not have ({bits:#x})")))
            }
        }
    }
}

/// Types of a [`Protocol`] that have its names in the protocol's module, and the check of its
/// configuration.
macro_rules! own_types {
    ($pool:ty) => {
        type Config = Config;
        type Pool = $pool;
        type Sender = Sender;
        type Receiver = Receiver;
        type NewSender = NewSender;
        type NewLink = NewLink;

        fn validate(config: &Config) -> Result<(), $crate::error::ConfigError> {
            config.validate()
        }
    };
}

pub(crate) use own_types;

/// There is no such pool: the receivers of this protocol share no buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPool {}

/// Both halves of one end of a connection. Take it apart to give each half to a thread of its
/// own.
#[derive(Debug)]
pub struct Connection<P: Protocol> {
    /// To the peer.
    pub sender: P::Sender,
    /// From the peer.
    pub receiver: P::Receiver,
}

impl<P: Protocol> Connection<P> {
    /// Ends both halves at once, and waits for nothing ([`SendHalf::abort`], [`RecvHalf::abort`]):
    /// dropping them waits for a peer that does not answer, up to [`linger`](crate::Common::linger)
    /// each.
    pub fn abort(self) {
        self.sender.abort();
        self.receiver.abort();
    }
}
