//! Keys of memory: which slot of a table one names, and that no other one can be inferred.
//!
//! ```text
//!   31                             8 7      0
//!   | permuted (index, generation)   |  tag  |
//! ```
//!
//! The upper 24 bits are those of the index of a slot (18 bits) and of its generation (6 bits),
//! under a secret permutation: keys of neighbours, and the next key of a slot, have nothing in
//! common with one that a peer was told. The tag of a window of type 2 is the consumer's; of all
//! else it is drawn along, so that a guess that is blind hits one of `n` regions with a
//! probability of `n / 2^32`, and takes its queue pair to the error state if it does not.
//!
//! **Old keys.** A slot that is used again has another generation, and a plain region's tag
//! differs in 256 rounds of generations: its key is reused when its slot has been used another
//! 2^14 times, that of a window (whose tag the consumer chooses) after 64 times. A freed slot
//! waits behind 1,024 others as long as the table is not full, so that 2^24 and 2^16 others are
//! made before.
//!
//! **Strength.** The permutation is a balanced Feistel network of six rounds over two halves of
//! 12 bits; the round function multiplies the half, with a secret added, by another secret, and
//! folds the product. Secrets are 768 bits of the process, drawn from
//! the system's random source by a hash; the tags have a hash and a table of their own. (With four
//! rounds, the differences of neighbours still repeat more often than by chance.) It hides what a
//! peer must not infer from the few keys that it is told; it is no cipher that withstands a peer
//! that collects thousands of keys of one process. That one could as well read the directory, in
//! which all processes of the user find keys and secrets: what is guarded against is a peer that
//! goes through the device. Keys used to show the index, and hid 14 bits.
//!
//! **Cost.** The inverse takes six multiplications one after the other, and some 45 instructions.
//! So it is taken once: a table has the indices of the latest keys ([`KeyCache`]), where a look
//! finds the key and its index in one word, which is true for ever, as the permutation does not
//! change. Only keys that others have displaced there are inverted.

use core::sync::atomic::{AtomicU64, Ordering};
use host::sync::OnceLock;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use crate::limits;

/// Bits of a key that a consumer may choose, where it may choose any.
pub(crate) const TAG_BITS: u32 = 8;
/// Those bits.
pub(crate) const TAG: u32 = (1 << TAG_BITS) - 1;
const HALF_BITS: u32 = 12;
const HALF: u32 = (1 << HALF_BITS) - 1;
const GENERATION_BITS: u32 = 2 * HALF_BITS - limits::MAX_KEYS.trailing_zeros();
const GENERATION: u32 = (1 << GENERATION_BITS) - 1;
const ROUNDS: usize = 6;

const _: () = assert!(limits::MAX_KEYS.is_power_of_two() && GENERATION_BITS == 6);

/// Two secrets for each round.
pub(crate) type Secrets = [u64; 2 * ROUNDS];

/// Makes keys of slots, and finds the slots of keys.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Keys(Secrets);

impl Keys {
    /// Those of this process.
    pub(crate) fn of_process() -> Keys {
        static KEYS: OnceLock<Keys> = OnceLock::new();
        *KEYS.get_or_init(|| Keys(host::random::lasting()))
    }

    /// The key of a slot in a generation; 0 is none.
    pub(crate) fn key(&self, index: u32, generation: u32) -> u32 {
        let plain = index << GENERATION_BITS | generation & GENERATION;
        self.permute(plain) << TAG_BITS | Tags::of_process().tag(plain, generation)
    }

    /// The index of the slot that a key is of, if it is valid; always one of the table.
    pub(crate) fn index(&self, key: u32) -> u32 {
        invert(key >> TAG_BITS, |i| self.0[i]) >> GENERATION_BITS
    }

    fn permute(&self, plain: u32) -> u32 {
        let (mut left, mut right) = (plain >> HALF_BITS, plain & HALF);
        for [added, factor] in self.0.as_chunks::<2>().0 {
            (left, right) = (right, left ^ fold(right, *added, *factor));
        }
        left << HALF_BITS | right
    }
}

/// Tags, which are never inverted.
struct Tags {
    secrets: [u64; 2],
    /// A permutation of all tags.
    table: [u8; 1 << TAG_BITS],
}

impl Tags {
    /// Those of this process.
    fn of_process() -> &'static Tags {
        static TAGS: OnceLock<Tags> = OnceLock::new();
        TAGS.get_or_init(|| {
            let secrets = host::random::lasting();
            let mut table = core::array::from_fn(|i| i as u8);
            table.sort_by_cached_key(|tag| hash(secrets, u32::from(*tag)));
            Tags { secrets, table }
        })
    }

    /// The tag of a slot in a generation: another one in each round of generations.
    fn tag(&self, plain: u32, generation: u32) -> u32 {
        let round = generation >> GENERATION_BITS;
        let [first, step, mask, ..] = hash(self.secrets, plain).to_ne_bytes();
        // Odd: it visits each entry of the table before it repeats one.
        let at = first.wrapping_add((round as u8).wrapping_mul(step | 1));
        (self.table[at as usize] ^ mask).into()
    }
}

/// A hash (SipHash) of a number and the secrets before it.
fn hash(secrets: [u64; 2], number: u32) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((secrets, number))
}

/// Undoes the permutation with these secrets.
fn invert(permuted: u32, secret: impl Fn(usize) -> u64) -> u32 {
    let (mut left, mut right) = (permuted >> HALF_BITS, permuted & HALF);
    for round in (0..ROUNDS).rev() {
        let folded = fold(left, secret(2 * round), secret(2 * round + 1));
        (left, right) = (right ^ folded, left);
    }
    left << HALF_BITS | right
}

/// Half of the bits, which depend on those of the other half and on two secrets.
#[inline(always)]
fn fold(half: u32, added: u64, factor: u64) -> u32 {
    /// Spreads a half over all bits, so that both words of the product vary with it: 2^64 by the
    /// golden ratio, which is odd.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let spread = u64::from(half).wrapping_mul(SPREAD).wrapping_add(added);
    let product = u128::from(spread) * u128::from(factor);
    let folded = product as u64 ^ (product >> 64) as u64;
    (folded >> (64 - HALF_BITS)) as u32
}

/// The indices of the latest keys. Lookups write nothing, so that the lines stay in all caches.
pub(crate) struct KeyCache {
    keys: Keys,
    /// A key, and below it its index.
    latest: [AtomicU64; ENTRIES],
}

const ENTRIES: usize = 2_048;

impl Default for KeyCache {
    fn default() -> KeyCache {
        KeyCache { keys: Keys::of_process(), latest: [const { AtomicU64::new(0) }; ENTRIES] }
    }
}

impl KeyCache {
    #[inline(always)]
    fn entry(&self, key: u32) -> &AtomicU64 {
        &self.latest[(key >> TAG_BITS) as usize % ENTRIES]
    }

    /// [`Keys::key`], which is going to be looked up.
    pub(crate) fn key(&self, index: u32, generation: u32) -> u32 {
        let key = self.keys.key(index, generation);
        self.note(key, index);
        key
    }

    /// A key of this index is going to be looked up: one with another tag.
    pub(crate) fn note(&self, key: u32, index: u32) {
        // Relaxed: one word, which is true whenever it is read.
        self.entry(key).store(u64::from(key) << 32 | u64::from(index), Ordering::Relaxed);
    }

    /// [`Keys::index`], if the key is among the latest ones.
    #[inline(always)]
    pub(crate) fn known(&self, key: u32) -> Option<u32> {
        let known = self.entry(key).load(Ordering::Relaxed);
        ((known >> 32) as u32 == key).then_some(known as u32)
    }

    /// [`Keys::index`].
    #[inline(always)]
    pub(crate) fn index(&self, key: u32) -> u32 {
        self.known(key).unwrap_or_else(|| self.invert(key))
    }

    #[inline(never)]
    fn invert(&self, key: u32) -> u32 {
        self.keys.index(key)
    }
}

/// The secrets of a process, where others can read them; any values are some.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct PublishedKeys([AtomicU64; 2 * ROUNDS]);

impl PublishedKeys {
    /// Publishes them, before the first key.
    pub(crate) fn publish(&self, keys: &Keys) {
        for (to, from) in self.0.iter().zip(keys.0) {
            // Relaxed: others look at them after what says that they are there.
            to.store(from, Ordering::Relaxed);
        }
    }

    /// [`Keys::index`].
    pub(crate) fn index(&self, key: u32) -> u32 {
        // Relaxed: written once, before the process could be met.
        invert(key >> TAG_BITS, |i| self.0[i].load(Ordering::Relaxed)) >> GENERATION_BITS
    }
}

#[cfg(test)]
mod tests;
