//! One error type a verb: what failed, in which state, and the system's reason.

use thiserror::Error;

use crate::errno::Errno;
use crate::ids::{QueueId, QueueIdsExhausted};
use crate::limit::{ResourceLimit, locked_memory, reached};
use crate::state::QpState;
use crate::status::WcError;
use crate::transport::Transport;

/// Listing the devices failed. A kernel without RDMA is not an error: its list is empty.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("listing the RDMA devices: {errno}")]
pub struct ListDevicesError {
    /// The system's reason.
    pub errno: Errno,
}

/// A device could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("opening {device}: {errno}")]
pub struct OpenDeviceError {
    /// The device's name.
    pub device: String,
    /// The system's reason.
    pub errno: Errno,
}

/// A device did not tell its limits.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("querying {device}: {errno}")]
pub struct QueryDeviceError {
    /// The device's name.
    pub device: String,
    /// The system's reason.
    pub errno: Errno,
}

/// A port did not tell its attributes, or there is no such port.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("querying port {port} of {device}: {errno}")]
pub struct QueryPortError {
    /// The device's name.
    pub device: String,
    /// The port number, from 1.
    pub port: u8,
    /// The system's reason.
    pub errno: Errno,
}

/// No GID could be chosen.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChooseGidError {
    /// The port itself cannot be queried.
    #[error(transparent)]
    Port(#[from] QueryPortError),
    /// The index that was asked for holds no GID.
    #[error("port {port} has no GID at index {wanted}; it has them at {present:?}")]
    NoSuchIndex {
        /// The port number, from 1.
        port: u8,
        /// The index that was asked for.
        wanted: u32,
        /// The indices that hold one.
        present: Vec<u32>,
    },
    /// The port has no GID at all.
    #[error("port {port} has no GID; is its network interface up?")]
    Empty {
        /// The port number, from 1.
        port: u8,
    },
}

/// Waiting for, or taking, an asynchronous event failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("waiting for an asynchronous event of {device}: {errno}")]
pub struct AsyncEventError {
    /// The device's name.
    pub device: String,
    /// The system's reason.
    pub errno: Errno,
}

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
        /// Number of which a valid offset is a multiple.
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
    /// A completion queue is too small for what may complete into it.
    #[error("{role} completions: {source}")]
    CqTooSmall {
        /// Role of the completion queue.
        role: CqRole,
        /// The sizes.
        source: CqTooSmall,
    },
    /// A parameter is over what this layer can address.
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
    /// A parameter is over what this layer can address.
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

/// A request was not staged; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum StageError {
    /// As many requests as the queue holds are staged or in flight: retire some.
    #[error("the send queue is full")]
    QueueFull,
    /// All slots are staged or in flight: retire some.
    #[error("no send slot is free")]
    NoSlot,
    /// The message is longer than a slot.
    #[error("{len} bytes do not fit into a slot of {slot_bytes}")]
    TooLong {
        /// The message's length.
        len: usize,
        /// The slot's.
        slot_bytes: usize,
    },
    /// The datagram is longer than the port's MTU.
    #[error("{len} bytes do not fit into a datagram of {mtu}, the MTU of the port")]
    OverMtu {
        /// The message's length.
        len: usize,
        /// The port's active MTU in bytes.
        mtu: usize,
    },
    /// The queue pair's transport has no such operation.
    #[error("the transport of this queue pair has no such operation")]
    NotOffered,
    /// A datagram without a peer to send it to: it is staged with
    /// [`stage_to`](crate::SendQueue::stage_to).
    #[error("a datagram needs a peer to be sent to")]
    NoPeer,
    /// The peer was removed, or is another queue's.
    #[error("the queue has no such peer")]
    UnknownPeer,
    /// The region was detached, or is attached to another queue.
    #[error("the queue has no such region attached")]
    UnknownRegion,
    /// A SEND from a region: SENDs go from slots.
    #[error("a SEND goes from a slot, and not from a region")]
    SendFromRegion,
    /// A file is for READs of
    /// [`MIN_READ_BYTES`](crate::FileRegion::MIN_READ_BYTES) or more.
    #[error("only READs of 4096 bytes or more land in a file")]
    NotForFiles,
    /// The request reaches over the end of its local region.
    #[error("{len} bytes at {offset} do not fit into a local region of {region_len}")]
    OutsideRegion {
        /// Offset of the first byte.
        offset: usize,
        /// The request's length.
        len: usize,
        /// The region's length.
        region_len: usize,
    },
    /// The message is longer than the remote span.
    #[error("{len} bytes do not fit into a remote span of {remote_len}")]
    RemoteTooShort {
        /// The message's length.
        len: usize,
        /// The span's.
        remote_len: u64,
    },
}

/// A READ into a ring was not staged; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LandError {
    /// The ring is not attached to this queue.
    #[error("the ring's READs are another queue's")]
    OtherQueue,
    /// So many bytes are not free: some are lent, or have landed and are not passed.
    #[error("{len} bytes are to be read into a ring that has {free} free")]
    NotFree {
        /// The READ's length.
        len: u32,
        /// Bytes that are free.
        free: u64,
    },
    /// It would cross the end of a ring that is not mirrored.
    #[error("{len} bytes are to be read where {left} are left before the ring's end")]
    CrossesEnd {
        /// The READ's length.
        len: u32,
        /// Bytes before the end.
        left: u64,
    },
    /// The queue does not take it.
    #[error(transparent)]
    Stage(#[from] StageError),
}

/// Bytes of a ring were not lent; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LendError {
    /// They have not landed, were passed over, or are not contiguous; or what is lent
    /// would not end behind all before, at a multiple of 8.
    #[error("these bytes of the ring cannot be lent")]
    NotLanded,
    /// As many pieces are lent as the ring was made for: give some up first.
    #[error("as many pieces of the ring are lent as can be")]
    TooMany,
}

/// Staged requests were not posted, or not all. Those that were not stay staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("posting sends (after {posted} of them): {errno}")]
pub struct PostSendError {
    /// Requests that were posted before the failure.
    pub posted: u32,
    /// The device's reason.
    pub errno: Errno,
    /// True if this is backpressure (`ENOMEM`): retire some requests, and post again.
    pub retry: bool,
}

/// A request with bytes of the caller was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PostInlineError {
    /// It cannot be.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The device did not take it, or what was staged before it.
    #[error(transparent)]
    Post(#[from] PostSendError),
}

/// A completion that does not belong to the queue it was shown to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a completion of queue {found} was shown to queue {expected}, or is long out of date")]
pub struct ForeignCompletion {
    /// The queue it was shown to.
    pub expected: QueueId,
    /// The queue it is of.
    pub found: QueueId,
}

/// Receives were not posted, or not all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("posting receives (after {posted} of them): {reason}")]
pub struct PostRecvError {
    /// Receives that were posted before the failure, from the front of the list.
    pub posted: u32,
    /// The reason why posting stopped.
    pub reason: PostRecvReason,
}

/// Reasons why a receive was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PostRecvReason {
    /// The pool has no such slot.
    #[error("there is no slot {slot}")]
    NoSuchSlot {
        /// The slot.
        slot: u32,
    },
    /// The slot is posted already, or its message is still held.
    #[error("slot {slot} is posted or lent")]
    NotHome {
        /// The slot.
        slot: u32,
    },
    /// The device refused.
    #[error("{0}")]
    Refused(Errno),
}

/// A completion gave no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TakeError {
    /// It belongs to another queue.
    #[error(transparent)]
    Foreign(#[from] ForeignCompletion),
    /// The receive failed; its slot is home again.
    #[error("receive into slot {slot}: {error}")]
    Failed {
        /// The slot, which can be posted again.
        slot: u32,
        /// The error that the device reported.
        error: WcError,
    },
    /// A datagram that is shorter than its own route header; its slot is home again.
    #[error("the device completed a datagram of {byte_len} bytes, its route header included")]
    Runt {
        /// The slot, which can be posted again.
        slot: u32,
        /// The length that the device reported.
        byte_len: u32,
    },
    /// The slot was not posted: the device completed it twice.
    #[error("the device completed slot {slot}, which was not posted")]
    NotPosted {
        /// The slot.
        slot: u32,
    },
}

impl TakeError {
    /// The slot that went home with the error.
    #[must_use]
    pub fn slot(&self) -> Option<u32> {
        match *self {
            TakeError::Failed { slot, .. } | TakeError::Runt { slot, .. } => Some(slot),
            _ => None,
        }
    }
}
