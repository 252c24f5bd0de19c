//! The Buffered Read connection: the receiver reads the sender's ring.
//!
//! 1. [`connect`](crate::connect) to a [`Listener`](crate::Listener), or [`pair`](crate::pair)
//!    within a process.
//! 2. [`send`](crate::SendHalf::send) copies; [`reserve`](crate::SendHalf::reserve) lends room to be filled in
//!    place, which [`commit`](crate::Room::commit) sends.
//! 3. [`recv`](crate::RecvHalf::recv) gives a [`Message`] that derefs to its bytes;
//!    [`try_recv_each`](crate::RecvHalf::try_recv_each) shows all that there is.
//! 4. Several threads share an end by [`Sender::into_shared`] and [`Receiver::into_shared`].
//!
//! ```text
//!       sender                                        receiver
//!   ring [m m m . . .]     <------ READ, … --------   ring [m m m . . .]
//!   tail, FIN              <------ READ -----------        | lend, free
//!   head, landed           <------ WRITE ----------        v
//! ```
//!
//! The sender is passive: to send is to copy a message into a ring and to publish how far
//! it is filled. The receiver reads that, then all that is there, in READs that bring many
//! small messages at once; it hands them out where they have landed, and writes back how far
//! they were freed. So the rate of small messages is the highest of all connections, and
//! messages of all sizes go without slots of a fixed size; the latency is that of two READs,
//! or of one while messages flow, since each posting of READs brings the tail along.
//!
//! A connection is duplex: two one-way halves, each with a queue pair, a ring and a
//! completion queue of its own. A [`Receiver`] may have many senders ([`join`](crate::join)),
//! which take turns.
//!
//! A receiver looks for messages. One that waits for long ([`Common::wait`](crate::Common::wait)) asks its senders
//! for a wake-up and sleeps: a sender that finds the request when it has published a message
//! posts one empty SEND. The sender looks for it without a memory barrier, so a wake-up may be
//! missed once in a while; therefore no sleep is longer than [`Config::max_sleep`]. The threads
//! of a [`SharedReceiver`] are not woken: they look every now and then.

mod config;
mod landing;
mod link;
mod message;
mod receiver;
mod sender;
mod setup;

pub use config::Config;
pub use link::ReceiverStats;
pub use message::Message;
pub use receiver::{Receiver, SharedMessage, SharedReceiver, Transfers};
pub use sender::{Reserved, Sender, SenderStats, SharedSender};

pub use crate::error::{CloseReason, ConnectError, Full, ProtocolError, RecvError, SendError};
pub use crate::peer::Peer;
pub use crate::ticket::Ticket;

/// The Buffered Read connection, as a [`Protocol`](crate::Protocol).
#[derive(Debug)]
pub enum BufferedRead {}
