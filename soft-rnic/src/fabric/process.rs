//! Other processes of this machine and user.
//!
//! Each process describes itself to the others in memory files that only it writes
//! (`mapped`): its queue pairs and regions (`directory`), and for each process that it
//! knows, a ring of requests and one of replies (`ring`). So a word has one writer, no
//! lock is shared, and a process that dies leaves nothing held or half done. They find
//! each other by the numbers of their queue pairs (`rendezvous`). What names no queue pair
//! is in `peers::process`: all of these, `region`, `liveness`, `barrier` and `maps`.
//!
//! - **One-sided operations** are carried out by the requester (`one_sided`): it looks up
//!   whether they are permitted, and copies to or from the target's memory, mapped
//!   (`region`) or attached to (`memory::attach`). The target does nothing; it may be stopped. The
//!   memory of a process that has died stays mapped for a while: a request that finds it dead
//!   (`liveness`) fails.
//! - **What takes a receive request**, and what the requester finds not to be permitted,
//!   goes through the ring, and is executed by the target (`incoming`) as if it had been sent
//!   by a queue pair of its own: by a thread there that polls, or else by its one progress
//!   thread (`progress_thread`). A reply is sent back. If the target was not ready for a request,
//!   that one and all after it are sent again, in order.
//!
//! Everything that is read from another process is checked before it is used; one that
//! does not keep the rules is treated as if it had died.
//!
//! # Measured
//!
//! `cargo bench --bench ratios -- processes` sets two processes beside UCX's shared memory and a
//! pipe; docs/ratios.md has its figures.
//!
//! `SOFT_RNIC_APART=1 cargo run --release -p soft-rnic --example raw_loop` runs both sides in
//! one thread: 133 ns for a message of 16 bytes in lists of 8 with a fence for each list, 95 ns
//! where the thread that goes to sleep pays for it (`barrier`), and ring slots are fetched
//! ahead (all before what follows). A progress thread that works as soon as the program has not
//! polled for 4 ms took half of the rate away where processors were short; it waits for a second
//! look now, and a thread that polls while it works yields the processor to it.
//!
//! `--example many` counts the instructions of a message of 16 bytes at both ends together,
//! by callgrind, the example's own among them (with an eventfd in the place of the descriptor
//! of a process, which the valgrind at hand did not know: a build for the count alone, so the
//! command alone does not repeat it there). What was posted went into the send queue, and
//! from there by the way of all requests into the ring; at the other end it went the way of
//! all requests, too. Runs of messages of up to 32 bytes have a fast path at both ends
//! now (`remote::tx_fast_path`, `incoming::rx_fast_path`), and a poll that finds nothing looks at
//! two words:
//!
//! | | all the same way | now |
//! |---|---|---|
//! | lists of 8, 100 queue pairs that send in turn | 1,530 | 772 |
//! | lists of 8, 1,000 | 1,650 | 1,225 |
//! | one at a time, 100 | 2,180 | 1,507 |
//! | one at a time, 1,000 | 2,140 | 1,460 |
//!
//! In time, half a round trip of a SEND went from 0.24 to 0.20 µs. What is left of the fall
//! with many queue pairs is caches: with 1,000 there are 15 misses of a cache of 2 MiB a
//! message that is sent alone, and 10 in lists of 8; with 100, none. A send queue begins with
//! its first slots again whenever it has emptied: with 256 queue pairs, lists of 8 and windows
//! of 64, that leaves 4.9 misses of a cache of 1 MiB of 6.5.
//!
//! Tried, and of no use: locks without an atomic instruction, and no fence after each poll
//! (half a round trip stayed what it was, with both taken away for the trial).
//!
//! Requests are read and written where they lie. Moved about as a whole, right after their
//! fields had been stored, they waited for all stores before them, those to lines among them
//! that the other process had: a quarter of the sender's time.
//!
//! A thousand connections were set up within 2.5 s of the processor's time at one end and
//! 2.7 s at the other while each registration read the list of all mappings, and 0.4 s and
//! 0.7 s since the kernel is asked for one (`maps`).

pub(crate) mod backpressure;
pub(crate) mod blocking;
pub(crate) mod deferred_fetch;
pub(crate) mod gather;
pub(crate) mod incoming;
#[cfg(feature = "simulation")]
pub(crate) mod killed;
pub(crate) mod multicast;
pub(crate) mod one_sided;
pub(crate) mod out;
pub(crate) mod peer_processes;
pub(crate) mod progress_thread;
pub(crate) mod remote;
pub(crate) mod remote_ud;

#[cfg(test)]
mod tests;

pub use peer_processes::crosses_processes;
