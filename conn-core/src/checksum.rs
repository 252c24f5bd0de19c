//! Words that are looked at while the other end, or its device, is writing them.
//!
//! Network cards write eight aligned bytes in one piece, and the protocols of counters in
//! the peer's memory rest on that. The verbs do not promise it, and not every device does
//! it: where the kernel's copy is a `rep movsb`, soft-RoCE writes and reads byte by byte,
//! and a look in between finds a counter that was never written. So behind one word, or a
//! few that belong together, lies their *checksum*, a hash of them. Words that do not fit their
//! checksum are just being written: there is nothing new yet.
//!
//! A mixture of the bytes of two writings, in whatever order they were copied, passes with
//! a chance of about 2^-64; of a single word the checksum is a bijection, so that a whole word
//! never passes with the checksum of another. Zeros fit: zeroed memory has valid checksums.
//!
//! A checksum protects from torn reads only, not from a peer that lies.
//!
//! ```
//! use conn_core::checksum::{verified, checksum_of};
//!
//! let (old, new) = (0x01f8_u64, 0x0250_u64);
//! assert_eq!(verified([new], checksum_of(&[new])), Some([new]));
//! assert_eq!(verified([0x0150], checksum_of(&[old])), None); // half of each
//! assert_eq!(verified([0, 0], 0), Some([0, 0]));
//! ```

/// Bytes of a word with its checksum: the word, and behind it the checksum.
pub const CHECKED_BYTES: u64 = 16;

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The checksum of these words.
#[inline]
pub const fn checksum_of(words: &[u64]) -> u64 {
    let (mut hash, mut at) = (0_u64, 0);
    while at < words.len() {
        hash = checksum_extend(hash, words[at]);
        at += 1;
    }
    hash
}

/// The checksum of the words that `checksum` is of, and of one more.
#[inline]
pub const fn checksum_extend(checksum: u64, word: u64) -> u64 {
    let hash = (checksum ^ word).wrapping_mul(ODD);
    hash ^ hash >> 32
}

/// The words, if this is their checksum.
#[inline]
pub fn verified<const N: usize>(words: [u64; N], checksum: u64) -> Option<[u64; N]> {
    (checksum_of(&words) == checksum).then_some(words)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes of `new` where the mask says so, else of `old`.
    fn mixed(old: [u64; 3], new: [u64; 3], mask: u32) -> [u64; 3] {
        let mut words = [0; 3];
        for byte in 0..24 {
            let from = if mask >> byte & 1 == 1 { new } else { old };
            let one = from[byte / 8].to_le_bytes()[byte % 8];
            words[byte / 8] |= u64::from(one) << (8 * (byte % 8));
        }
        words
    }

    proptest! {
        /// Counters that rise a little: whatever of the new bytes is there, it is the old
        /// words, the new ones, or fails the checksum.
        #[test]
        fn a_mixture_of_two_writings_has_no_valid_checksum(
            old in any::<[u64; 2]>(),
            by in any::<[u16; 2]>(),
            mask in 0_u32..1 << 24,
        ) {
            let new = [old[0].wrapping_add(by[0].into()), old[1].wrapping_add(by[1].into())];
            let checksummed = |[a, b]: [u64; 2]| [a, b, checksum_of(&[a, b])];
            let [a, b, checksum] = mixed(checksummed(old), checksummed(new), mask);
            let found = verified([a, b], checksum);
            prop_assert!(found.is_none_or(|words| words == old || words == new));
        }
    }

    /// As a copy of byte by byte shows them, upwards or downwards: every pair of counters.
    #[test]
    fn what_is_copied_byte_by_byte_is_seen_before_or_after() {
        for old in (0..0x600_u64).step_by(8) {
            for new in (old + 8..old + 0x300).step_by(8) {
                let checksummed = |word| [word, checksum_of(&[word]), 0];
                for upto in 0..=16 {
                    for mask in [(1 << upto) - 1, !((1 << upto) - 1) & 0xffff] {
                        let [word, checksum, _] = mixed(checksummed(old), checksummed(new), mask);
                        let found = verified([word], checksum);
                        assert!(found.is_none_or(|[word]| word == old || word == new));
                    }
                }
            }
        }
    }

    #[test]
    fn the_order_of_words_counts() {
        assert_ne!(checksum_of(&[1, 2]), checksum_of(&[2, 1]));
        assert_ne!(checksum_of(&[1, 0]), checksum_of(&[0, 1]));
        assert_eq!(checksum_of(&[0; 9]), 0);
    }
}
