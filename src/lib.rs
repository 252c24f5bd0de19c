//! RDMA connections: message passing over an RDMA NIC through rdma-core if one is present, else
//! over an embedded software device.
//!
//! ```
//! use rdma_conn::{RecvHalf, SendHalf, SendRecv, pair};
//!
//! let device = rdma_conn::device::soft()?; // `device::open` takes a card if there is one
//! let (mut left, mut right) = pair::<SendRecv>(&device, &device, &Default::default())?;
//! let ticket = left.sender.send(b"hello")?; // accepted, and on its way
//! assert_eq!(&*right.receiver.recv()?, b"hello"); // dropping the message frees its buffer
//! left.sender.wait_acked(ticket)?; // it has arrived
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Between processes, [`connect`] and [`Listener`] take the place of [`pair`]. A program changes
//! its connection by changing one type, and may be generic over it ([`Protocol`]):
//!
//! | | when |
//! |---|---|
//! | [`SendRecv`] | messages of a known longest size; many senders with one receiver and shared buffers |
//! | [`BufferedRead`] | the highest rate; the sender posts nothing per message, except a wakeup for a sleeping receiver; any sizes up to the ring's |
//! | [`BufferedWrite`] | the lowest latency; any sizes up to the ring's |
//! | [`DirectWrite`] | messages of a bounded length, each written into a buffer of the receiver by one request |
//! | [`SharedWrite`] | many senders that trust each other, with one ring of the receiver for all of them |
//! | [`DirectRead`] | long messages, which the receiver reads when it wants to; buffers and files without a copy ([`direct_read`]) |
//! | [`multicast`] | many members, each message to all of them, in one order |
//!
//! A message in a registered buffer of the program needs no copy: [`ZeroCopySend`] offers it, and
//! [`ZeroCopyRecv`] reads it into a buffer of the receiver's choice. [`DirectRead`] implements
//! both, and code may be generic over them as over [`Protocol`]; [`zero_copy`] has an example.
//!
//! With the feature `tokio`, `aio` has halves, connecting and listening as futures; [`io`] makes a
//! connection a stream of bytes. With the feature `simulation`, `simulation` runs a program in virtual
//! time, in an order of its threads and with faults that a seed decides, to find and repeat what goes
//! wrong rarely.
//!
//! **Contract: a wait ends with its result, or with a reason when the peer closes, dies or breaks
//! the protocol. A live peer that makes no progress blocks a call that has no timeout; every such
//! call has a form with one. Safe code stays safe with a hostile peer.**
//!
//! The calls that wait, and their longest wait:
//!
//! | call | without a timeout, it waits |
//! |---|---|
//! | `try_…`, `is_…`, `arm`, `poll`, `progress`, `stats` | never (an exception is below) |
//! | `send`, `flush`, `wait_for_room`, `reserve`; [`ZeroCopySend`]: `offer`, `offer_part` | only while there is no room: as long as the peer lives and frees none |
//! | `send_acked`, `wait_acked`, `wait_all`, `close`; [`ZeroCopySend`]: `wait_sent`, `wait_next`, `close_and_take` | as long as the peer lives and does not acknowledge |
//! | `recv`, `recv_in_place`; [`ZeroCopyRecv`]: `next_request`; [`direct_read::Receiver`]: `read_next_into` | as long as a peer lives and does not send |
//! | [`ZeroCopyRecv`]: `wait`; [`direct_read::Receiver`]: `wait_file` | until the READs of the message complete, or fail because the sender's device does not answer |
//! | [`multicast`]: `send`, `wait`, `Running::finish` | as long as all members live and one of them does not deliver, or does not end its stream |
//! | `connect` | as long as the system tries to reach the address (Linux: about two minutes), and then at most [`handshake::TIME_LIMIT`] for the whole handshake |
//! | [`multicast::join`](multicast::join()), [`multicast::Leader`]: `gather` | connecting apart, at most [`multicast::GATHERING`] until all members have connected, and then at most [`multicast::SET_UP`] for the set-up |
//! | `Listener::next` | until there is an initiator |
//! | `accept` | at most [`handshake::READY_LIMIT`] for the initiator, after at most [`handshake::TIME_LIMIT`] for the answer |
//! | dropping a half | at most the `linger` of its configuration |
//! | `abort` | no time |
//!
//! Forms with a timeout are `send_timeout`, `wait_acked_timeout`, `recv_timeout`,
//! `next_request_timeout` (then `read_into`, for `read_next_into`), `close_timeout`,
//! `connect_timeout`, `next_timeout`, `gather_within`, …; [`handshake::Within`] limits a handshake
//! over any stream, and [`listener::Incoming::within`] an `accept`. A timeout beyond the range of
//! the clock, as `Duration::MAX`, is none. `keepalive` and the retries of the transport, or
//! `suspect_after` in a group, detect a dead peer, which ends every wait with the reason.
//!
//! The exception: a call that posts (also `try_send`) spins while the device refuses a request that
//! has room by the library's own count, for up to 60 s (`BACKPRESSURE_LIMIT` in `src/doorbell.rs`),
//! and then fails.
//!
//! The protocols are the state machines of [`conn_core`], which have no memory, threads or clock.
//! [`verbs_safe`] owns registered memory. This crate drives the former over the latter, and has no
//! unsafe code. Events that no call returns are logged by `tracing`: a program sees them with any
//! subscriber of that crate.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod acceptor;
#[cfg(feature = "tokio")]
pub mod aio;
mod allocate;
pub mod arm;
pub mod buffered_read;
pub mod buffered_write;
pub mod build;
mod checked;
pub mod common;
pub mod connection;
mod copies;
pub mod device;
pub mod direct_read;
pub mod direct_write;
mod doorbell;
mod draft;
pub mod error;
pub mod half;
pub mod handshake;
mod index;
pub mod io;
mod keepalive;
pub mod listener;
pub mod messages;
pub mod multicast;
mod new_pair;
pub mod peer;
mod places;
mod posting;
pub mod protocol;
pub mod qp;
pub mod raw;
mod receiving;
pub mod ring;
pub mod send_recv;
mod sending;
pub mod setup;
pub mod shared_write;
#[cfg(feature = "simulation")]
pub mod simulation;
mod taking;
pub mod ticket;
pub mod wait;
mod waiting;
mod wakeup;
mod wire;
mod writing;
pub mod zero_copy;

/// The README's program is tested as documentation is.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use arm::Arm;
pub use buffered_read::BufferedRead;
pub use buffered_write::BufferedWrite;
pub use common::Common;
pub use conn_core;
pub use connection::{
    connect, connect_over, connect_sender, connect_sender_over, connect_sender_timeout,
    connect_timeout, join, join_shared, pair, receiver, receiver_shared,
};
pub use direct_read::DirectRead;
pub use direct_write::DirectWrite;
pub use error::{CloseReason, ConnectError, RecvError, SendError};
pub use half::{Batch, FromPeer, RecvHalf, Room, SendHalf};
pub use listener::{Incoming, Listener};
pub use messages::Messages;
pub use peer::Peer;
pub use protocol::{Connection, Protocol};
pub use send_recv::SendRecv;
pub use shared_write::SharedWrite;
pub use ticket::Ticket;
pub use verbs_safe;
pub use wait::WaitStrategy;
pub use zero_copy::{OfferedMessage, ZeroCopyRecv, ZeroCopySend};
