//! The operations on a connection, its two ends over a bad network, and what must hold.
//!
//! A requester sends to a responder whose memory is 4 KiB. Packets wait on the network
//! until an operation delivers one, in any order, twice, or not at all. Marked packets are answered
//! with congestion notifications, which the model does not notice. A model executes each request
//! when it is posted: receives must complete as in the model, atomics to find what they find there,
//! memory to end as it does there, and a READ to give, of each byte, a value that it had between
//! the READ and the next request that is fenced.

mod connection;
mod forged;
pub(crate) mod host;
pub mod line;
mod model;
mod random;
#[cfg(test)]
mod tests;

use arbitrary::Arbitrary;

pub use connection::{CheckedConnection, ConnectionParams};
pub use forged::Forged;
pub use random::{FaultRates, Random, random_run};

/// Bytes of the responder's memory.
pub const MEMORY: usize = 4096;
/// The most bytes of a request: eight packets of the smallest MTU.
pub const MAX_LENGTH: u32 = 2048;

/// A request to be posted. All numbers are taken modulo what is possible.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct RequestDraft {
    /// One of the nine operations.
    pub kind: u8,
    /// Its length.
    pub length: u16,
    /// Offset in the memory.
    pub offset: u16,
    /// Its completion is awaited.
    pub is_signaled: bool,
    /// It is fenced.
    pub is_fenced: bool,
    /// It is solicited.
    pub is_solicited: bool,
}

/// A direction of the network.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketDirection {
    /// Requests.
    ToResponder,
    /// Responses.
    ToRequester,
}

/// Event that can happen to a connection.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum ConnectionOp {
    /// The program posts a request, if there is room.
    Post(RequestDraft),
    /// The peer posts this number of receive requests.
    Receives(u8),
    /// The requester sends up to this number of packets.
    Transmit(u8),
    /// The responder sends up to this number of packets.
    Respond(u8),
    /// A packet arrives; which one is a choice, and 0 the oldest.
    Deliver(PacketDirection, u8),
    /// A packet is lost.
    Lose(PacketDirection, u8),
    /// A packet is there twice.
    Duplicate(PacketDirection, u8),
    /// This number of quarters of a microsecond pass.
    Pass(u16),
    /// The program takes what is complete.
    Poll,
    /// A packet is marked: the network is congested.
    Mark(PacketDirection, u8),
    /// A packet arrives that no peer has sent. From then on, only the invariants are looked at.
    Forge(PacketDirection, Forged),
}
