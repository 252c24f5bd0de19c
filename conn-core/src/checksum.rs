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
mod tests;
