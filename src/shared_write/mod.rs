//! The Shared Write connection: many senders write to one ring of the receiver.
//!
//! ```
//! use rdma_conn::{RecvHalf, SendHalf, SharedWrite, pair};
//!
//! let device = rdma_conn::device::soft()?;
//! let (mut left, mut right) = pair::<SharedWrite>(&device, &device, &Default::default())?;
//! left.sender.send(b"hello")?;
//! assert_eq!(&*right.receiver.recv()?, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//!   many senders                                  receiver
//!   take an extent        FETCH_ADD, READ          tail, entries
//!   fill it               WRITE of each message    [extent][extent][extent][extent]
//!                         ------------------->         |  polled, copied out
//!                                                      v  cleared, granted again
//! ```
//!
//! The ring is cut into extents, and each sender fills one at a time. So the receiver's memory does
//! not grow with the number of senders, a busy sender gets more extents, and the receiver posts no
//! requests. The cost is a round trip for each extent, which is taken in advance. All senders can
//! write to the whole ring: *they have to trust each other*. Without that trust, or with few
//! senders, [`BufferedWrite`](crate::BufferedWrite) gives each a ring of its own.
//!
//! Free extents go to the senders in the order of their tickets. An idle sender keeps up to two
//! extents; those of a dead sender are found and freed. The device must support atomics.
//!
//! The protocol itself is [`conn_core::shared_write`].

mod config;
mod link;
mod receiver;
mod ring;
mod sender;
mod setup;

pub use crate::copies::Message;
pub use crate::error::{CloseReason, ConnectError, Full, ProtocolError, RecvError, SendError};
pub use crate::peer::Peer;
pub use crate::ticket::Ticket;
pub use config::Config;
pub use receiver::{Receiver, ReceiverStats};
pub use sender::{Reserved, Sender, SenderStats};

/// The Shared Write connection, as a [`Protocol`](crate::Protocol).
#[derive(Debug)]
pub enum SharedWrite {}
