//! Peers on the network: RoCE v2 over UDP.
//!
//! The protocol is `roce_core`'s; this is its driver. Each reliable connection has a requester under
//! the lock of its send queue, and a responder under that of its receiving side:
//!
//! ```text
//!   post ──> run_over ──> Requester ──> packets ──> outbox ──> UDP
//!   poll ──> inbox ──> ICRC, parse ─┬─> Requester ──> completions, packets
//!                                   └─> Responder ──> memory, receives; answers behind the batch
//! ```
//!
//! A packet that the network has marked is answered with a congestion notification ([`congestion`]).
//!
//! Threads that poll take received packets; where none does, the device's thread waits for packets
//! ([`progress`]). Deadlines are the timer's. Multicast groups have sockets of their own ([`groups`]).
//!
//! **Locks**: what receives (`RoceWire::rx`), then a queue pair's, then what sends (`RoceWire::tx`).
//! A packet for which the socket has no room waits in the outbox for later ones; where that is full
//! it is lost, as any may be, and the window becomes smaller.
//!
//! Bytes go through memory of the device's own on their way out, and the ICRC is computed there: the
//! program may write to its memory meanwhile, and a packet whose bytes are not those that were
//! counted would be dropped by the peer, again and again.

pub(crate) mod arrivals;
pub(crate) mod changes;
mod checked;
pub(crate) mod congestion;
pub(crate) mod departed;
pub(crate) mod device;
pub(crate) mod diagnosis;
pub(crate) mod groups;
pub(crate) mod handover;
pub(crate) mod members;
pub(crate) mod network_changes;
pub(crate) mod own_pages;
pub(crate) mod packets;
pub(crate) mod paging;
pub(crate) mod progress;
pub(crate) mod requester;
pub(crate) mod requests;
pub(crate) mod responder;
pub(crate) mod target;
#[cfg(test)]
mod tests;
pub(crate) mod thread;
pub(crate) mod unreliable;

pub use device::{ListError, Roce, RoceError};
pub use diagnosis::{Unreached, peer_unreached, report_peer_unreached};
