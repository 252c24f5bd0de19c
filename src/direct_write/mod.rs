//! The Direct Write connection: messages of bounded size, each in a buffer of the receiver.
//!
//! ```
//! use rdma_conn::{DirectWrite, RecvHalf, SendHalf, pair};
//!
//! let device = rdma_conn::device::soft()?;
//! let (mut left, mut right) = pair::<DirectWrite>(&device, &device, &Default::default())?;
//! left.sender.send(b"hello")?;
//! assert_eq!(&*right.receiver.recv()?, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//!        sender                                       receiver
//!   message, trailer      WRITE into a buffer      [ . . m t ] [ . . . t ] [ m m m t ]
//!   (a slot of the   ------------------------->         |  polled in order
//!    send queue)                                        |  copy out, hand out
//!   slots: buffers       WRITE of the slots             v
//!   that are free    <-------------------------     freed buffers
//! ```
//!
//! It is Send/Receive rebuilt from WRITEs: the receiver has a number of buffers of one size, and
//! tells the sender the buffer for each message. So the receiver posts no receive requests (with
//! [`Detection::Polled`]), a message takes one work request and no completion at the receiver, and
//! receiver-not-ready never occurs. Only the message is written, not the rest of its buffer. Where
//! messages vary much in length, [`BufferedWrite`](crate::BufferedWrite) needs less memory.
//!
//! The peer can write to a buffer at any time, also during a read. So messages are copied, and used
//! in the copy. [`Receiver::recv_in_place`] leaves a message in its buffer, which is lent until the
//! message is dropped; [`InPlace::read`] copies parts of it.
//!
//! The protocol itself is [`conn_core::direct_write`].

mod config;
mod in_place;
mod link;
mod receiver;
mod sender;
mod setup;

pub use crate::copies::Message;
pub use crate::error::{CloseReason, ConnectError, Full, ProtocolError, RecvError, SendError};
pub use crate::peer::Peer;
pub use crate::ticket::Ticket;
pub use config::{Config, Detection};
pub use in_place::InPlace;
pub use receiver::{Receiver, ReceiverStats};
pub use sender::{Reserved, Sender, SenderStats};

/// The Direct Write connection, as a [`Protocol`](crate::Protocol).
#[derive(Debug)]
pub enum DirectWrite {}
