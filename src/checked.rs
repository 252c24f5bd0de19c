//! Words with their checksum ([`conn_core::checksum`]) in registered memory, all little-endian.

use conn_core::checksum::{checksum_of, verified};
use verbs_safe::{RegionError, SharedRegion};

/// Bytes of `N` words and their checksum.
pub(crate) const fn checked_bytes(words: usize) -> usize {
    8 * (words + 1)
}

/// The words at `at`, if they are whole: all that the peer wrote before them is there. `None`
/// while they are being written.
#[inline]
pub(crate) fn observe<const N: usize>(region: &SharedRegion, at: usize) -> Option<[u64; N]> {
    let load = |nth| region.observe_arrival(at + 8 * nth).map(u64::from_le);
    let words = std::array::from_fn(|nth| load(nth).unwrap_or_default());
    verified(words, load(N).ok()?)
}

/// Looks until something is there, for as long as it takes to write a few words: where no
/// later look follows, words that are still being written would be lost.
#[cold]
pub(crate) fn last_look<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    (0..LAST_LOOKS).find_map(|_| {
        let seen = look();
        if seen.is_none() {
            host::thread::spin_loop();
        }
        seen
    })
}

/// Looks of a last one.
const LAST_LOOKS: u32 = 8;

/// The words that a READ has brought.
pub(crate) fn get<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (words, _) = bytes.get(..checked_bytes(N))?.as_chunks::<8>();
    let (checksum, words) = words.split_last()?;
    verified(
        std::array::from_fn(|nth| u64::from_le_bytes(words[nth])),
        u64::from_le_bytes(*checksum),
    )
}

/// Stores the word at `at` for a peer that reads it: all that was stored before it is there.
///
/// # Errors
/// [`RegionError`]: out of bounds, or not aligned to 8.
#[inline]
pub(crate) fn publish(region: &SharedRegion, at: usize, word: u64) -> Result<(), RegionError> {
    region.publish_tail(at, word.to_le())?;
    region.publish_tail(at + 8, checksum_of(&[word]).to_le())
}

/// Writes the words and their checksum to `out`, in the format for a peer; `None` if `out` is too
/// short.
#[inline]
pub(crate) fn put(words: &[u64], out: &mut [u8]) -> Option<()> {
    let out = out.get_mut(..checked_bytes(words.len()))?.as_chunks_mut::<8>().0;
    let (checksum, out) = out.split_last_mut()?;
    *checksum = checksum_of(words).to_le_bytes();
    for (to, word) in out.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    Some(())
}

#[cfg(test)]
mod tests;
