//! An RDMA device in software, behind the verbs ABI.
#![deny(unsafe_op_in_unsafe_fn)]

mod after;
mod asynchronous;
mod channel;
mod context;
mod copy;
mod counters;
mod cq;
mod device;
mod errno;
mod event;
mod limits;
mod lock;
mod memory;
mod mr;
mod post;
mod qp;
mod recv_ring;
mod requester;
mod responder;
mod sim;
mod sq;
mod srq;
mod state;
mod timer;
mod verbs;

pub use counters::{Counters, counters};
pub use sim::{Faults, Simulation};
pub use verbs::table;
