//! One error type per verb, with the failed step, the state and the system's reason. This module
//! has those of memory and queues.

mod device;
mod request;

use thiserror::Error;

use crate::errno::Errno;
use crate::ids::QueueIdsExhausted;
use crate::limit::{ResourceLimit, locked_memory, reached};
use crate::state::QpState;
use crate::transport::Transport;

pub use device::*;
pub use request::*;

/// No protection domain.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("allocating a protection domain: {errno}")]
pub struct AllocPdError {
    /// The system's reason.
    pub errno: Errno,
}

/// Memory could not be mapped.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{step} of {bytes} bytes: {errno}{}", hint(limit.as_ref()))]
#[non_exhaustive]
pub struct MapError {
    /// The step that failed, in words.
    pub step: &'static str,
    /// Bytes that were asked for.
    pub bytes: usize,
    /// The system's reason.
    pub errno: Errno,
    /// The limit of the process that was reached, where one is set that explains the reason.
    pub limit: Option<ResourceLimit>,
}

impl MapError {
    /// A step that the system has refused, and the limit that explains it.
    #[must_use]
    pub fn new(step: &'static str, bytes: usize, errno: Errno) -> MapError {
        MapError { step, bytes, errno, limit: reached(errno) }
    }
}

/// A limit behind the reason that it explains.
fn hint(limit: Option<&ResourceLimit>) -> String {
    limit.map(|limit| format!("; {limit}")).unwrap_or_default()
}

/// Memory could not be registered with the device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RegisterError {
    /// There was no memory to register.
    #[error(transparent)]
    Map(#[from] MapError),
    /// On-demand paging was asked for, and the device does not offer it.
    #[error("{device} does not offer on-demand paging for {missing}")]
    NoOnDemandPaging {
        /// The device's name.
        device: String,
        /// The use of it that the device lacks.
        missing: &'static str,
    },
    /// The device's capabilities could not be asked for.
    #[error(transparent)]
    Query(#[from] QueryDeviceError),
    /// There was no protection domain to register in.
    #[error(transparent)]
    Domain(#[from] AllocPdError),
    /// `max_held` is not a power of two.
    #[error("max_held ({0}) must be a power of two")]
    MaxHeld(u32),
    /// The device refused; `ENOMEM` is often the limit of locked memory.
    #[error("registering {bytes} bytes: {errno}{}", hint(locked_memory(*errno).as_ref()))]
    Refused {
        /// Bytes that were asked for.
        bytes: usize,
        /// The system's reason.
        errno: Errno,
    },
}

impl From<MapError> for CreateQpError {
    fn from(error: MapError) -> CreateQpError {
        CreateQpError::Memory(error.into())
    }
}

impl From<MapError> for CreateSrqError {
    fn from(error: MapError) -> CreateSrqError {
        CreateSrqError::Memory(error.into())
    }
}

/// An access that does not fit into its region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RegionError {
    /// It reaches over the end.
    #[error("{len} bytes at {offset} do not fit into a region of {region_len}")]
    OutOfBounds {
        /// Offset of the first byte.
        offset: usize,
        /// Length of the span.
        len: usize,
        /// Length of the region.
        region_len: usize,
    },
    /// A word is not aligned to its size.
    #[error("offset {offset} is not a multiple of {alignment}")]
    Misaligned {
        /// Offset of the word.
        offset: usize,
        /// Valid offsets are multiples of this number.
        alignment: usize,
    },
    /// Peers are not permitted to read it.
    #[error("the memory was not registered for peers to read: `BufferConfig::READABLE` is")]
    NotForPeers,
}

/// No completion channel.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("creating a completion channel: {errno}")]
pub struct CreateChannelError {
    /// The system's reason.
    pub errno: Errno,
}

/// Waiting on a completion channel failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WaitError {
    /// An armed queue tells another channel of its completions.
    #[error("the completion queue was made with another channel: wait on that one")]
    OtherChannel,
    /// The system's reason.
    #[error("waiting on a completion channel: {errno}{}", hint(reached(*errno).as_ref()))]
    System {
        /// The system's reason.
        errno: Errno,
    },
}

impl From<Errno> for WaitError {
    fn from(errno: Errno) -> WaitError {
        WaitError::System { errno }
    }
}

/// No completion queue.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CreateCqError {
    /// The channel belongs to another context.
    #[error("the completion channel belongs to another context")]
    OtherContext,
    /// The device refused.
    #[error("creating a completion queue of {entries} entries: {errno}")]
    Refused {
        /// Entries that were asked for.
        entries: u32,
        /// The system's reason.
        errno: Errno,
    },
}

/// Polling failed: the queue is unusable (an overrun does that).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("polling a completion queue: {errno}")]
pub struct PollCqError {
    /// The device's reason.
    pub errno: Errno,
}

/// A completion queue could not be armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ArmCqError {
    /// The queue was created without a channel, which would report the event.
    #[error("the completion queue has no channel")]
    NoChannel,
    /// The device refused.
    #[error("arming a completion queue: {0}")]
    Refused(Errno),
}

/// Role of a completion queue for a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CqRole {
    /// The one of the send queue.
    Send,
    /// The one of the receive queue.
    Recv,
}

impl std::fmt::Display for CqRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == CqRole::Send { "send" } else { "receive" })
    }
}

/// Completions that would not fit into a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the completion queue has {capacity} entries, {reserved} of them reserved; {wanted} more \
     need one of {needed}"
)]
pub struct CqTooSmall {
    /// The queue's size.
    pub capacity: u32,
    /// Entries reserved by other queues.
    pub reserved: u32,
    /// Entries that were asked for.
    pub wanted: u32,
    /// The size that would do.
    pub needed: u64,
}

/// No queue pair.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CreateQpError {
    /// A part belongs to another context than the protection domain.
    #[error("the {what} belongs to another context than the protection domain")]
    OtherContext {
        /// The part that belongs to the other context.
        what: &'static str,
    },
    /// A completion queue is too small for the requests that may complete into it.
    #[error("{role} completions: {source}")]
    CqTooSmall {
        /// Role of the completion queue.
        role: CqRole,
        /// The sizes.
        source: CqTooSmall,
    },
    /// A parameter exceeds the range that this layer can address.
    #[error("{what} is {value}; at most {max} is possible")]
    TooLarge {
        /// Name of the parameter.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The largest possible one.
        max: u64,
    },
    /// Memory of the slots.
    #[error(transparent)]
    Memory(#[from] RegisterError),
    /// No queue number is left.
    #[error(transparent)]
    QueueIds(#[from] QueueIdsExhausted),
    /// The shared receive queue's buffers are made for datagrams and the queue pair is
    /// not, or the other way round.
    #[error(
        "a queue pair of transport {transport} cannot use this shared receive queue: {}",
        if transport.is_datagram() { "its buffers have no room for a route header" }
        else { "its buffers are for datagrams" }
    )]
    OtherPool {
        /// The queue pair's transport.
        transport: Transport,
    },
    /// The MTU of the port, which bounds datagrams, cannot be had.
    #[error(transparent)]
    Port(#[from] QueryPortError),
    /// The device refused: `EOPNOTSUPP` or `EINVAL` may mean that it does not offer the
    /// transport.
    #[error(
        "creating a queue pair of transport {transport}, {max_send_wr} sends and {max_recv_wr} \
         receives: {errno}"
    )]
    Refused {
        /// The transport that was asked for.
        transport: Transport,
        /// Sends that were asked for.
        max_send_wr: u32,
        /// Receives that were asked for.
        max_recv_wr: u32,
        /// The system's reason.
        errno: Errno,
    },
    /// The new queue pair did not go to INIT.
    #[error(transparent)]
    Init(#[from] ModifyQpError),
}

/// No address handle.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CreateAhError {
    /// The port cannot be queried.
    #[error("addressing a peer: {0}")]
    Port(#[from] QueryPortError),
    /// There is no local GID to reply from.
    #[error("addressing a peer: {0}")]
    Gid(#[from] ChooseGidError),
    /// A reply over Ethernet, and no route header that tells the address.
    #[error("the datagram's route header, which tells its sender's address, is missing")]
    NoHeader,
    /// The datagram was sent to a GID that the port does not have.
    #[error("port {port} has no GID {}", std::net::Ipv6Addr::from(*gid))]
    NotOurs {
        /// The port.
        port: u8,
        /// The GID that the datagram was sent to.
        gid: [u8; 16],
    },
    /// The device refused, or finds no way there.
    #[error("creating an address handle: {0}; does the peer's address exist?")]
    Refused(Errno),
}

/// A send queue did not take a peer or a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AttachError {
    /// It has one peer already, which it was connected to.
    #[error("a queue pair of transport {transport} sends to the peer that it is connected to")]
    Connected {
        /// Its transport.
        transport: Transport,
    },
    /// It is of another protection domain than the queue pair.
    #[error("the {what} belongs to another protection domain than the queue pair")]
    OtherDomain {
        /// The part that belongs to the other domain.
        what: &'static str,
    },
    /// All numbers are in use.
    #[error("the queue pair has {0} of them already")]
    TooMany(u32),
    /// A ring is tied to one queue, and this one is.
    #[error("the ring's READs have a queue already")]
    Attached,
}

/// A transition of a queue pair failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("queue pair from {from} to {to}: {errno}{}{detail}", if detail.is_empty() { "" } else { ": " })]
pub struct ModifyQpError {
    /// The state it is in.
    pub from: QpState,
    /// The state it should have gone to.
    pub to: QpState,
    /// The system's reason.
    pub errno: Errno,
    /// The fault in the attributes, where it is known; else empty.
    pub detail: &'static str,
}

/// A queue pair did not tell its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("querying a queue pair: {errno}")]
pub struct QueryQpError {
    /// The system's reason.
    pub errno: Errno,
}

/// No shared receive queue, or not its pool.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CreateSrqError {
    /// A parameter exceeds the range that this layer can address.
    #[error("{what} is {value}; at most {max} is possible")]
    TooLarge {
        /// Name of the parameter.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The largest possible one.
        max: u64,
    },
    /// Memory of the slots.
    #[error(transparent)]
    Memory(#[from] RegisterError),
    /// No queue number is left.
    #[error(transparent)]
    QueueIds(#[from] QueueIdsExhausted),
    /// The device refused.
    #[error("creating a shared receive queue of {max_wr} requests: {errno}")]
    Refused {
        /// Requests that were asked for.
        max_wr: u32,
        /// The system's reason.
        errno: Errno,
    },
}

/// A shared receive queue did not take a new limit, or tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{verb} a shared receive queue: {errno}")]
pub struct ModifySrqError {
    /// The action that failed, in words.
    pub verb: &'static str,
    /// The system's reason.
    pub errno: Errno,
}
