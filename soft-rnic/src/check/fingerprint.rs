//! Fingerprints of buffers: whether bytes have changed, and about where.

use core::ops::Range;

/// Parts of a buffer that are told apart.
const BLOCKS: usize = 16;
/// The fewest bytes of a part.
const LEAST: usize = 64;
/// Bytes that are copied at a time, to be hashed.
const CHUNK: usize = 4096;

/// Hashes of a buffer's contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    len: usize,
    /// Bytes of each part but the last.
    block: usize,
    hashes: [u64; BLOCKS],
}

impl Fingerprint {
    /// Takes one of `len` bytes; `read` copies a part of them, from this offset on.
    ///
    /// # Errors
    /// The range that `read` has refused, with its error.
    pub(crate) fn compute<E>(
        len: usize,
        mut read: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<Fingerprint, (Range<usize>, E)> {
        let block = len.div_ceil(BLOCKS).next_multiple_of(LEAST).max(LEAST);
        let (mut hashes, mut chunk, mut at) = ([0; BLOCKS], [0_u8; CHUNK], 0);
        while at < len {
            let n = CHUNK.min(len - at);
            read(at, &mut chunk[..n]).map_err(|error| (at..at + n, error))?;
            let mut left = &chunk[..n];
            while !left.is_empty() {
                let (now, later) = left.split_at(left.len().min(block - at % block));
                hashes[at / block] = mix(hashes[at / block], now);
                (left, at) = (later, at + now.len());
            }
        }
        Ok(Fingerprint { len, block, hashes })
    }

    /// Bytes that it is of.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes among which are those that differ, if any do.
    pub(crate) fn changed(&self, now: &Fingerprint) -> Option<Range<usize>> {
        let differs = |i: &usize| self.hashes[*i] != now.hashes[*i];
        let first = (0..BLOCKS).find(differs)?;
        let last = (0..BLOCKS).rfind(differs)?;
        Some(first * self.block..((last + 1) * self.block).min(self.len))
    }
}

/// A hash of bytes that are this process's own.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    mix(0, bytes)
}

/// Adds bytes to a hash. Each step maps hashes one to one, and so does each word: a difference in
/// one word is never lost.
fn mix(mut hash: u64, bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut add = |word: u64| {
        hash = (hash ^ word).wrapping_mul(ODD);
        hash ^= hash >> 32;
    };
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    add(u64::from_le_bytes(last));
    hash
}

#[cfg(test)]
mod tests;
