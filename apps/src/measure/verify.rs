//! Payloads that can be checked: a sequence number, bytes that depend on it, and a
//! checksum over both.
//!
//! ```text
//!  from 12 bytes up:   | sequence u64 | body … | CRC-32 u32 |
//!  shorter:            | that many bytes of a hash of the sequence number |
//! ```

use anyhow::{Result, bail};

/// Bytes that sequence number and checksum take.
pub(crate) const FRAME: usize = 12;
/// Bodies are windows into a block of noise, at an offset that the sequence number
/// chooses, so that a message of the wrong number has the wrong bytes.
const NOISE: usize = 4096;
/// Offsets of the window.
const STEPS: u64 = 61;

/// Writes and checks the payloads of one sender.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    bytes: usize,
    stream: u64,
    /// Made when it is needed: a receiver needs none, and must not allocate by the length that
    /// its peer states.
    noise: Vec<u8>,
    next: u64,
}

impl Payload {
    /// For messages of up to `bytes`; sender and receiver use the same `stream`.
    pub(crate) fn new(bytes: usize, stream: u64) -> Payload {
        Payload { bytes, stream, noise: Vec::new(), next: 0 }
    }

    /// Makes what messages are filled from now, and not with the first one.
    pub(crate) fn prepare(&mut self) {
        if self.noise.is_empty() {
            let words = (NOISE.max(self.bytes) + STEPS as usize).div_ceil(8) as u64;
            let word = |i| mix(self.stream << 40 | i).to_le_bytes();
            self.noise = (0..words).flat_map(word).collect();
        }
    }

    /// Makes message `number` the next one.
    pub(crate) fn seek(&mut self, number: u64) {
        self.next = number;
    }

    /// Fills the next message.
    #[inline]
    pub(crate) fn fill(&mut self, message: &mut [u8]) {
        let sequence = self.next;
        self.next += 1;
        if message.len() < FRAME {
            short(message, sequence);
            return;
        }
        self.prepare();
        let (covered, checksum) = message.split_at_mut(message.len() - 4);
        covered[..8].copy_from_slice(&sequence.to_le_bytes());
        let body = &mut covered[8..];
        body.copy_from_slice(&self.noise[(sequence % STEPS) as usize..][..body.len()]);
        checksum.copy_from_slice(&crc32fast::hash(covered).to_le_bytes());
    }

    /// Returns the one of `numbers` that this message has, if it has one; the next message is then
    /// expected to be the one behind it.
    pub(crate) fn identify(
        &mut self,
        message: &[u8],
        numbers: impl IntoIterator<Item = u64>,
    ) -> Option<u64> {
        let said = (message.len() >= FRAME).then(|| message.first_chunk()).flatten();
        let said = said.map(|sequence| u64::from_le_bytes(*sequence));
        numbers.into_iter().find(|number| {
            self.seek(*number);
            said.is_none_or(|said| said == *number) && self.check(message).is_ok()
        })
    }

    /// Checks the next message: it must be the one that [`fill`](Payload::fill) wrote.
    #[inline]
    pub(crate) fn check(&mut self, message: &[u8]) -> Result<()> {
        let expected = self.next;
        self.next += 1;
        if message.len() < FRAME {
            let mut hash = [0; FRAME];
            short(&mut hash[..message.len()], expected);
            if message != &hash[..message.len()] {
                bail!("message {expected} has other bytes than were sent");
            }
            return Ok(());
        }
        let (covered, checksum) = message.split_at(message.len() - 4);
        if crc32fast::hash(covered).to_le_bytes() != checksum {
            bail!("message {expected} has a wrong checksum");
        }
        if covered[..8] != expected.to_le_bytes() {
            let found = covered[..8].iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
            bail!("message {found} arrived in place of {expected}");
        }
        Ok(())
    }
}

/// Fills a message that is too short for a frame.
fn short(message: &mut [u8], sequence: u64) {
    let (low, high) = (mix(sequence ^ 0x5eed), mix(!sequence));
    let hash = low.to_le_bytes().into_iter().chain(high.to_le_bytes());
    message.iter_mut().zip(hash).for_each(|(byte, hash)| *byte = hash);
}

/// SplitMix64's finaliser: every bit of the input reaches every bit of the result.
pub(crate) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests;
