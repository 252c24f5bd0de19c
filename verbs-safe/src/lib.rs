//! Sound RAII over RDMA verbs: devices, memory, queues, and what is posted to them.
//!
//! It works on any [`Table`] of verbs functions: that of a loaded libibverbs, or that
//! of a software device.
//!
//! 1. [`devices`] lists them, [`Device::open`] gives a [`Context`],
//!    [`Context::alloc_pd`] a [`ProtectionDomain`].
//! 2. [`Context::create_cq`] makes completion queues, [`ProtectionDomain::create_qp`] a
//!    [`QueuePair`] with its send ring and its receive pool.
//! 3. [`QpControl::endpoint`] is told to the peer, its one goes to
//!    [`QpControl::connect`]. Datagrams ([`Transport::Ud`]) need no connection:
//!    [`QpControl::activate`], and [`SendQueue::add_peer`] with the [`AddressHandle`] of
//!    each peer.
//! 4. Receives: [`RecvQueue::post`] slots; [`RecvQueue::take`] a message for each
//!    completion; drop it (or [`reclaim`](RecvQueue::reclaim) it) and post its slot
//!    again.
//! 5. Sends: fill [`SendQueue::next_slot`], [`stage`](SendQueue::stage), and
//!    [`post`](SendQueue::post) all that is staged; [`retire`](SendQueue::retire) each
//!    completion. Datagrams are staged [to a peer](SendQueue::stage_to), and one-sided
//!    requests may do without a slot ([`SendQueue::stage_at`]).
//! 6. [`CompletionQueue::poll`] gives [`Completion`]s; [`Completion::queue_id`] says
//!    whose they are. [`CompletionChannel`] tells how to sleep without missing one.
//!
//! **Contract: safe code cannot cause undefined behaviour, whatever the peer does,
//! whatever is forgotten, dropped or kept.** How it is kept:
//!
//! - Memory of posted work belongs to the queue pair, or the shared receive queue,
//!   itself; no handle can free it. It is freed after the queue has been destroyed,
//!   and if destroying fails, it is leaked. The same holds for the address handles and
//!   the regions that requests refer to; those that were given up go as soon as the last
//!   such request is retired.
//! - A slot comes back with the [`Completion`] of its request, which can be neither
//!   made nor copied, and names a queue that no later one is taken for.
//! - Memory that peers can write ([`SharedRegion`]) is never a slice. Memory that can
//!   be a slice, peers cannot write; where they can read it ([`Buffer`]), what they read
//!   while it is written is their concern.
//! - What the device writes to is lent to its queue, and is nobody's slice meanwhile
//!   ([`SendQueue::lend`]).
//! - What a device reports is checked: a length is never more than the slot has, and a
//!   datagram that is shorter than its route header is an error.
//! - Everything holds what it was made from, so that it is destroyed in the only order
//!   that the verbs permit.
//!
//! Nothing on the data path allocates, locks, or enters the kernel by itself.

mod ah;
mod attr;
mod buffer;
mod channel;
mod completion;
mod context;
mod control;
mod cq;
mod descriptor;
mod device;
mod errno;
mod error;
mod event;
mod file;
mod gid;
mod grh;
mod kept;
mod ledger;
mod memory;
mod mirrored;
mod pool;
mod qp;
mod raw_array;
mod recv;
mod region;
mod ring;
mod send;
mod shared;
mod srq;
mod transition;
mod transport;
pub mod yardstick;

pub use ah::{AddressHandle, AhAttr};
pub use attr::{Atomics, DeviceAttr, LinkLayer, Mtu, OdpCaps, PortAttr};
pub use buffer::{Buffer, BufferConfig, FrozenBuffer};
pub use channel::{CompletionChannel, Wakeup};
pub use completion::{
    Completion, CompletionBatch, DatagramSource, Drain, QueueId, WcError, WcStatus,
};
pub use context::{Context, ProtectionDomain};
pub use control::{ConnectAttr, Endpoint, QpAttr, QpControl, random_psn};
pub use cq::{CompletionQueue, CqConfig, CqId};
pub use device::{Device, devices};
pub use errno::Errno;
pub use error::*;
pub use event::{AsyncEvent, AsyncEventKind, AsyncSource};
pub use file::FileRegion;
pub use gid::{Gid, GidEntry, GidKind};
pub use grh::Grh;
pub use memory::{Mapping, Pages};
pub use mirrored::Mirrored;
pub use pool::{RecvBuf, RecvPool, RecvRun, Recycle};
pub use qp::{QpState, QueuePair, QueuePairConfig, RecvSide};
pub use recv::{RecvPoster, RecvQueue};
pub use region::Backing;
pub use ring::{
    Claim, ClaimedBytes, Claims, LandingRing, RingBytes, RingConfig, SharedLandingRing, SourceRing,
};
pub use send::{
    FileLoanError, InRun, LoanError, LoanId, PeerId, RegionId, SendFlags, SendOp, SendQueue,
};
pub use shared::{RemoteAccess, RemoteSpan, SharedRegion, SharedRegionConfig, SharedView};
pub use srq::{SharedReceiveQueue, SrqId};
pub use transport::Transport;
pub use verbs_sys::Table;
