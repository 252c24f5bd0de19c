//! The Buffered Read connection: the receiver reads the sender's ring.
//!
//! 1. [`connect`](crate::connect) to a [`Listener`](crate::Listener), or [`pair`](crate::pair)
//!    within a process.
//! 2. [`send`](crate::SendHalf::send) copies; [`reserve`](crate::SendHalf::reserve) lends room to be filled in
//!    place, which [`commit`](crate::Room::commit) sends.
//! 3. [`recv`](crate::RecvHalf::recv) gives a [`Message`] that derefs to its bytes;
//!    [`try_recv_each`](crate::RecvHalf::try_recv_each) shows all messages that have arrived.
//! 4. Several threads share an end by [`Sender::into_shared`] and [`Receiver::into_shared`].
//!
//! ```text
//!       sender                                        receiver
//!   ring [m m m . . .]     <------ READ, … --------   ring [m m m . . .]
//!   tail, FIN              <------ READ -----------        | lend, free
//!   head, landed           <------ WRITE ----------        v
//! ```
//!
//! The sender is passive: it copies a message into its ring and publishes the tail. The receiver
//! READs the tail, then all published records, so that one READ brings many small messages. It
//! hands them out in place, and writes the head back. So the rate of small messages is the highest
//! of all connections, and messages of any size need no slots of a fixed size. The latency is that
//! of two READs, or of one while messages flow, since each post of READs includes the tail.
//!
//! A connection is duplex: two one-way halves, each with a queue pair, a ring and a
//! completion queue of its own. A [`Receiver`] may have many senders ([`join`](crate::join)),
//! which take turns.
//!
//! A receiver polls for messages. After a long wait ([`Common::wait`](crate::Common::wait)) it
//! requests a wake-up of its senders and sleeps: a sender that finds the request after it has
//! published a message posts one empty SEND. The sender checks for the request without a memory
//! barrier, so it may rarely miss one; therefore no sleep is longer than [`Config::max_sleep`]. The
//! threads of a [`SharedReceiver`] are not woken: they poll periodically.

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
