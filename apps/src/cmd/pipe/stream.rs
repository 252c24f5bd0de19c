//! What is asked of one end, what it has seen of the stream, and what both have done.

use std::time::Instant;

use rdma_conn::device::Device;

use super::ending::Ending;
use crate::cli::{Common, Pipe};
use crate::measure::Work;

/// What is to be done, with whichever connection.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) common: &'a Common,
    pub(super) options: &'a Pipe,
    pub(super) device: &'a Device,
    pub(super) ending: &'a Ending,
}

/// What one end has seen go by.
pub(super) struct Passed {
    pub(super) bytes: u64,
    pub(super) messages: u64,
    pub(super) hasher: crc32fast::Hasher,
    pub(super) start: Instant,
}

impl Passed {
    pub(super) fn new() -> Passed {
        let hasher = crc32fast::Hasher::new();
        Passed { bytes: 0, messages: 0, hasher, start: host::time::now() }
    }

    /// One more piece; a first one starts the clock.
    pub(super) fn add(&mut self, piece: &[u8]) {
        if self.messages == 0 {
            self.start = host::time::now();
        }
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
        self.messages += 1;
    }

    pub(super) fn checksum(&self) -> u32 {
        self.hasher.clone().finalize()
    }
}

/// What both ends have done together.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    pub(super) work: Work,
    pub(super) checksum: u32,
}
