//! Groups between processes: one leads, the others join.
//!
//! ```text
//!   member                     leader
//!     | -------- Hello --------> |   until all are there
//!     | <--- Accept: terms ----- |   rank, and what the group is like
//!     |   makes its queue pairs, registers its memory
//!     | -- Ready, its info ----> |
//!     | <----- all infos ------- |
//!     |   connects its queue pairs
//!     | ------- one byte ------> |
//!     | <------ one byte ------- |   when all have: messages may flow
//! ```

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use conn_core::handshake::{
    Endpoint, Frame, MAX_APPLICATION, Mtu, Options, Parameters, ProtocolId, Reason,
};
use conn_core::multicast::{MAX_MEMBER_INFO_BYTES, MemberInfo, Rank, TERMS_BYTES, Terms};

use super::config::Config;
use super::error::JoinError;
use super::group::Group;
use crate::acceptor::{Acceptor, ConnectRequest, dial, dial_timeout};
use crate::device::Device;
use crate::error::ConnectError;
use crate::handshake::{Exchange, HandshakeError, Stream, TIME_LIMIT, Within};
use crate::wait::Deadline;

/// Time that a member waits for the others to connect.
pub const GATHERING: Duration = Duration::from_secs(120);
/// Time limit of a group's set-up, from the time when all its members are there.
pub const SET_UP: Duration = Duration::from_secs(20);
const GO: u8 = b'G';
/// Time that a leader waits until it tries again to accept a connection.
const LITTLE: Duration = Duration::from_millis(100);

/// Event while a leader waits for the members of its group.
#[derive(Debug)]
#[non_exhaustive]
pub enum Gathering<'a> {
    /// The number of other members that are there has changed.
    There {
        /// Other members that are there now.
        came: usize,
        /// Members that the group has, besides the leader.
        wanted: usize,
    },
    /// A connection was refused, or could not be accepted; the leader keeps waiting.
    Refused {
        /// The reason; a refused client was sent it.
        error: &'a ConnectError,
    },
}

/// A member of a group that was set up over TCP.
#[derive(Debug)]
pub struct Joined {
    /// The member.
    pub group: Group,
    /// The data that the leader's user has sent to all members.
    pub user: Vec<u8>,
    /// The leader's streams to the other members, by rank from 1; another member's to the
    /// leader. They are free for the users' data; the group does not need them.
    pub streams: Vec<TcpStream>,
}

/// Gathers a group, and is its member of rank 0.
///
/// ```
/// use rdma_conn::multicast::{Config, Leader, join};
///
/// let device = rdma_conn::device::soft()?;
/// let leader = Leader::bind("127.0.0.1:0")?;
/// let (address, config) = (leader.local_addr(), Config { members: 2, ..Config::default() });
/// let other = std::thread::spawn({
///     let device = device.clone();
///     move || join(address, &device, &config).map(|joined| joined.group.rank().0)
/// });
/// let joined = leader.gather(&device, &config, b"")?;
/// assert_eq!((joined.group.rank().0, other.join().unwrap()?), (0, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Leader(Acceptor);

impl Leader {
    /// The longest user data that a leader sends to all members, in bytes.
    pub const MAX_USER: usize = MAX_APPLICATION - TERMS_BYTES;

    /// Listens for members on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ConnectError::System`] when the address cannot be used.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Leader, JoinError> {
        Ok(Leader(Acceptor::bind(address, ProtocolId::MULTICAST)?))
    }

    /// The address that is listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// Waits for the other members, no longer than [`GATHERING`], and sets the group up with
    /// them. A client of another protocol is refused and not counted; members that leave before
    /// all are there are not counted either. `user` is sent to all members.
    ///
    /// # Errors
    /// [`JoinError`]; the streams of the members that had connected are closed.
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

    /// [`gather`](Self::gather), but waits at most `within` for the others to connect; then
    /// setting the group up takes at most [`SET_UP`]. The others themselves wait no longer than
    /// [`GATHERING`] for each other.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_conn::multicast::{Config, JoinError, Leader};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let leader = Leader::bind("127.0.0.1:0")?;
    /// let config = Config { members: 3, ..Config::default() };
    /// let missing = leader.gather_within(Duration::from_millis(1), &device, &config, b"");
    /// assert!(matches!(missing, Err(JoinError::Missing { came: 0, wanted: 2, .. })));
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
        self.gather_observed(within, device, config, user, |event| {
            if let Gathering::Refused { error } = event {
                tracing::warn!(%error, "a connection was refused");
            }
        })
    }

    /// [`gather_within`](Self::gather_within) that tells `observe` what happens meanwhile, in place
    /// of logging it.
    ///
    /// ```
    /// use rdma_conn::multicast::{Config, GATHERING, Gathering, Leader, join};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let leader = Leader::bind("127.0.0.1:0")?;
    /// let (address, config) = (leader.local_addr(), Config { members: 2, ..Config::default() });
    /// let other = std::thread::spawn({
    ///     let device = device.clone();
    ///     move || join(address, &device, &config).map(|_| ())
    /// });
    /// let mut there = Vec::new();
    /// leader.gather_observed(GATHERING, &device, &config, b"", |event| {
    ///     if let Gathering::There { came, wanted } = event {
    ///         there.push((came, wanted));
    ///     }
    /// })?;
    /// assert_eq!(there, [(1, 1)]);
    /// other.join().unwrap()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As of `gather`.
    ///
    /// # Panics
    /// As `gather`.
    pub fn gather_observed(
        &self,
        within: Duration,
        device: &Device,
        config: &Config,
        user: &[u8],
        observe: impl FnMut(Gathering<'_>),
    ) -> Result<Joined, JoinError> {
        assert!(user.len() <= Self::MAX_USER, "too much to tell");
        config.validate()?;
        let mut requests = self.requests(config.members, within, observe)?;
        let deadline = Deadline::after(SET_UP);
        let mut group = Group::new(device, config.core(Rank(0)), config.link)?;
        let mut infos = vec![group.info()?];
        for (rank, request) in (1..).map(Rank).zip(&mut requests) {
            admit(request, config, rank, user)?;
        }
        let in_time = |request: ConnectRequest<TcpStream>| Within::until(request.stream, deadline);
        let mut streams: Vec<Within<TcpStream>> = requests.into_iter().map(in_time).collect();
        for (rank, stream) in (1..).map(Rank).zip(&mut streams) {
            Exchange::new(stream, TIME_LIMIT).ready()?;
            infos.push(read_member_info(stream, rank, config.members)?);
        }
        for stream in &mut streams {
            infos.iter().try_for_each(|info| write_member_info(stream, info))?;
        }
        group.join_all(&infos)?;
        for stream in &mut streams {
            read(stream, &mut [0])?;
        }
        for stream in &mut streams {
            write(stream, &[GO])?;
        }
        group.begin();
        let streams = streams.into_iter().map(Within::into_inner).collect();
        Ok(Joined { group, user: user.to_vec(), streams })
    }

    fn requests(
        &self,
        members: u8,
        within: Duration,
        mut observe: impl FnMut(Gathering<'_>),
    ) -> Result<Vec<ConnectRequest<TcpStream>>, JoinError> {
        let deadline = Deadline::after(within);
        let (mut requests, wanted) = (Vec::new(), usize::from(members) - 1);
        while requests.len() < wanted {
            let before = requests.len();
            match self.0.next_until(deadline) {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => {}
                Err(e) => {
                    observe(Gathering::Refused { error: &e });
                    // A client that could not be accepted, for example without a free descriptor,
                    // still waits at the socket.
                    if matches!(e, ConnectError::System { .. }) {
                        host::time::sleep(LITTLE);
                    }
                }
            }
            if requests.len() == wanted {
                requests.retain(|request| is_there(&request.stream));
            }
            if requests.len() != before {
                observe(Gathering::There { came: requests.len(), wanted });
            }
            // Also while clients that do not count keep connecting.
            if requests.len() < wanted && deadline.has_passed(host::time::now()) {
                return Err(JoinError::Missing { came: requests.len(), wanted, within });
            }
        }
        Ok(requests)
    }
}

/// Reports whether a caller is still connected: one that is has nothing to send now.
fn is_there(stream: &TcpStream) -> bool {
    let looked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let waits = looked.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
    waits && stream.set_nonblocking(false).is_ok()
}

/// Sends a caller its rank and the terms of the group.
fn admit(
    request: &mut ConnectRequest<TcpStream>,
    config: &Config,
    rank: Rank,
    user: &[u8],
) -> Result<(), JoinError> {
    let mut application = Terms(config.core(rank)).encode().to_vec();
    application.extend_from_slice(user);
    let accept = Frame::Accept(parameters(&application));
    Ok(Exchange::new(&mut request.stream, TIME_LIMIT).send(&accept)?)
}

/// Joins the group of the leader at `address`. The leader assigns the rank of this member and sets
/// the terms of the group, within the limits of `config` ([`max_members`](Config::max_members),
/// [`max_ring_bytes`](Config::max_ring_bytes)); of `config`, those and [`link`](Config::link) are
/// used.
///
/// # Errors
/// [`JoinError`]; where the handshake fails, the leader is sent the reason if that is possible.
pub fn join(
    address: impl ToSocketAddrs,
    device: &Device,
    config: &Config,
) -> Result<Joined, JoinError> {
    join_over(Within::until(dial(address)?, Deadline::NEVER), device, config)
}

/// As [`join()`], for at most `timeout` in all, the wait for the other members included. (Looking
/// up a name in place of an address takes its own time.)
///
/// # Errors
/// As [`join()`]; [`ConnectError::is_timeout`] tells that the time was over.
pub fn join_timeout(
    address: impl ToSocketAddrs,
    device: &Device,
    config: &Config,
    timeout: Duration,
) -> Result<Joined, JoinError> {
    join_over(dial_timeout(address, timeout)?, device, config)
}

fn join_over(
    mut stream: Within<TcpStream>,
    device: &Device,
    config: &Config,
) -> Result<Joined, JoinError> {
    let mut exchange = Exchange::new(&mut stream, TIME_LIMIT);
    exchange.send(&Frame::Hello(parameters(b"")))?;
    exchange.limit(GATHERING);
    let (terms, user) = exchange.receive(|frame| match frame {
        Frame::Accept(told) => terms(told.application),
        _ => Err(HandshakeError::OutOfOrder { expected: "Accept" }),
    })?;
    let Terms(asked) = terms;
    let admitted = config.admit(&asked);
    admitted.inspect_err(|e| exchange.refuse(Reason::PARAMETERS, &e.to_string()))?;
    let group = Group::new(device, asked, config.link);
    let mut group = group.inspect_err(|e| exchange.refuse(Reason::INTERNAL, &e.to_string()))?;
    exchange.limit(TIME_LIMIT);
    exchange.send(&Frame::Ready)?;
    let mut stream = Within::new(stream, SET_UP);
    write_member_info(&mut stream, &group.info()?)?;
    let members = (0..asked.members).map(Rank);
    let infos = members.map(|rank| read_member_info(&mut stream, rank, asked.members));
    group.join_all(&infos.collect::<Result<Vec<_>, _>>()?)?;
    write(&mut stream, &[GO])?;
    read(&mut stream, &mut [0])?;
    group.begin();
    Ok(Joined { group, user, streams: vec![stream.into_inner().into_inner()] })
}

fn terms(application: &[u8]) -> Result<(Terms, Vec<u8>), HandshakeError> {
    let unfit = |why: &dyn std::fmt::Display| HandshakeError::Unfit(why.to_string());
    let split = application.split_at_checked(TERMS_BYTES);
    let (bytes, user) = split.ok_or_else(|| unfit(&"the leader tells too little"))?;
    let terms = Terms::decode(bytes).map_err(|e| unfit(&e))?;
    Ok((terms, user.to_vec()))
}

/// A frame describes a queue pair, which is not known when it is sent: the fields are 0, and
/// the member infos describe the queue pairs.
fn parameters(application: &[u8]) -> Parameters<'_> {
    let unknown = Endpoint { qp_num: 0, psn: 0, recv_depth: 0, max_message: 0 };
    Parameters {
        protocol: ProtocolId::MULTICAST,
        options: Options::NONE,
        initiator_to_acceptor: Some(unknown),
        acceptor_to_initiator: Some(unknown),
        lid: 0,
        gid: [0; 16],
        mtu: Mtu::B256,
        application,
    }
}

fn write_member_info(stream: &mut impl Stream, info: &MemberInfo) -> Result<(), JoinError> {
    let mut bytes = [0; MAX_MEMBER_INFO_BYTES];
    let len = info.encode(&mut bytes);
    write(stream, &bytes[..len])
}

fn read_member_info(
    stream: &mut impl Stream,
    rank: Rank,
    members: u8,
) -> Result<MemberInfo, JoinError> {
    let mut bytes = [0; MAX_MEMBER_INFO_BYTES];
    let bytes = &mut bytes[..MemberInfo::bytes(members)];
    read(stream, bytes)?;
    let info = MemberInfo::decode(bytes, rank, members);
    Ok(info.map_err(|e| HandshakeError::Unfit(format!("the member info of {rank}: {e}")))?)
}

fn write(stream: &mut impl Stream, bytes: &[u8]) -> Result<(), JoinError> {
    Ok(stream.write_all(bytes).map_err(late)?)
}

/// Reads all of it.
fn read(stream: &mut impl Stream, bytes: &mut [u8]) -> Result<(), JoinError> {
    Ok(stream.read_exact(bytes).map_err(late)?)
}

/// Returns the handshake error of a stream's error; a timeout of the stream means that [`SET_UP`]
/// has passed.
fn late(error: io::Error) -> HandshakeError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => HandshakeError::TimedOut(SET_UP),
        _ => HandshakeError::Stream(error),
    }
}

impl From<HandshakeError> for JoinError {
    fn from(error: HandshakeError) -> JoinError {
        JoinError::Connect(ConnectError::from(error))
    }
}
