//! Task of one end, its part of the stream, and the result of both ends.

use std::time::Instant;

use rdma_conn::device::Device;

use super::ending::Ending;
use crate::cli::{Common, Pipe};
use crate::measure::Work;

/// Transfer to make over any kind of connection.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) common: &'a Common,
    pub(super) options: &'a Pipe,
    pub(super) device: &'a Device,
    pub(super) ending: &'a Ending,
}

/// Part of the stream that one end sent or received.
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

/// Result of both ends together.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    pub(super) work: Work,
    pub(super) checksum: u32,
}
