//! What a program makes on a device, and the device itself: protection domains, memory regions,
//! completion queues, queue pairs, shared receive queues and address handles.

pub(crate) mod address;
pub(crate) mod ah;
pub(crate) mod batch;
pub(crate) mod checked;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod device_memory;
pub(crate) mod dm;
pub(crate) mod dm_memory;
pub(crate) mod handles;
pub(crate) mod in_arc;
pub(crate) mod keys;
pub(crate) mod memory;
pub(crate) mod mr;
pub(crate) mod mr_table;
pub(crate) mod multicast;
pub(crate) mod mw;
pub(crate) mod mw_table;
pub(crate) mod mws;
pub(crate) mod null_memory;
pub(crate) mod null_mr;
pub(crate) mod pending;
pub(crate) mod qp;
pub(crate) mod qp_state;
pub(crate) mod recv_ring;
pub(crate) mod rereg;
pub(crate) mod span;
pub(crate) mod srq;
pub(crate) mod state;
pub(crate) mod target;
pub(crate) mod traced;
pub(crate) mod wqe;
pub(crate) mod xrc;
