//! conn-core in a runtime of its own: no std, no allocator, no rdma-conn.
//!
//! ```text
//! cargo run --manifest-path examples/custom_runtime/Cargo.toml
//! ```
//!
//! Two nodes exchange messages over a ring. A node is its machines and its memory
//! ([`sender`], [`receiver`]); the wire ([`wire`]) is the only way into the other node's memory,
//! and stands for RDMA WRITEs. This file has the loop that drives them:
//!
//! 1. The sender looks at what the receiver has written into its memory, stages messages, and
//!    writes them, and then the tail, when its [`PushInhibitor`] says so.
//! 2. The receiver looks at the tail, takes messages out of its ring and lends them to the
//!    application.
//! 3. The application frees what it holds, in any order; the free list finds the head.
//! 4. The receiver writes the head when the ring says so, and its counters when its
//!    `PushInhibitor` says so.
//!
//! To make it a runtime on a device: replace `wire.rs` by posts of the device, the two memories
//! by registered ones, and [`PASS_NS`] by a clock. What a device writes is then to be loaded with
//! acquire ordering, tail and counters before what they cover.
#![no_std]
#![no_main]

mod output;
mod receiver;
mod sender;
mod wire;

use core::fmt::{self, Write};
use core::num::NonZeroU32;

use conn_core::push_inhibitor::{PushCause, PushInhibitor, PushRule};
use conn_core::ring::{Geometry, GeometryError};

use output::{Output, exit};
use receiver::Receiver;
use sender::Sender;
use wire::Wire;

/// Bytes of the ring.
const RING: usize = 1024;
/// The longest message, in bytes.
const MAX_MESSAGE: u32 = 100;
/// Messages that the sender sends. They are no multiple of [`EVERY`]: the last counters wait for
/// the deadline.
const MESSAGES: u64 = 10_001;
/// A push is due at each eighth message, at the latest 20 µs after it was inhibited.
const EVERY: NonZeroU32 = NonZeroU32::new(8).unwrap();
const DEADLINE_NS: u64 = 20_000;
/// Time of one pass of the loop: there is no clock here.
const PASS_NS: u64 = 1_000;
/// In every 300 passes, the program has something to send in the first 200.
const BUSY: core::ops::Range<u64> = 0..200;
const PERIOD: u64 = 300;
/// In every fourth pass, the receiving application frees messages.
const FREES_EVERY: u64 = 4;

// SAFETY: the C runtime calls `main` with this signature, and nothing else defines it.
#[unsafe(no_mangle)]
pub extern "C" fn main(_arguments: i32, _values: *const *const u8) -> i32 {
    match run() {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(Output, "custom_runtime: {error}");
            1
        }
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Output, "{info}");
    exit(101)
}

/// The loop.
fn run() -> Result<(), Error> {
    let geometry = Geometry::plain(RING as u64, MAX_MESSAGE).map_err(Error::Geometry)?;
    let rule = PushRule { every: EVERY, deadline_ns: DEADLINE_NS };
    let (mut sender, mut receiver) = (Sender::new(geometry, rule), Receiver::new(geometry, rule)?);
    let (mut wire, mut passes) = (Wire::default(), 0);
    while !(sender.has_sent(MESSAGES) && sender.is_acked(MESSAGES)) {
        let now_ns = passes * PASS_NS;
        if BUSY.contains(&(passes % PERIOD)) {
            sender.send(passes % 4, MESSAGES)?;
        }
        sender.push(now_ns, &mut wire, &mut receiver.memory);
        receiver.receive()?;
        if passes % FREES_EVERY == 0 {
            receiver.application(passes / FREES_EVERY)?;
        }
        receiver.push(now_ns, &mut wire, &mut sender.memory);
        sender.look()?;
        passes += 1;
        if passes > 100 * MESSAGES {
            return Err(Error::Stalled);
        }
    }
    report(passes, &sender, &receiver, &wire).map_err(|_| Error::Output)
}

fn report(passes: u64, sender: &Sender, receiver: &Receiver, wire: &Wire) -> fmt::Result {
    let bytes = sender.tail();
    writeln!(Output, "{} messages, all as they were sent, in {passes} passes", receiver.freed())?;
    writeln!(Output, "ring: {bytes} bytes, {} laps of {RING}", bytes / RING as u64)?;
    let out_of_order = receiver.freed_out_of_order();
    writeln!(Output, "free list: {out_of_order} messages freed before an older one")?;
    writeln!(Output, "writes: {wire}")?;
    writeln!(Output, "pushes of the tail: {}", sender.causes())?;
    writeln!(Output, "pushes of the counters: {}", receiver.causes())
}

/// Counts of the pushes that each cause made due.
#[derive(Clone, Copy, Default)]
struct Causes {
    urged: u64,
    crossed: u64,
    forced: u64,
}

impl Causes {
    /// Asks the machine whether a push is due, and counts the cause.
    fn ask<S>(&mut self, inhibitor: &mut PushInhibitor<S>, now_ns: u64) -> bool {
        match inhibitor.due(now_ns) {
            None => return false,
            Some(PushCause::Urged) => self.urged += 1,
            Some(PushCause::Crossed) => self.crossed += 1,
            Some(PushCause::Forced) => self.forced += 1,
        }
        true
    }
}

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { urged, crossed, forced } = self;
        write!(f, "{crossed} at a multiple of {EVERY}, {forced} at the deadline, {urged} urged")
    }
}

/// Errors that end the program: each is a bug in it, since the wire loses nothing and both nodes
/// are its own.
#[derive(Clone, Copy, Debug)]
enum Error {
    Geometry(GeometryError),
    FreeList,
    Reserve,
    Commit,
    Head,
    Tail,
    Record,
    Lend,
    Free,
    Payload { message: u64 },
    Stalled,
    Output,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Geometry(error) => error.fmt(f),
            Self::Payload { message } => write!(f, "message {message} is not as it was sent"),
            Self::Stalled => f.write_str("messages do not arrive"),
            machine => write!(f, "a machine refused a step: {machine:?}"),
        }
    }
}
