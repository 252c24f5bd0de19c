//! The Buffered Write connection: low latency with messages of any size.
//!
//! ```
//! use rdma_conn::buffered_write::Config;
//! use rdma_conn::{BufferedWrite, RecvHalf, SendHalf, pair};
//!
//! let device = rdma_conn::device::soft()?;
//! let (mut left, mut right) = pair::<BufferedWrite>(&device, &device, &Config::default())?;
//! left.sender.send(b"hello")?;
//! left.sender.send(&[7; 60_000])?;
//! assert_eq!(&*right.receiver.recv()?, b"hello");
//! assert_eq!(right.receiver.recv()?.len(), 60_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! 1. [`connect`](crate::connect) to a [`Listener`](crate::Listener), or [`pair`](crate::pair)
//!    within a process.
//! 2. [`send`](crate::SendHalf::send) copies; [`reserve`](crate::SendHalf::reserve) gives room to be filled in
//!    place, which [`commit`](crate::Room::commit) sends.
//! 3. [`recv`](crate::RecvHalf::recv) gives a [`Message`], a private copy that derefs to its bytes;
//!    [`Receiver::recv_in_place`] shows a message in the ring.
//!
//! A connection is duplex: two one-way halves, each with a queue pair and a completion queue of its
//! own. Each can have its own thread; the two share nothing.
//!
//! ```text
//!        sender                                          receiver
//!   a ring of its own         WRITE records           the ring, registered
//!   [ . . r r r . . ]   ----------------------->      [ . . r r r . . ]
//!                             tail: immediate, or              | copy out,
//!   control block             WRITE of its own                 | hand out
//!   [ head, taken ]     <-----------------------               v
//!                             WRITE head
//! ```
//!
//! The sender builds each message as a record in a ring of its own. One push WRITEs all records
//! since the last push to the same place of the receiver's ring, in one request, and then the tail.
//! The receiver polls, copies new records out of the ring, hands out the messages, and writes its
//! head back into the sender's control block: the sender's credit. So messages may have any size up
//! to that of the ring, small ones share requests without a delay, and receiver-not-ready never
//! occurs.
//!
//! Where the tail is written, a lone message of up to 40 bytes goes in the cache line of the tail,
//! and afterwards to the ring: the receiver polls one line
//! ([`inline_record`](conn_core::buffered_write::inline_record)).
//!
//! The peer can write to the ring at any time, also to published records. So messages are copied
//! before they are parsed, and headers are trusted in the copy only: a hostile peer cannot change a
//! message after it was handed out.

mod config;
mod link;
mod receiver;
mod sender;
mod setup;

pub use crate::copies::Message;
pub use crate::error::{CloseReason, ConnectError, Full, ProtocolError, RecvError, SendError};
pub use crate::peer::Peer;
pub use crate::ticket::Ticket;
pub use config::{Config, Tail};
pub use receiver::{Receiver, ReceiverStats};
pub use sender::{Reserved, Sender, SenderStats};

/// The Buffered Write connection, as a [`Protocol`](crate::Protocol).
#[derive(Debug)]
pub enum BufferedWrite {}
