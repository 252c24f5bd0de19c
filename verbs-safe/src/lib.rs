//! Sound RAII over RDMA verbs.
#![warn(missing_docs)]

mod attr;
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
mod gid;
mod ledger;
mod memory;
mod mirrored;
mod pool;
mod qp;
mod raw_array;
mod recv;
mod region;
mod send;
mod shared;
mod srq;

pub use attr::{Atomics, DeviceAttr, LinkLayer, Mtu, OdpCaps, PortAttr};
pub use channel::{CompletionChannel, Wakeup};
pub use completion::{Completion, CompletionBatch, Drain, QueueId, WcError, WcStatus};
pub use context::{Context, ProtectionDomain};
pub use control::{ConnectAttr, Endpoint, QpAttr, QpControl, random_psn};
pub use cq::{CompletionQueue, CqConfig, CqId};
pub use device::{Device, devices};
pub use errno::Errno;
pub use error::*;
pub use event::{AsyncEvent, AsyncEventKind, AsyncSource};
pub use gid::{Gid, GidEntry, GidKind};
pub use memory::{Mapping, Pages};
pub use mirrored::Mirrored;
pub use pool::{RecvBuf, RecvPool, Recycle};
pub use qp::{QpState, QueuePair, QueuePairConfig, RecvSide};
pub use recv::{RecvPoster, RecvQueue};
pub use region::Backing;
pub use send::{SendFlags, SendOp, SendQueue};
pub use shared::{RemoteAccess, RemoteSpan, SharedRegion, SharedRegionConfig};
pub use srq::{SharedReceiveQueue, SrqId};
pub use verbs_sys::Table;
