//! Fingerprints of buffers: whether bytes have changed, and about where.

use core::ops::Range;

use crate::copy;

/// Parts of a buffer that are told apart.
const BLOCKS: usize = 16;
/// The fewest bytes of a part.
const LEAST: usize = 64;
/// Bytes that are copied at a time, to be hashed.
const CHUNK: usize = 4096;

/// What a buffer held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    len: usize,
    /// Bytes of each part but the last.
    block: usize,
    hashes: [u64; BLOCKS],
}

impl Fingerprint {
    /// Of the first `len` bytes of these pieces, which have as many.
    ///
    /// # Safety
    /// The pieces can be read. (The program may write to them meanwhile: they are copied as the
    /// data of requests are.)
    pub(crate) unsafe fn of(
        pieces: impl Iterator<Item = (*const u8, usize)>,
        len: usize,
    ) -> Fingerprint {
        let block = len.div_ceil(BLOCKS).next_multiple_of(LEAST).max(LEAST);
        let (mut hashes, mut at) = ([0; BLOCKS], 0);
        let mut chunk = [0_u8; CHUNK];
        for (mut from, size) in pieces {
            let mut left = size.min(len - at);
            while left > 0 {
                let n = left.min(CHUNK).min(block - at % block);
                // SAFETY: the caller's promise; the chunk is ours, and has room.
                unsafe { copy::in_order(chunk.as_mut_ptr(), from, n) };
                hashes[at / block] = mix(hashes[at / block], &chunk[..n]);
                (from, left, at) = (from.wrapping_add(n), left - n, at + n);
            }
        }
        Fingerprint { len, block, hashes }
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
mod tests {
    use super::*;

    fn of(pieces: &[&[u8]], len: usize) -> Fingerprint {
        let pieces = pieces.iter().map(|piece| (piece.as_ptr(), piece.len()));
        // SAFETY: the pieces are borrowed.
        unsafe { Fingerprint::of(pieces, len) }
    }

    #[test]
    fn a_change_is_found_about_where_it_is() {
        for len in [1, 7, 8, 63, 64, 65, 1000, 1024, 1025, 5000, 70_000] {
            let mut bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let before = of(&[&bytes], len);
            for at in [0, len / 3, len / 2, len - 1] {
                bytes[at] ^= 0x80;
                let range = before.changed(&of(&[&bytes], len)).unwrap();
                assert!(range.contains(&at) && range.end <= len, "{at} of {len}: {range:?}");
                assert!(range.len() <= LEAST.max(len.div_ceil(BLOCKS) + LEAST));
                bytes[at] ^= 0x80;
            }
            assert_eq!(before.changed(&of(&[&bytes], len)), None);
        }
    }

    #[test]
    fn only_the_bytes_of_the_message_count() {
        let (a, b) = ([1; 100], [2; 5000]);
        let before = of(&[&a, &b], 3000);
        let mut other = b;
        other[2900] = 3;
        assert_eq!(before.changed(&of(&[&a, &other], 3000)), None);
        other[2899] = 3;
        assert!(before.changed(&of(&[&a, &other], 3000)).unwrap().contains(&2999));
        assert_eq!(of(&[], 0).changed(&of(&[&a], 0)), None);
    }

    #[test]
    fn bytes_that_change_places_differ() {
        assert!(of(&[b"ab------cd------"], 16).changed(&of(&[b"cd------ab------"], 16)).is_some());
        assert!(of(&[b"a\0"], 2).changed(&of(&[b"\0a"], 2)).is_some());
    }
}
