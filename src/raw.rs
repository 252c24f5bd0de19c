//! Raw queue pairs: verbs without a protocol on top, set up as connections are.
//!
//! For programs that call verbs themselves, as the command's `--op`: queue pairs of [`verbs_safe`],
//! made with the program's own configuration, and joined to those of a peer over the versioned
//! handshake. There is no flow control, no framing and no goodbye; the program handles the
//! completions of its [`QueuePair`].
//!
//! 1. [`RawEnd::new`] makes a queue pair; post its receives.
//! 2. One end calls [`RawEnd::connect`], the other one [`Incoming::greet`] and then
//!    [`Incoming::accept`], over any byte stream. Both get the [`RawPeer`]: the memory
//!    that it lets us reach, how much it has posted, and its user's data.
//! 3. Post and poll. The stream is free for other uses.
//!
//! Queue pairs of all transports are set up alike. A datagram queue pair can be joined to any
//! number of peers, one after the other; stage a request to the [`RawPeer::id`] of its peer.
//!
//! ```
//! use std::os::unix::net::UnixStream;
//! use rdma_conn::raw::{Incoming, Link, Offer, RawEnd};
//! use rdma_conn::verbs_safe::{CompletionBatch, CqConfig, QueuePairConfig, RecvSide, SendOp};
//!
//! let device = rdma_conn::device::soft()?;
//! let cq = device.context().create_cq(CqConfig::new(64))?;
//! let recv = RecvSide::Own { slots: 4, slot_bytes: 64 };
//! let config = QueuePairConfig { max_send_wr: 4, recv, ..QueuePairConfig::new(&cq, &cq) };
//! let mut near = RawEnd::new(&device, &config, Link::default())?;
//! let mut far = RawEnd::new(&device, &config, Link::default())?;
//! far.queues.recv.as_mut().expect("asked for").post(&[0, 1, 2, 3])?;
//!
//! let (mut a, mut b) = UnixStream::pair()?;
//! let accepting = std::thread::spawn(move || {
//!     let peer = Incoming::greet(&mut b)?.accept(&mut far, &Offer::default())?;
//!     Ok::<_, rdma_conn::send_recv::ConnectError>((far, peer.user))
//! });
//! near.connect(&mut a, &Offer { user: b"hello", ..Offer::default() })?;
//! let (far, user) = accepting.join().expect("it does not panic")?;
//! assert_eq!(user, b"hello");
//!
//! near.queues.send.next_slot().expect("a free slot")[..2].copy_from_slice(b"hi");
//! near.queues.send.stage(SendOp::Send { len: 2 }, true)?;
//! near.queues.send.post()?;
//! # let mut far = far.queues.recv.expect("asked for");
//! # let mut batch = CompletionBatch::new(8);
//! # let mut received = false;
//! while !received {
//!     cq.poll(&mut batch)?;
//!     for completion in batch.drain() {
//!         if completion.queue_id() == far.queue_id() {
//!             assert_eq!(&*far.take(completion)?, b"hi");
//!             received = true;
//!         }
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod setup;

use conn_core::raw::{MAX_USER, Transport};
use verbs_safe::{
    AhAttr, ConnectAttr, Endpoint, Mtu, PeerId, QueuePair, QueuePairConfig, RecvSide, RemoteSpan,
};

use crate::device::Device;
use crate::error::ConnectError;
use crate::wire::{ConnectionPort, check_reach};

pub use setup::Incoming;

/// Settings by which a queue pair reaches its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Index in the port's GID table; `None` prefers the IPv4-mapped RoCE v2 GID.
    pub gid_index: Option<u32>,
    /// The largest MTU to use, in bytes; the smaller of both ports' limits it, too.
    pub mtu_bytes: u32,
    /// Time to an acknowledgement is 4.096 µs · 2^`timeout`; 16 is 268 ms.
    pub timeout: u8,
    /// Retries before `RETRY_EXC`, 0 to 7. To the kernel's rxe, 7 is for ever: a peer that
    /// has gone would never be missed.
    pub retry_count: u8,
    /// Retries after a receiver-not-ready, 0 to 6; 7 is for ever. Without flow control
    /// a receiver may be late for long: the caller's waits need a deadline of their own.
    pub rnr_retry: u8,
    /// Code of the time that the peer waits after our receiver-not-ready; 12 is 0.64 ms.
    pub min_rnr_timer: u8,
    /// READs and atomics in flight, of either end, up to the device's limit.
    pub rd_atomic: u8,
}

impl Default for Link {
    /// As [`send_recv::Transport`](crate::send_recv::Transport), but with RNR retries
    /// for ever, and 16 READs in flight.
    fn default() -> Link {
        Link {
            gid_index: None,
            mtu_bytes: 4096,
            timeout: 16,
            retry_count: 6,
            rnr_retry: 7,
            min_rnr_timer: 12,
            rd_atomic: 16,
        }
    }
}

/// Data that an end tells its peer besides its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offer<'a> {
    /// Memory that the peer may reach, as its access rights permit.
    pub memory: Option<RemoteSpan>,
    /// The user's data, up to [`Offer::MAX_USER`] bytes.
    pub user: &'a [u8],
}

impl Offer<'_> {
    /// The longest user's data, in bytes.
    pub const MAX_USER: usize = MAX_USER;
}

/// Facts that are known of the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawPeer {
    /// Its address.
    pub endpoint: Endpoint,
    /// Memory that it lets us reach.
    pub memory: Option<RemoteSpan>,
    /// Receives that it can have posted.
    pub recv_slots: u32,
    /// Bytes of each of them.
    pub recv_slot_bytes: u32,
    /// The destination to stage datagrams to; `None` where the transport has connections.
    pub id: Option<PeerId>,
    /// Its user's data.
    pub user: Vec<u8>,
}

/// A queue pair, before or after it is joined to a peer's.
#[derive(Debug)]
pub struct RawEnd {
    /// The queue pair. Its receives are the user's to post.
    pub queues: QueuePair,
    transport: Transport,
    link: Link,
    port: ConnectionPort,
    psn: u32,
    qkey: u32,
    is_active: bool,
    /// The device speaks RoCE v2 over UDP.
    is_wired: bool,
    is_local: bool,
    recv_slots: u32,
    recv_slot_bytes: u32,
}

impl RawEnd {
    /// A queue pair in INIT.
    ///
    /// # Errors
    /// [`ConnectError::Device`] with the verb that was refused.
    pub fn new(
        device: &Device,
        config: &QueuePairConfig<'_>,
        link: Link,
    ) -> Result<RawEnd, ConnectError> {
        let port = ConnectionPort::query(device, config.port, link.gid_index)?;
        let queues = device.pd().create_qp(config, ());
        let queues = queues.map_err(|e| device.error("create a queue pair", &e))?;
        let (recv_slots, recv_slot_bytes) = receives(config);
        let rd_atomic = rd_atomic(device, link.rd_atomic)?;
        let (transport, qkey) = transport(config.transport);
        Ok(RawEnd {
            queues,
            transport,
            qkey,
            is_active: false,
            is_wired: device.is_wired(),
            is_local: device.is_local(),
            link: Link { rd_atomic, ..link },
            port,
            psn: verbs_safe::random_psn(),
            recv_slots,
            recv_slot_bytes,
        })
    }

    /// The transport of the queue pair.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns the endpoint of this queue pair, for programs that set it up by other means than the
    /// handshake.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        let (qp_num, gid) = (self.queues.control.qp_num(), self.port.gid.gid);
        Endpoint { qp_num, psn: self.psn, lid: self.port.attr.lid, gid }
    }

    /// The active MTU of the port, in bytes: the value that the peer passes to
    /// [`join`](Self::join).
    #[must_use]
    pub fn mtu_bytes(&self) -> u32 {
        self.port.attr.active_mtu.bytes()
    }

    /// Joins the queue pair to the peer's; the peer's port has an MTU of `mtu_bytes`. The handshake
    /// does it; this is for set-up by other means.
    ///
    /// # Errors
    /// [`ConnectError::Device`] with the refused transition, also if the queue pair is for
    /// datagrams: see [`reach`](Self::reach).
    /// [`HandshakeError::OutOfReach`](crate::handshake::HandshakeError::OutOfReach).
    pub fn join(&mut self, peer: &Endpoint, mtu_bytes: u32) -> Result<(), ConnectError> {
        check_reach(self.is_local, &self.port.gid, &peer.gid)?;
        let mtu = self.mtu_bytes().min(mtu_bytes).min(self.link.mtu_bytes);
        let attr = ConnectAttr {
            port: self.port.attr.port,
            gid_index: self.gid_index(),
            mtu: Mtu::from_bytes(mtu).unwrap_or(Mtu::B256),
            min_rnr_timer: self.link.min_rnr_timer,
            rnr_retry: self.link.rnr_retry,
            retry_cnt: self.link.retry_count,
            timeout: self.link.timeout,
            max_rd_atomic: self.link.rd_atomic,
            max_dest_rd_atomic: self.link.rd_atomic,
            local_psn: self.psn,
        };
        let joined = self.queues.control.connect(peer, &attr);
        joined.map_err(|e| self.error("connect a queue pair", &e))
    }

    /// Adds `peer`, with the Q_Key `qkey`, as a destination of datagrams, and makes the queue pair
    /// ready for them. The handshake does it; this is for set-up by other means.
    ///
    /// # Errors
    /// [`ConnectError::Device`] with the refused verb, also if the queue pair is not for datagrams.
    /// [`HandshakeError::OutOfReach`](crate::handshake::HandshakeError::OutOfReach).
    pub fn reach(&mut self, peer: &Endpoint, qkey: u32) -> Result<PeerId, ConnectError> {
        check_reach(self.is_local, &self.port.gid, &peer.gid)?;
        if !self.is_active {
            let active = self.queues.control.activate(self.psn);
            active.map_err(|e| self.error("activate a queue pair", &e))?;
            self.is_active = true;
        }
        let path = AhAttr { port: self.port.attr.port, ..AhAttr::new(self.gid_index()) };
        let pd = self.queues.control.protection_domain();
        let at = pd.create_ah(peer, path);
        let at = at.map_err(|e| self.error("make an address handle", &e))?;
        let added = self.queues.send.add_peer(&at, peer.qp_num, qkey);
        added.map_err(|e| self.error("add a peer", &e))
    }

    fn gid_index(&self) -> u8 {
        u8::try_from(self.port.gid.index).unwrap_or(u8::MAX)
    }

    fn error(&self, what: &'static str, reason: &dyn std::fmt::Display) -> ConnectError {
        let device = self.queues.control.context().device_name().to_owned();
        crate::device::DeviceError { device, what, reason: reason.to_string() }.into()
    }
}

/// The transport as the handshake numbers it, and the key of one that has one.
fn transport(transport: verbs_safe::Transport) -> (Transport, u32) {
    match transport {
        verbs_safe::Transport::Rc => (Transport::Rc, 0),
        verbs_safe::Transport::Uc => (Transport::Uc, 0),
        verbs_safe::Transport::Ud { qkey } => (Transport::Ud, qkey),
    }
}

fn receives(config: &QueuePairConfig<'_>) -> (u32, u32) {
    match config.recv {
        // A slot's length has to fit into a scatter/gather entry.
        RecvSide::Own { slots, slot_bytes } => (slots, slot_bytes as u32),
        RecvSide::Shared(srq) => (srq.slots(), u32::MAX),
        RecvSide::None => (0, 0),
    }
}

/// Returns `wanted`, up to the device's limit, but at least 1: some devices refuse 0.
pub(crate) fn rd_atomic(device: &Device, wanted: u8) -> Result<u8, ConnectError> {
    let attr = device.context().attr().map_err(|e| device.error("query the limits", &e))?;
    let limit = attr.max_qp_rd_atom.min(attr.max_qp_init_rd_atom);
    Ok(u32::from(wanted).min(limit).max(1) as u8)
}
