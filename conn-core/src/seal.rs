//! Words that are looked at while the other end, or its device, is writing them.
//!
//! Network cards write eight aligned bytes in one piece, and the protocols of counters in
//! the peer's memory rest on that. The verbs do not promise it, and not every device does
//! it: where the kernel's copy is a `rep movsb`, soft-RoCE writes and reads byte by byte,
//! and a look in between finds a counter that nobody ever wrote. So behind one word, or a
//! few that belong together, lies their *seal*, a hash of them. Words that do not fit their
//! seal are just being written: there is nothing new yet.
//!
//! A mixture of the bytes of two writings, in whatever order they were copied, passes with
//! a chance of about 2^-64; of a single word the seal is a bijection, so that a whole word
//! never passes with the seal of another. Zeros fit: memory that nobody has written is
//! sealed.
//!
//! It is no protection from a peer that lies, only from a half-told truth.
//!
//! ```
//! use conn_core::seal::{opened, seal_of};
//!
//! let (old, new) = (0x01f8_u64, 0x0250_u64);
//! assert_eq!(opened([new], seal_of(&[new])), Some([new]));
//! assert_eq!(opened([0x0150], seal_of(&[old])), None); // half of each
//! assert_eq!(opened([0, 0], 0), Some([0, 0]));
//! ```

/// Bytes of a sealed word: the word, and behind it its seal.
pub const SEALED_BYTES: u64 = 16;

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The seal of these words.
#[inline]
pub const fn seal_of(words: &[u64]) -> u64 {
    let (mut hash, mut at) = (0_u64, 0);
    while at < words.len() {
        hash = seal_on(hash, words[at]);
        at += 1;
    }
    hash
}

/// The seal of the words that `seal` is of, and of one more.
#[inline]
pub const fn seal_on(seal: u64, word: u64) -> u64 {
    let hash = (seal ^ word).wrapping_mul(ODD);
    hash ^ hash >> 32
}

/// The words, if this is their seal.
#[inline]
pub fn opened<const N: usize>(words: [u64; N], seal: u64) -> Option<[u64; N]> {
    (seal_of(&words) == seal).then_some(words)
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
        /// words, the new ones, or not sealed.
        #[test]
        fn a_mixture_of_two_writings_is_not_sealed(
            old in any::<[u64; 2]>(),
            by in any::<[u16; 2]>(),
            mask in 0_u32..1 << 24,
        ) {
            let new = [old[0].wrapping_add(by[0].into()), old[1].wrapping_add(by[1].into())];
            let sealed = |[a, b]: [u64; 2]| [a, b, seal_of(&[a, b])];
            let [a, b, seal] = mixed(sealed(old), sealed(new), mask);
            let found = opened([a, b], seal);
            prop_assert!(found.is_none_or(|words| words == old || words == new));
        }
    }

    /// As a copy of byte by byte shows them, upwards or downwards: every pair of counters.
    #[test]
    fn what_is_copied_byte_by_byte_is_seen_before_or_after() {
        for old in (0..0x600_u64).step_by(8) {
            for new in (old + 8..old + 0x300).step_by(8) {
                let sealed = |word| [word, seal_of(&[word]), 0];
                for upto in 0..=16 {
                    for mask in [(1 << upto) - 1, !((1 << upto) - 1) & 0xffff] {
                        let [word, seal, _] = mixed(sealed(old), sealed(new), mask);
                        let found = opened([word], seal);
                        assert!(found.is_none_or(|[word]| word == old || word == new));
                    }
                }
            }
        }
    }

    #[test]
    fn the_order_of_words_counts() {
        assert_ne!(seal_of(&[1, 2]), seal_of(&[2, 1]));
        assert_ne!(seal_of(&[1, 0]), seal_of(&[0, 1]));
        assert_eq!(seal_of(&[0; 9]), 0);
    }
}
