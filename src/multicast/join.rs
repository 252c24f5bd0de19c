//! Groups between processes: one leads, the others join.
//!
//! ```text
//!   member                     leader
//!     | -------- Hello --------> |   until all are there
//!     | <--- Accept: terms ----- |   rank, and what the group is like
//!     |   makes its queue pairs, registers its memory
//!     | --- Ready, its card ---> |
//!     | <------ all cards ------ |
//!     |   connects its queue pairs
//!     | ------- one byte ------> |
//!     | <------ one byte ------- |   when all have: messages may flow
//! ```

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use conn_core::handshake::{
    Endpoint, Frame, MAX_APPLICATION, Mtu, Options, Parameters, ProtocolId, Reason,
};
use conn_core::multicast::{Card, MAX_CARD_BYTES, Rank, TERMS_BYTES, Terms};

use super::config::{Config, patient};
use super::error::JoinError;
use super::group::Group;
use crate::device::Device;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT};
use crate::raw::Link;
use crate::reception::{Caller, Reception, dial};
use crate::send_recv::ConnectError;
use crate::wait::Deadline;

/// How long a member waits for the others to come.
pub const GATHERING: Duration = Duration::from_secs(120);
const GO: u8 = b'G';
/// How long a leader waits until it tries again to accept somebody.
const LITTLE: Duration = Duration::from_millis(100);

/// A member of a group that was set up over TCP.
#[derive(Debug)]
pub struct Joined {
    /// The member.
    pub group: Group,
    /// What the leader's user has told all members.
    pub user: Vec<u8>,
    /// The leader's streams to the other members, by rank from 1; another member's to the
    /// leader. They are the users' from here on; the group does not need them.
    pub streams: Vec<TcpStream>,
}

/// Who gathers a group, and is its member of rank 0.
///
/// ```
/// use rdma_conn::multicast::{Config, Leader, join};
///
/// let device = rdma_conn::device::soft()?;
/// let leader = Leader::bind("127.0.0.1:0")?;
/// let (address, config) = (leader.local_addr(), Config { members: 2, ..Config::default() });
/// let other = std::thread::spawn({
///     let device = device.clone();
///     move || join(address, &device, config.link).map(|joined| joined.group.rank().0)
/// });
/// let joined = leader.gather(&device, &config, b"")?;
/// assert_eq!((joined.group.rank().0, other.join().unwrap()?), (0, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Leader(Reception);

impl Leader {
    /// What a leader can tell all members besides what the group is like, in bytes.
    pub const MAX_USER: usize = MAX_APPLICATION - TERMS_BYTES;

    /// Listens for members on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ConnectError::System`] when the address cannot be used.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Leader, JoinError> {
        Ok(Leader(Reception::bind(address, ProtocolId::MULTICAST)?))
    }

    /// The address that is listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// Waits for the other members, no longer than [`GATHERING`], and sets the group up with
    /// them. Whoever speaks something else is refused and does not count, nor does who has
    /// left before all were there. `user` is told to all of them.
    ///
    /// # Errors
    /// [`JoinError`]; the members that had come are told.
    ///
    /// # Panics
    /// When `user` is longer than [`MAX_USER`](Self::MAX_USER).
    pub fn gather(
        &self,
        device: &Device,
        config: &Config,
        user: &[u8],
    ) -> Result<Joined, JoinError> {
        self.gather_within(GATHERING, device, config, user)
    }

    /// [`gather`](Self::gather), but waits no longer than `within` for the others to come. They
    /// themselves wait no longer than [`GATHERING`] for each other.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_conn::multicast::{Config, JoinError, Leader};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let leader = Leader::bind("127.0.0.1:0")?;
    /// let config = Config { members: 3, ..Config::default() };
    /// let nobody = leader.gather_within(Duration::from_millis(1), &device, &config, b"");
    /// assert!(matches!(nobody, Err(JoinError::Missing { came: 0, wanted: 2, .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As of `gather`.
    ///
    /// # Panics
    /// As `gather`.
    pub fn gather_within(
        &self,
        within: Duration,
        device: &Device,
        config: &Config,
        user: &[u8],
    ) -> Result<Joined, JoinError> {
        assert!(user.len() <= Self::MAX_USER, "too much to tell");
        config.validate()?;
        let mut callers = self.callers(config.members, within)?;
        let group = Group::new(device, config.core(Rank(0)), config.link)?;
        let mut cards = vec![group.card()?];
        for (rank, caller) in (1..).map(Rank).zip(&mut callers) {
            admit(caller, config, rank, user)?;
        }
        let mut streams: Vec<TcpStream> = callers.into_iter().map(|c| c.stream).collect();
        for (rank, stream) in (1..).map(Rank).zip(&mut streams) {
            Exchange::new(stream, TIME_LIMIT).ready()?;
            cards.push(read_card(stream, rank, config.members)?);
        }
        for stream in &mut streams {
            cards.iter().try_for_each(|card| write_card(stream, card))?;
        }
        let mut group = group;
        group.join_all(&cards)?;
        for stream in &mut streams {
            read(stream, &mut [0])?;
        }
        for stream in &mut streams {
            write(stream, &[GO])?;
        }
        group.begin();
        Ok(Joined { group, user: user.to_vec(), streams })
    }

    fn callers(&self, members: u8, within: Duration) -> Result<Vec<Caller<TcpStream>>, JoinError> {
        let deadline = Deadline::after(within);
        let (mut callers, wanted) = (Vec::new(), usize::from(members) - 1);
        while callers.len() < wanted {
            match self.0.next_until(deadline) {
                Ok(Some(caller)) => callers.push(caller),
                Ok(None) => {}
                Err(e) => {
                    tracing::warn!(error = %e, "somebody was refused");
                    // Whoever could not be accepted, for want of descriptors say, still waits.
                    if matches!(e, ConnectError::System { .. }) {
                        std::thread::sleep(LITTLE);
                    }
                }
            }
            if callers.len() == wanted {
                callers.retain(|caller| is_there(&caller.stream));
            }
            // However many come who do not count.
            if callers.len() < wanted && deadline.has_passed(Instant::now()) {
                return Err(JoinError::Missing { came: callers.len(), wanted, within });
            }
        }
        Ok(callers)
    }
}

/// Whether a caller, who has nothing to say now, has not left.
fn is_there(stream: &TcpStream) -> bool {
    let looked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let waits = looked.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
    waits && stream.set_nonblocking(false).is_ok()
}

/// Tells a caller its rank, and what the group is like.
fn admit(
    caller: &mut Caller<TcpStream>,
    config: &Config,
    rank: Rank,
    user: &[u8],
) -> Result<(), JoinError> {
    let mut application = Terms(config.core(rank)).encode().to_vec();
    application.extend_from_slice(user);
    let accept = Frame::Accept(parameters(&application));
    Ok(Exchange::new(&mut caller.stream, TIME_LIMIT).send(&accept)?)
}

/// Joins the group whose leader listens on `address`. Its rank, and what the group is like,
/// the leader tells.
///
/// # Errors
/// [`JoinError`]; the leader is told, as far as it can be.
pub fn join(address: impl ToSocketAddrs, device: &Device, link: Link) -> Result<Joined, JoinError> {
    let mut stream = dial(address)?;
    let mut exchange = Exchange::new(&mut stream, TIME_LIMIT);
    exchange.send(&Frame::Hello(parameters(b"")))?;
    exchange.limit(GATHERING);
    let (terms, user) = exchange.receive(|frame| match frame {
        Frame::Accept(told) => terms(told.application),
        _ => Err(HandshakeError::OutOfOrder { expected: "Accept" }),
    })?;
    let Terms(config) = terms;
    let fits = patient(link, Duration::from_nanos(config.suspect_ns));
    fits.inspect_err(|e| exchange.refuse(Reason::INTERNAL, &e.to_string()))?;
    let group = Group::new(device, config, link);
    let mut group = group.inspect_err(|e| exchange.refuse(Reason::INTERNAL, &e.to_string()))?;
    exchange.limit(TIME_LIMIT);
    exchange.send(&Frame::Ready)?;
    write_card(&mut stream, &group.card()?)?;
    let members = (0..config.members).map(Rank);
    let cards = members.map(|rank| read_card(&mut stream, rank, config.members));
    group.join_all(&cards.collect::<Result<Vec<_>, _>>()?)?;
    write(&mut stream, &[GO])?;
    read(&mut stream, &mut [0])?;
    group.begin();
    Ok(Joined { group, user, streams: vec![stream] })
}

fn terms(application: &[u8]) -> Result<(Terms, Vec<u8>), HandshakeError> {
    let unfit = |why: &dyn std::fmt::Display| HandshakeError::Unfit(why.to_string());
    let split = application.split_at_checked(TERMS_BYTES);
    let (bytes, user) = split.ok_or_else(|| unfit(&"the leader tells too little"))?;
    let terms = Terms::decode(bytes).map_err(|e| unfit(&e))?;
    Ok((terms, user.to_vec()))
}

/// A frame says more of a queue pair than is known when it is sent; the cards do.
fn parameters(application: &[u8]) -> Parameters<'_> {
    let nobody = Endpoint { qp_num: 0, psn: 0, recv_window: 0, max_message: 0 };
    Parameters {
        protocol: ProtocolId::MULTICAST,
        options: Options::NONE,
        initiator_to_acceptor: Some(nobody),
        acceptor_to_initiator: Some(nobody),
        lid: 0,
        gid: [0; 16],
        mtu: Mtu::B256,
        application,
    }
}

fn write_card(stream: &mut TcpStream, card: &Card) -> Result<(), JoinError> {
    let mut bytes = [0; MAX_CARD_BYTES];
    let len = card.encode(&mut bytes);
    write(stream, &bytes[..len])
}

fn read_card(stream: &mut TcpStream, rank: Rank, members: u8) -> Result<Card, JoinError> {
    let mut bytes = [0; MAX_CARD_BYTES];
    let bytes = &mut bytes[..Card::bytes(members)];
    read(stream, bytes)?;
    let card = Card::decode(bytes, rank, members);
    Ok(card.map_err(|e| HandshakeError::Unfit(format!("the card of {rank}: {e}")))?)
}

fn write(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), JoinError> {
    let written = stream.set_timeout(TIME_LIMIT).and_then(|()| stream.write_all(bytes));
    Ok(written.map_err(HandshakeError::Stream)?)
}

/// Reads all of it. Whoever waits for a slow member waits no longer than it may take.
fn read(stream: &mut TcpStream, mut bytes: &mut [u8]) -> Result<(), JoinError> {
    let end = Instant::now() + 2 * TIME_LIMIT;
    while !bytes.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(HandshakeError::TimedOut(2 * TIME_LIMIT).into());
        }
        let got = stream.set_timeout(left).and_then(|()| match stream.read(bytes) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        });
        bytes = &mut bytes[got.map_err(HandshakeError::Stream)?..];
    }
    Ok(())
}

impl From<HandshakeError> for JoinError {
    fn from(error: HandshakeError) -> JoinError {
        JoinError::Connect(ConnectError::from(error))
    }
}
