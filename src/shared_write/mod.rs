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
//! not grow with its senders, a sender that sends much has much of it, and the receiver posts no
//! request for what it takes. It costs a round trip for each extent, taken ahead, and all senders
//! can write to the whole ring: *they have to trust each other*. Where they do not, or where there
//! are few of them, [`BufferedWrite`](crate::BufferedWrite) gives each a ring of its own.
//!
//! Extents that are free go to the senders in the order of their tickets. A sender that sends
//! nothing keeps up to two extents; those of one that dies are found, and are free again. The
//! device has to have atomics.
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
