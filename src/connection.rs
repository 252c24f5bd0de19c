//! Functions that establish connections, generic over [`Protocol`].
//!
//! | | both ways | this end sends | many senders, one receiver |
//! |---|---|---|---|
//! | between processes | [`connect`], [`Incoming::accept`] | [`connect_sender`] | [`receiver`], [`Incoming::accept_into`] |
//! | within one | [`pair`] | [`join`] | [`receiver`], [`join`] |

use std::net::ToSocketAddrs;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::acceptor::{dial, dial_timeout, within_process};
use crate::device::Device;
use crate::draft::{self, DraftEnd};
use crate::error::ConnectError;
use crate::handshake::{Stream, present};
use crate::listener::Incoming;
use crate::protocol::{Connection, Protocol};

/// Connects to a [`Listener`](crate::Listener), both ways.
///
/// # Errors
/// [`ConnectError`]; the peer's reason when it refuses.
pub fn connect<P: Protocol>(
    address: impl ToSocketAddrs,
    device: &Device,
    config: &P::Config,
) -> Result<Connection<P>, ConnectError> {
    connect_over(&mut dial(address)?, device, config, b"")
}

/// As [`connect`], for at most `timeout` in all. (Looking up a name in place of an address takes
/// its own time.)
///
/// # Errors
/// As [`connect`]; [`ConnectError::is_timeout`] tells that the time was over.
pub fn connect_timeout<P: Protocol>(
    address: impl ToSocketAddrs,
    device: &Device,
    config: &P::Config,
    timeout: Duration,
) -> Result<Connection<P>, ConnectError> {
    connect_over(&mut dial_timeout(address, timeout)?, device, config, b"")
}

/// As [`connect`], over any stream, with some bytes for the peer's application: up to 512, less the
/// protocol's own ([`MAX_USER`](conn_core::ring::offer::MAX_USER) with rings). The stream is free
/// for other uses afterwards.
///
/// # Errors
/// As [`connect`].
pub fn connect_over<P: Protocol, S: Stream>(
    stream: &mut S,
    device: &Device,
    config: &P::Config,
    application: &[u8],
) -> Result<Connection<P>, ConnectError> {
    let mut receiver = draft::receiver::<P>(device, config, 1, None)?;
    let end = DraftEnd::<P> { device, config, receiver: Some(&mut receiver), pool: None };
    let sender = draft::initiate(stream, end.draft(true)?, application)?;
    Ok(Connection { sender: present(sender)?, receiver })
}

/// Connects to a listener one way: this end sends.
///
/// # Errors
/// As [`connect`].
pub fn connect_sender<P: Protocol>(
    address: impl ToSocketAddrs,
    device: &Device,
    config: &P::Config,
) -> Result<P::Sender, ConnectError> {
    connect_sender_over::<P, _>(&mut dial(address)?, device, config, b"")
}

/// As [`connect_sender`], for at most `timeout` in all. (Looking up a name in place of an address
/// takes its own time.)
///
/// # Errors
/// As [`connect_sender`]; [`ConnectError::is_timeout`] tells that the time was over.
pub fn connect_sender_timeout<P: Protocol>(
    address: impl ToSocketAddrs,
    device: &Device,
    config: &P::Config,
    timeout: Duration,
) -> Result<P::Sender, ConnectError> {
    connect_sender_over::<P, _>(&mut dial_timeout(address, timeout)?, device, config, b"")
}

/// As [`connect_sender`], over any stream, with some bytes for the peer's application.
///
/// # Errors
/// As [`connect`].
pub fn connect_sender_over<P: Protocol, S: Stream>(
    stream: &mut S,
    device: &Device,
    config: &P::Config,
    application: &[u8],
) -> Result<P::Sender, ConnectError> {
    let draft = DraftEnd::<P>::sending(device, config).draft(true)?;
    Ok(present(draft::initiate(stream, draft, application)?)?)
}

/// Connects two ends within this process, which may be on different devices.
///
/// ```
/// use rdma_conn::{BufferedRead, RecvHalf, SendHalf, pair};
///
/// let device = rdma_conn::device::soft()?;
/// let (mut left, mut right) = pair::<BufferedRead>(&device, &device, &Default::default())?;
/// left.sender.send(b"hello")?;
/// assert_eq!(&*right.receiver.recv()?, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`connect`].
pub fn pair<P: Protocol>(
    left: &Device,
    right: &Device,
    config: &P::Config,
) -> Result<(Connection<P>, Connection<P>), ConnectError> {
    within_process(
        |stream: &mut UnixStream| connect_over(stream, left, config, b""),
        |stream| Incoming::<P, _>::greet(stream)?.accept(right, config),
    )
}

/// A receiver without senders yet, for up to `max_peers` of them: the single-receiver mode.
/// Senders are added by [`join`], or by [`Incoming::accept_into`].
///
/// # Errors
/// [`ConnectError::Device`], [`ConnectError::Config`].
pub fn receiver<P: Protocol>(
    device: &Device,
    config: &P::Config,
    max_peers: u32,
) -> Result<P::Receiver, ConnectError> {
    draft::receiver::<P>(device, config, max_peers, None)
}

/// As [`receiver`]; if `pool` is given, its completion queue has room for the completions of that
/// pool; its peers may use the pool's buffers.
///
/// # Errors
/// As [`receiver`].
pub fn receiver_shared<'a, P: Protocol>(
    device: &Device,
    config: &P::Config,
    max_peers: u32,
    pool: impl Into<Option<&'a P::Pool>>,
) -> Result<P::Receiver, ConnectError> {
    draft::receiver::<P>(device, config, max_peers, pool.into())
}

/// Connects a new sender on `device` to a receiver of this process.
///
/// # Errors
/// As [`connect`], and [`ConnectError::TooManyPeers`].
pub fn join<P: Protocol>(
    receiver: &mut P::Receiver,
    receiver_device: &Device,
    device: &Device,
    config: &P::Config,
) -> Result<P::Sender, ConnectError> {
    join_shared::<P>(receiver, None::<&P::Pool>, receiver_device, device, config)
}

/// As [`join`], with receive buffers of a shared pool, if there is one.
///
/// # Errors
/// As [`join`], and [`ConnectError::SharedPoolFull`].
pub fn join_shared<'a, P: Protocol>(
    receiver: &mut P::Receiver,
    pool: impl Into<Option<&'a P::Pool>>,
    receiver_device: &Device,
    device: &Device,
    config: &P::Config,
) -> Result<P::Sender, ConnectError> {
    let (sender, _) = within_process(
        |stream: &mut UnixStream| connect_sender_over::<P, _>(stream, device, config, b""),
        |stream| {
            let incoming = Incoming::<P, _>::greet(stream)?;
            incoming.accept_into_shared(receiver, pool, receiver_device, config)
        },
    )?;
    Ok(sender)
}
