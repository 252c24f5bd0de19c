//! Detection of torn reads: words that are read while the peer or its device writes them.
//!
//! Network cards write eight aligned bytes in one piece, and protocols with counters in the peer's
//! memory rely on it. The verbs do not guarantee it, and not every device does it: where the kernel
//! copies with `rep movsb`, soft-RoCE writes and reads byte by byte, and a load in between returns
//! a counter that was never written. So a word, or a few words that belong together, are followed
//! by their *checksum*, a hash of them. Words that do not fit their checksum are still being
//! written: the last known values stay.
//!
//! A mixture of the bytes of two writes, copied in any order, passes with a probability of about
//! 2^-64. For a single word the checksum is a bijection, so a whole word never passes with the
//! checksum of another. Zeroed memory has valid checksums.
//!
//! A checksum protects from torn reads only, not from a hostile peer.
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
mod tests;
