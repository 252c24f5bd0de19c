//! What a connection is, whatever its protocol: the type parameter of everything in
//! [`connection`](crate::connection) and [`listener`](crate::listener).
//!
//! There are two traits. [`Served`] is what a [`Listener`](crate::Listener) needs to receive a
//! Hello: the protocol's number, name and its part of the application data. [`Protocol`] adds the
//! settings and the halves, which are needed to connect and to accept. Each connection type has
//! both.

use std::fmt;

use conn_core::handshake::ProtocolId;

use crate::common::Common;
use crate::device::Device;
use crate::error::ConnectError;
use crate::half::{RecvHalf, SendHalf};
use crate::setup::{self, Draft};

/// A kind of connection that can be listened for: the part of [`Protocol`] that needs no halves.
/// Types without values implement it, as [`SendRecv`](crate::SendRecv).
pub trait Served: fmt::Debug + sealed::Sealed + Sized + 'static {
    /// Its number in the handshake.
    const ID: ProtocolId;
    /// Its name in texts for people.
    const NAME: &'static str;

    /// The part of an initiator's application data that belongs to the user. `directions` is 2
    /// for an initiator that connects both ways, else 1.
    #[doc(hidden)]
    fn user_data(said: &[u8], directions: usize) -> &[u8];
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

    /// A receiver without peers.
    #[doc(hidden)]
    fn receiver(
        device: &Device,
        config: &Self::Config,
        max_peers: u32,
        pool: Option<&Self::Pool>,
    ) -> Result<Self::Receiver, ConnectError>;

    /// A sender in the making.
    #[doc(hidden)]
    type NewSender: setup::NewSender<Done = Self::Sender>;
    /// A link of a receiver in the making.
    #[doc(hidden)]
    type NewLink: setup::NewLink<
            Receiver = Self::Receiver,
            Terms = <Self::NewSender as setup::NewHalf>::Terms,
        >;

    /// Makes a sender if this end `sends`, and a link of its receiver if it has one.
    #[doc(hidden)]
    fn draft<'a>(half: SetUp<'a, Self>, sends: bool) -> Result<DraftOf<'a, Self>, ConnectError>;
}

/// A connection of this protocol in the making.
#[doc(hidden)]
pub type DraftOf<'a, P> = Draft<'a, <P as Protocol>::NewSender, <P as Protocol>::NewLink>;

/// One end of a connection in the making.
#[doc(hidden)]
#[derive(Debug)]
pub struct SetUp<'a, P: Protocol> {
    pub(crate) device: &'a Device,
    pub(crate) config: &'a P::Config,
    /// Where the peer's messages are to go; `None` if it sends none.
    pub(crate) receiver: Option<&'a mut P::Receiver>,
    /// What the receiver takes its buffers from.
    pub(crate) pool: Option<&'a P::Pool>,
}

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

pub(crate) mod sealed {
    pub trait Sealed {}
}
