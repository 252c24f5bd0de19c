//! Queue pairs, their send and receive queues, and the pools that messages land in.

pub(crate) mod connect;
pub(crate) mod control;
pub(crate) mod pinned;
pub(crate) mod pool;
pub(crate) mod qp;
pub(crate) mod recv;
pub(crate) mod send;
pub(crate) mod shared_pool;
pub(crate) mod srq;
pub(crate) mod transition;
