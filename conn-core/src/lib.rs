//! The protocols of RDMA connections, as pure state machines: a machine takes values (a
//! completion's id, an immediate, some bytes of a handshake) and gives small `Copy` values back
//! (an id to post, a credit to send, a span to deliver).
//!
//! | machine | at | answers |
//! |---|---|---|
//! | [`wr::SendTracker`] | sender | which id, is it signalled, is there room, what is complete |
//! | [`credit::CreditWindow`] | sender | may another message go |
//! | [`pack::Packer`], [`pack::Unpacker`] | both | several small messages in one |
//! | [`pool::BufferPool`] | receiver | which buffers are posted, lent, due for reposting |
//! | [`pool::PoolCounts`] | receiver | the same, for drivers that know which: how many, and when |
//! | [`credit::CreditGrantor`] | receiver | when to tell the sender, and what |
//! | [`loan::Lender`] | pool | how many buffers of a shared receive queue each member may borrow |
//! | [`loan::Borrower`], [`loan::LoanGrantor`] | sender, receiver | what to ask for, lend, recall and give back |
//! | [`repost::RepostQueue`] | threads | frees from anywhere, reposted in one place |
//! | [`ring::Producer`] | sender | where the next record goes, is there room |
//! | [`ring::Consumer`] | receiver | what is the next record, when to tell the head |
//! | [`ring::fetch::Fetch`] | receiver | which reads to post |
//! | [`ring::free`] | threads | frees in any order, and where the head is |
//! | [`direct_read::Offers`] | sender | what was offered to be read, what is acknowledged |
//! | [`direct_read::Reads`] | receiver | which READs to post, what to acknowledge |
//! | [`buffered_read::Source`] | sender | Buffered Read: the ring, and the receiver's position |
//! | [`buffered_read::Reader`] | receiver | Buffered Read: what to read, what to tell, how it ends |
//! | [`buffered_write::WriteSender`] | sender | Buffered Write: what to write, and may a tail go |
//! | [`buffered_write::WriteReceiver`] | receiver | Buffered Write: what has arrived, what to tell, how it ends |
//! | [`direct_write::BufferSender`] | sender | Direct Write: into which buffer a message goes |
//! | [`direct_write::BufferReceiver`] | receiver | Direct Write: what has arrived, which slots to write |
//! | [`shared_write::ExtentSender`] | sender | Shared Write: which ticket to take, where a message goes |
//! | [`shared_write::ExtentReceiver`] | receiver | Shared Write: what has arrived, which extent to grant |
//! | [`multicast::Member`] | group | what to write to which member, what to deliver, failures |
//! | [`push_inhibitor::PushInhibitor`] | both | is a push of counters due, or does it wait for company |
//! | [`multicast::SendWindow`] | threads | may another message begin |
//! | [`combiner::Combiner`] | threads | which thread reposts |
//! | [`park_flag::ParkFlag`] | threads | whether to wake the sleeper |
//! | [`leader::Followers`] | threads | which thread takes shared events, which threads to wake |
//! | [`control::Control`] | both | the 32-bit immediate |
//! | [`checksum`] | both | was a counter in memory seen half-written |
//! | [`handshake`] | both | the bytes of connection set-up |
//! | [`datagram::FragmentSender`] | sender | UD: fragments of messages, which to send and to repeat |
//! | [`datagram::FragmentReceiver`] | receiver | UD: fragments in order, what to acknowledge |
//! | [`raw`] | both | what raw queue pairs tell each other in it |
//! | [`rc_pingpong`] | both | the set-up of rdma-core's `ibv_rc_pingpong` |
//!
//! The crate does no I/O, does not allocate, and has no pointers and no clock. Addresses and keys
//! are numbers that the ends exchange; no machine dereferences them. So a protocol runs over any
//! verbs device, in any runtime, without std, and all its histories can be tested.
//!
//! # The drive loop
//!
//! The sender of one half has a `window` ([`credit::CreditWindow`]) and a `tracker`
//! ([`wr::SendTracker`]):
//!
//! 1. `window.consume(1)`, then `tracker.plan(WrClass::Data)`; if either refuses,
//!    go to step 4 and try again.
//! 2. Stage a work request with the planned id, signalled as planned.
//! 3. Post what is staged; if the post failed at some request,
//!    `tracker.rollback(its id)`, and `window.refund(n)` for the messages among them.
//! 4. Poll. For a completed send, `tracker.complete(id)`: that many send slots are
//!    free. For a received immediate, [`control::Control::decode`], and a credit
//!    goes to `window.on_credit(wire)`.
//!
//! The receiver of one half has a `pool` ([`pool::BufferPool`]), a `grantor`
//! ([`credit::CreditGrantor`]), and a `tracker` for its control messages. `id` is the number of a
//! buffer, `ids` an array for several, and `credit` a [`credit::CreditWire`]:
//!
//! 1. Poll. For a message, `grantor.on_receive()` and `pool.lend(id)`, and hand it out.
//! 2. When the application has dropped it, `pool.free(id)`. Frees from other threads
//!    are passed on by a [`repost::RepostQueue`].
//! 3. While `pool.due()`: `pool.take_repost(&mut ids)`, post them,
//!    `grantor.on_reposted(n)`; what could not be posted goes to `pool.unpost`.
//! 4. When `grantor.due()` gives a credit: `tracker.plan(WrClass::Control)`, post it
//!    as the immediate of an empty send, then `grantor.mark_granted(credit)`.
//!
//! Both, with memory in place of a queue pair:
//!
//! ```
//! use conn_core::credit::{CreditGrantor, CreditWindow};
//! use conn_core::pool::{PoolConfig, PoolCounts};
//! use conn_core::wr::{SendTracker, SendTrackerConfig, WrClass};
//!
//! let mut window = CreditWindow::new(8)?;
//! let mut tracker: SendTracker = SendTracker::new(SendTrackerConfig::default())?;
//! let mut grantor = CreditGrantor::new(8, 4)?;
//! let mut pool = PoolCounts::new(8, PoolConfig { repost_batch: 4 })?;
//! pool.repost(8)?;
//!
//! let mut wire = std::collections::VecDeque::new();
//! let mut received = 0;
//! while received < 100 {
//!     // The sender: as many messages as credits and its send queue permit.
//!     while window.consume(1).is_ok() {
//!         let request = tracker.plan(WrClass::Data)?;
//!         wire.push_back("a message");
//!         if request.signalled {
//!             tracker.complete(request.id)?; // as its completion queue would say later
//!         }
//!     }
//!     // The receiver: takes a message, frees its buffer, reposts buffers in batches, and grants.
//!     while wire.pop_front().is_some() {
//!         grantor.on_receive()?;
//!         (pool.lend(1)?, pool.free(1)?);
//!         received += 1;
//!         if pool.due() {
//!             grantor.on_reposted(pool.waiting())?;
//!             pool.repost(pool.waiting())?;
//!         }
//!         if let Some(credit) = grantor.due() {
//!             grantor.mark_granted(credit)?;
//!             window.on_credit(credit)?; // the immediate of an empty SEND
//!         }
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **The contract: report each event to a machine once, in the order of events, and execute its
//! answer before you ask again.**
//!
//! # Failures
//!
//! Three tiers, never mixed. Errors that the caller may retry: [`wr::SendQueueFull`],
//! [`credit::OutOfCredit`], [`pack::PackFull`]. Errors that only a broken peer, device or driver
//! can cause: [`wr::CompletionError`], [`credit::CreditError`], …; close the connection after
//! these. Bugs of this crate, which panic. An operation that fails changes nothing.
//!
//! # Embedding
//!
//! A custom runtime (a polling loop, a DPU, a kernel) owns memory and queue pairs, posts, polls,
//! and has the clock. It drives the machines as the loops above do. `examples/custom_runtime` of
//! the repository is such a program, without std and with conn-core as its only crate. Its loop
//! drives a ring, its free list and the push inhibition of two nodes, over plain memory in place of
//! registered memory.
//!
//! ```text
//! cargo run --manifest-path examples/custom_runtime/Cargo.toml
//! ```
//!
//! - **Storage** is the caller's: arrays, borrowed slices, `heapless` types, or boxes. [`storage`]
//!   says when to use which.
//! - **Atomics** of 32 bits are needed, with compare-and-swap. Where the target has none of 64
//!   bits (`cfg(target_has_atomic = "64")`; Cortex-M and 32-bit RISC-V have none), the machines
//!   that need them are left out: [`combiner`], [`ring::free`], [`ring::shared`],
//!   [`multicast::SendWindow`]. All others are there.
//! - **Time** is a number of nanoseconds that the caller gives, from any clock that does not go
//!   back. Machines with a deadline say when they want to be driven again
//!   ([`PushInhibitor::wants_ns`](push_inhibitor::PushInhibitor::wants_ns),
//!   [`Member::wants_ns`](multicast::Member::wants_ns)).
//! - **Order** of loads and stores is the caller's. Load a word of the peer with acquire ordering
//!   before the bytes that it covers: a tail before the records, a counter before the slots.
//!
//! `proof/` is a linked program without std and alloc that drives every machine, with and without
//! 64-bit atomics; `instructions.sh` counts what a message costs.
//!
//! # Features
//!
//! `oracle` adds, with std, each machine's operation enum and a naive model of it
//! (`wr::oracle` and so on): the property tests, the enumeration of short histories
//! and the fuzz targets all use them.
//!
//! `heapless` makes storage of `heapless::Vec`: see [`storage`].
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![cfg_attr(
    not(all(target_has_atomic = "64", not(rdma_conn_no_atomic64))),
    allow(rustdoc::broken_intra_doc_links, reason = "the docs name what is left out here, too")
)]

#[cfg(any(test, feature = "oracle", rdma_conn_loom))]
extern crate std;

pub mod buffered_read;
pub mod buffered_write;
pub mod checksum;
#[cfg(all(target_has_atomic = "64", not(rdma_conn_no_atomic64)))]
pub mod combiner;
pub mod control;
pub mod credit;
pub mod datagram;
pub mod direct_read;
pub mod direct_write;
#[cfg(any(test, feature = "oracle"))]
pub mod exhaustive;
pub mod handshake;
pub mod leader;
pub mod loan;
pub mod multicast;
pub mod pack;
pub mod park_flag;
pub mod pool;
pub mod push_inhibitor;
pub mod raw;
pub mod rc_pingpong;
pub mod repost;
pub mod ring;
pub mod shared_write;
pub mod storage;
mod sync;
mod wire;
pub mod wr;
