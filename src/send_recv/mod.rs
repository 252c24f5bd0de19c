//! The Send/Receive connection: messages of up to a fixed length, into posted receive buffers.
//!
//! ```
//! use rdma_conn::send_recv::{Config, Preset};
//! use rdma_conn::{RecvHalf, SendHalf, SendRecv, pair};
//!
//! let device = rdma_conn::device::soft()?;
//! let config = Config { message_bytes: 8192, ..Config::preset(Preset::Batched) };
//! let (mut left, mut right) = pair::<SendRecv>(&device, &device, &config)?;
//! left.sender.send(b"one")?;
//! left.sender.send(b"two")?;
//! left.sender.flush()?; // this preset gathers batches, and two messages are no whole one
//! assert_eq!(&*right.receiver.recv()?, b"one");
//! assert_eq!(&*right.receiver.recv()?, b"two");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! 1. [`connect`](crate::connect) to a [`Listener`](crate::Listener), or [`pair`](crate::pair)
//!    within a process.
//! 2. [`send`](crate::SendHalf::send) copies a message into a send slot;
//!    [`Sender::try_send_with`] fills the slot in place.
//! 3. [`recv`](crate::RecvHalf::recv) gives a [`Message`] that derefs to its bytes, in the receive
//!    buffer; dropping it frees the buffer.
//! 4. Many senders at one [`Receiver`] (single-receiver mode): [`receiver`](crate::receiver),
//!    and [`join`](crate::join) or [`Incoming::accept_into`](crate::Incoming::accept_into). With
//!    buffers in common, a shared receive queue ([`SharedPool`]):
//!    [`receiver_shared`](crate::receiver_shared), and [`join_shared`](crate::join_shared) or
//!    [`Incoming::accept_into_shared`](crate::Incoming::accept_into_shared).
//!
//! A connection is duplex: two one-way halves, each with a queue pair and a completion queue of its
//! own. Each can have its own thread; the two share nothing.
//!
//! ```text
//!        sender                                  receiver
//!   send ring (unacked)      SEND, plain        k + 1 receive buffers
//!   [m m m m . . . .]  --------------------->   [m m . . . . . . .]
//!                        SEND with immediate          | lend, free,
//!   16 empty buffers   <---------------------         | repost
//!   [. . . . . . . .]     credit, no payload          v
//! ```
//!
//! The sender keeps up to `unacked` messages in flight, posts them in postlists of `batch`, and
//! signals one request in several: a completion acknowledges all requests before it. With in-order
//! delivery, an acknowledged message lies in the receiver's memory. The receiver polls up to 32
//! completions at a time, lends the messages out, and reposts freed buffers in batches.
//!
//! A message that finds no buffer (receiver-not-ready) costs the sender a long back-off or the
//! connection; the specification leaves flow control to the application. Here the receiver grants
//! credits: cumulative counts of messages that it has room for. It sends them when half of its
//! buffers were freed, or at once when the sender may have no credit left. So each message finds a
//! posted buffer. `credits: false` is the uncontrolled mode, for measuring.

mod config;
mod link;
mod links;
mod message;
mod receiver;
mod returns;
mod sender;
mod setup;
mod shared;
mod stale_links;

pub use crate::error::{
    CloseReason, ConfigError, ConnectError, Full, ProtocolError, RecvError, SendError,
};
pub use crate::peer::Peer;
pub use crate::qp::{Inline, Transport};
pub use crate::ticket::Ticket;
pub use config::{Config, Preset, UnknownPreset};
pub use link::ReceiverStats;
pub use message::Message;
pub use receiver::Receiver;
pub use sender::{Sender, SenderStats};
pub use shared::{Reposting, SharedConfig, SharedPool};

/// The Send/Receive connection, as a [`Protocol`](crate::Protocol).
#[derive(Debug)]
pub enum SendRecv {}
