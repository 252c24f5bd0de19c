//! Work requests, and what they wait in: send queues, receive rings, batches.

pub(crate) mod address;
pub(crate) mod batch;
pub(crate) mod outcome;
pub(crate) mod pending;
pub(crate) mod qp_state;
pub(crate) mod queue_memory;
pub(crate) mod recv_ring;
pub(crate) mod requester;
pub(crate) mod transit;
pub(crate) mod wqe;
