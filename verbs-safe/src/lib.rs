//! Sound RAII over RDMA verbs: devices, memory, queues, and what is posted to them.
//!
//! It works on any [`Table`] of verbs functions: that of a loaded libibverbs, or that
//! of a software device.
//!
//! 1. [`devices`] lists them, [`Device::open`] gives a [`Context`],
//!    [`Context::alloc_pd`] a [`ProtectionDomain`].
//! 2. [`Context::create_cq`] makes completion queues, [`ProtectionDomain::create_qp`] a
//!    [`QueuePair`] with its send ring and its receive pool.
//! 3. Send [`QpControl::endpoint`] to the peer, and pass the peer's to
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
//! 6. [`CompletionQueue::poll`] gives [`Completion`]s; [`Completion::queue_id`] names
//!    their queue. [`CompletionChannel`] describes how to sleep without missing one.
//!
//! **Contract: safe code cannot cause undefined behaviour, for any behaviour of the peer, and for
//! any order of dropping or forgetting values.** The means:
//!
//! - Memory of posted work belongs to the queue pair, or the shared receive queue, itself; no
//!   handle can free it. It is freed after the queue has been destroyed, and leaked if destroying
//!   fails. The same holds for the address handles and the regions of requests; after the user has
//!   dropped them, they are released when the last such request is retired.
//! - A slot is returned by the [`Completion`] of its request. A completion can be neither
//!   made nor copied, and the number of its queue is never used again.
//! - Memory that peers can write ([`SharedRegion`]) is never a slice. Peers cannot write
//!   memory that can be a slice; if they can read it ([`Buffer`]), a READ during a local
//!   write may bring them a mix of old and new bytes.
//! - Memory that the device writes to is lent to its queue; meanwhile it is not accessible
//!   as a slice ([`SendQueue::lend`]).
//! - What a device reports is checked: a length is never more than the slot has, and a
//!   datagram that is shorter than its route header is an error.
//! - Each object keeps the objects that it was made from alive, so that they are destroyed in the
//!   only order that the verbs permit.
//!
//! The data path does not allocate, lock, or enter the kernel on its own.
//!
//! The crate compiles on x86-64 only. A peer may read a [`Buffer`] while its owner writes to it
//! through `&mut [u8]`. The software device copies by inline assembly, which is no data race in
//! Rust's terms. That assembly exists for x86-64 only.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "verbs-safe and soft-rnic are sound on x86-64 only: a peer may read a `Buffer` or a \
     `SourceRing` while its owner writes to it through `&mut [u8]`. On x86-64 the software \
     device reads such memory by inline assembly; elsewhere it would by atomic loads, which \
     are data races with plain stores"
);

/// Implements `Debug` of a type: its name, and the values of these fields and methods.
macro_rules! debug_shows {
    ($type:ident $(: $($value:ident $(($($no:tt)*))?),+)?) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($type))
                    $($(.field(stringify!($value), &self.$value $(($($no)*))?))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}

mod alloc;
mod attr;
pub mod baseline;
mod descriptor;
mod errno;
mod error;
mod ids;
mod limit;
mod object;
mod queue;
mod raw_array;
#[cfg(feature = "tokio")]
mod reactor;
mod region;
mod ring;
mod state;
mod status;
mod transport;

pub use attr::{Atomics, DeviceAttr, LinkLayer, Mtu, OdpCaps, PortAttr};
pub use errno::Errno;
pub use error::*;
pub use ids::{CqId, QueueId, QueueIdsExhausted, SrqId};
pub use limit::ResourceLimit;
pub use object::ah::{AddressHandle, AhAttr};
pub use object::channel::{Armed, CompletionChannel, Wakeup};
pub use object::completion::{Completion, CompletionBatch, DatagramSource, Drain};
pub use object::context::{Context, ProtectionDomain};
pub use object::cq::{CompletionQueue, CqConfig};
pub use object::device::{Device, devices};
pub use object::endpoint::Endpoint;
pub use object::event::{AsyncEvent, AsyncEventKind, AsyncSource};
pub use object::gid::{Gid, GidEntry, GidKind};
pub use object::grh::Grh;
pub use queue::connect::{ConnectAttr, random_psn};
pub use queue::control::{QpAttr, QpControl};
pub use queue::pool::{RecvBuf, RecvPool, RecvRun, Recycle};
pub use queue::qp::{QueuePair, QueuePairConfig, RecvSide};
pub use queue::recv::{RecvPoster, RecvQueue};
pub use queue::send::{
    FileLoanError, InRun, LoanError, LoanId, PeerId, RegionId, SendFlags, SendOp, SendQueue,
};
pub use queue::srq::SharedReceiveQueue;
#[cfg(feature = "tokio")]
pub use reactor::Readable;
pub use region::buffer::{Buffer, BufferConfig, FrozenBuffer};
pub use region::file::FileRegion;
pub use region::memory::{Mapping, Pages};
pub use region::mirrored::Mirrored;
pub use region::registration::Backing;
pub use region::shared::{RemoteAccess, RemoteSpan, SharedRegion, SharedRegionConfig, SharedView};
pub use ring::{
    Claim, ClaimedBytes, Claims, LandingRing, RingBytes, RingConfig, SharedLandingRing, SourceRing,
};
pub use state::QpState;
pub use status::{WcError, WcStatus};
pub use transport::Transport;
pub use verbs_sys::Table;
