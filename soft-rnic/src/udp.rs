//! UDP as RoCE v2 needs it: many packets to a system call, in both directions, without root.
//!
//! A [`Port`] is an unconnected socket whose packets are never fragmented, which makes the kernel
//! send them with identification 0 (see `roce_core::icrc`). An [`Outbox`] collects packets: equal
//! ones to one destination go as a run that the kernel cuts (`UDP_SEGMENT`). An [`Inbox`] has room for
//! what comes, and cuts runs that the kernel has merged (`UDP_GRO`).
//!
//! ```text
//!   packet, packet, … ──> Outbox ── sendmmsg ──> network ── recvmmsg ──> Inbox ──> datagrams
//! ```
//!
//! What is held is bounded: an outbox by [`OUTBOX`], an inbox by [`BATCH`] datagrams, and what the
//! kernel keeps by the socket's buffer; what that has no room for is counted ([`Inbox::dropped`]).

mod errors;
mod group;
mod holder;
mod inbox;
mod interface;
mod outbox;
mod port;

pub use inbox::{BATCH, Datagram, Inbox};
pub use outbox::{Marks, OUTBOX, Outbox};
pub use port::{Port, PortError};
