//! Place of a queue pair's peer, as it was found when the queue pair became ready to receive: in
//! this process ([`loopback`]), or in another one ([`process`]). The requester reaches either by an
//! [`SqLink`](crate::engine::link::SqLink), which it takes once for a list of requests.

pub(crate) mod loopback;
pub(crate) mod process;
pub(crate) mod wire;
