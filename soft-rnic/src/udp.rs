//! UDP as RoCE v2 needs it: many packets to a system call, in both directions, without root.
//!
//! A [`UdpPort`] is an unconnected socket whose packets are never fragmented, which makes the
//! kernel send them with identification 0 (see `roce_core::icrc`). A [`PacketOutbox`] collects
//! packets: equal ones to one destination go as a run that the kernel cuts (`UDP_SEGMENT`). A
//! [`PacketInbox`] has room for received ones, and cuts runs that the kernel has merged (`UDP_GRO`).
//!
//! ```text
//!   packet, packet, … ──> outbox ── sendmmsg ──> network ── recvmmsg ──> inbox ──> datagrams
//! ```
//!
//! Each multicast group has a socket of its own ([`UdpPort::join`]).
//!
//! In a world, a port may be one of a network in memory (`world_network`, feature `simulation`).
//!
//! A [`Capture`] writes packets to a file for Wireshark; [`local_addresses`] and [`port_holders`] say what
//! there is to bind, and what has it.
//!
//! What is held is bounded: an outbox by [`OUTBOX`], an inbox by [`BATCH`] datagrams, and what the
//! kernel keeps by the socket's buffer; what that has no room for is counted
//! ([`PacketInbox::dropped`]).

mod abilities;
mod address_state;
mod addresses;
mod capture;
mod errors;
mod group;
mod holders;
mod inbox;
mod interface;
mod multicast;
mod network_watch;
mod outbox;
mod port;
mod send_ports;
#[cfg(feature = "simulation")]
mod world_network;

pub use abilities::{Abilities, abilities};
pub(crate) use address_state::{AddressState, Interfaces};
pub use addresses::{LocalAddress, address_of, local_addresses};
pub use capture::{CAPTURE, Capture, Captured, write_captures};
pub use holders::{PortHolder, port_holders};
pub use inbox::{BATCH, FEW, MergedDatagrams, PacketInbox, ReceivedDatagram};
pub(crate) use interface::index as interface_index;
pub(crate) use network_watch::NetworkWatch;
pub use outbox::{Marks, OUTBOX, PacketOutbox};
pub use port::{PortError, UdpPort};
pub use send_ports::{MAX_SEND_PORTS, SendPorts};
#[cfg(feature = "simulation")]
pub use world_network::{NetworkNature, WorldNetwork};
