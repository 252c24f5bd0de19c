//! `rdma-conn pipe`: a stream of bytes from one process to another, as netcat does it.
//!
//! ```text
//!  --connect < in                                 --listen > out
//!    standard input ── pieces ── connection ──> standard output
//!    goodbye, bytes and checksum ── note ──────> compares with what it has written
//!                       <────── note ─────────── whether they are equal
//! ```
//!
//! An end succeeds only when all was written, and is known to be equal: the connecting one
//! is told so, by the listening one. A stream that ends otherwise (a signal,
//! an end that vanishes, a reader that leaves) is a failure at both.

mod ending;
mod receive;
mod report;
mod send;

use std::time::Instant;

use anyhow::anyhow;
use rdma_conn::device::Device;

use crate::args::{Common, Pipe};
use crate::bench::bytes;
use crate::outcome::{Failure, Outcome, usage};
use crate::protocol::{Kind, Purpose, With, Work};
use crate::session;
use ending::Ending;

/// What everybody says of a stream that has ended early.
const A_PART: &str = "what has arrived is a part only";

pub(crate) fn run(common: &Common, options: &Pipe) -> Outcome {
    let protocol = options.protocol();
    protocol.check_flags(&options.connection.given())?;
    if options.ends.listen.is_none() && options.ends.connect.is_none() {
        return Err(usage("give one end --listen ADDRESS and the other --connect ADDRESS"));
    }
    let device = session::open_device(common, &options.ends)?;
    let ending = Ending::watch()?;
    let task = Task { common, options, device: &device, ending: &ending };
    let outcome = protocol.with(task);
    // Whoever is interrupted from here on has its outcome.
    ending.claim();
    outcome
}

/// What is to be done, with whichever connection.
#[derive(Clone, Copy)]
struct Task<'a> {
    common: &'a Common,
    options: &'a Pipe,
    device: &'a Device,
    ending: &'a Ending,
}

impl With for Task<'_> {
    type Out = Outcome;

    fn with<K: Kind>(self) -> Outcome {
        let options = self.options;
        let config = K::config(self.common, &options.connection, Purpose::Stream, options.size);
        K::check(&options.connection, &config, options.size)?;
        match (options.ends.listen, options.ends.connect) {
            (Some(address), _) => receive::run::<K>(self, address),
            (None, Some(address)) => send::run::<K>(self, &config, address),
            (None, None) => Ok(()), // refused before
        }
    }
}

/// A failure before the end, after so many bytes.
fn early(failure: Failure, passed: u64) -> Failure {
    anyhow!("{failure:#} (after {}): {A_PART}", bytes(passed))
}

/// What one end has seen go by.
struct Passed {
    bytes: u64,
    messages: u64,
    hasher: crc32fast::Hasher,
    start: Instant,
}

impl Passed {
    fn new() -> Passed {
        let hasher = crc32fast::Hasher::new();
        Passed { bytes: 0, messages: 0, hasher, start: Instant::now() }
    }

    /// One more piece; a first one starts the clock.
    fn add(&mut self, piece: &[u8]) {
        if self.messages == 0 {
            self.start = Instant::now();
        }
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
        self.messages += 1;
    }

    fn checksum(&self) -> u32 {
        self.hasher.clone().finalize()
    }
}

/// What both ends have done together.
#[derive(Clone, Copy)]
struct Whole {
    work: Work,
    checksum: u32,
}
