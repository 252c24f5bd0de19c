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
    pub(crate) fn of<E>(
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
mod tests {
    use super::*;

    fn of(pieces: &[&[u8]], len: usize) -> Fingerprint {
        let all = pieces.concat();
        let read = |at: usize, to: &mut [u8]| {
            to.copy_from_slice(&all[at..at + to.len()]);
            Ok::<(), ()>(())
        };
        Fingerprint::of(len, read).unwrap()
    }

    #[test]
    fn bytes_that_cannot_be_read_are_named() {
        let refuse = |at: usize, _: &mut [u8]| if at < CHUNK { Ok(()) } else { Err(7) };
        assert!(Fingerprint::of(CHUNK, refuse).is_ok());
        let refused = Fingerprint::of(CHUNK + 5, refuse);
        assert_eq!(refused, Err((CHUNK..CHUNK + 5, 7)));
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
