//! RDMA connections: message passing over real verbs, or over an embedded software
//! device where there is no card.
//!
//! 1. Open a device: [`device::open`] takes a card if there is one, else `soft0`.
//! 2. Connect: [`send_recv::connect`] and [`send_recv::Listener`] between processes,
//!    [`send_recv::pair`] within one.
//! 3. Send: [`send_async`](send_recv::Sender::send_async) gives a ticket,
//!    [`wait`](send_recv::Sender::wait) takes it. Messages go when a batch has gathered, at
//!    [`flush`](send_recv::Sender::flush), and when the sender waits.
//! 4. Receive: [`recv`](send_recv::Receiver::recv) gives a message that derefs to its
//!    bytes; dropping it, anywhere and in any order, frees its buffer.
//!
//! ```
//! use rdma_conn::send_recv::{Config, pair};
//!
//! let device = rdma_conn::device::soft()?;
//! let (mut left, mut right) = pair(&device, &device, &Config::default())?;
//! left.sender.send(b"hello")?;
//! assert_eq!(&*right.receiver.recv()?, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Contract: a wait always ends, with its result, with the reason why there will
//! be none, or at the caller's timeout; and whatever the peer does, safe code stays
//! safe.**
//!
//! The protocols themselves are the state machines of [`conn_core`], which know
//! nothing of memory, threads or time. Registered memory is the business of
//! [`verbs_safe`]. This crate drives the ones over the other, and has no unsafe code.
#![forbid(unsafe_code)]

mod bell;
pub mod buffered_read;
pub mod buffered_write;
pub mod build;
pub mod device;
pub mod direct_read;
pub mod handshake;
pub mod listener;
pub mod multicast;
pub mod raw;
mod reception;
pub mod ring;
mod sealed;
pub mod send_recv;
mod wait;
mod wire;

/// The README's program is tested as documentation is.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use conn_core;
pub use verbs_safe;
pub use wait::WaitStrategy;
