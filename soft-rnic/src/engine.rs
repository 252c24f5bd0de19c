//! Execution of work requests: the requester, and the responder at the other end.

pub(crate) mod admit;
pub(crate) mod datagram;
pub(crate) mod execution;
pub(crate) mod flush;
pub(crate) mod injection;
pub(crate) mod link;
pub(crate) mod local_ops;
pub(crate) mod multicast;
pub(crate) mod requester;
pub(crate) mod responder;
