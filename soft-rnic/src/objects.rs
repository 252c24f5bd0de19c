//! Objects that a program makes on a device, and the device itself: protection domains, memory
//! regions, completion queues, queue pairs, shared receive queues and address handles.

pub(crate) mod advise_mr;
pub(crate) mod ah;
pub(crate) mod checked;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod deferred_work;
pub(crate) mod device;
pub(crate) mod device_memory;
pub(crate) mod dm;
pub(crate) mod dm_memory;
pub(crate) mod handles;
pub(crate) mod in_arc;
pub(crate) mod misuse;
pub(crate) mod mr;
pub(crate) mod multicast;
pub(crate) mod mw;
pub(crate) mod mw_settle;
pub(crate) mod mw_table;
pub(crate) mod named;
pub(crate) mod null_mr;
pub(crate) mod qp;
pub(crate) mod quiescence;
pub(crate) mod reach;
pub(crate) mod rereg;
pub(crate) mod srq;
pub(crate) mod state;
pub(crate) mod target;
pub(crate) mod timed_events;
pub(crate) mod traced;
pub(crate) mod users;
pub(crate) mod xrc;
