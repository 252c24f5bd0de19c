//! The inline record: a short record that goes in one write with its tail.
//!
//! A record and its tail lie in different cache lines, so the receiver would wait for two lines one
//! after the other. Where the tail is written, a push of one short record first writes it whole to
//! the tail's line, and then to the ring. An inline record is the last one before its tail. The
//! ring already holds all records before it, and gets the record itself before any later tail.
//!
//! | byte | word |
//! |---|---|
//! | 0 | the [tail](AdvertisedCursor) with bit 1 set, which positions do not have |
//! | 8 | the [checksum](crate::checksum) of all the others |
//! | 16 | the record's header; its lower half is the payload's length |
//! | 24 | the payload, in whole words |
//!
//! The checksum fits when the whole line has been written, in any order. It does not cover words
//! behind the record, which an earlier line may have left. A tail without a record has a checksum
//! of its own.

use crate::checksum::{checksum_extend, checksum_of, verified};
use crate::ring::{AdvertisedCursor, HEADER_BYTES};

/// Bytes of the line: those before the head in a control block.
pub const LINE_BYTES: u64 = 64;
/// Longest inline record, in bytes: a payload of 40.
pub const MAX_RECORD: u64 = LINE_BYTES - RECORD_AT as u64;

/// Offset of the record in the line.
pub const RECORD_AT: usize = 16;
/// Longest payload of an inline record, in bytes.
pub const MAX_PAYLOAD: usize = (MAX_RECORD - HEADER_BYTES as u64) as usize;

const WORDS: usize = (LINE_BYTES as usize - RECORD_AT) / 8;
/// In the tail's word: an inline record follows.
const INLINE: u64 = 2;

/// An inline record, as a receiver has copied it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineRecord {
    words: [u64; WORDS],
    used: usize,
}

impl InlineRecord {
    /// The record of these words, the header first; `None` if they are no record that fits.
    #[inline]
    fn new(words: [u64; WORDS]) -> Option<Self> {
        let used = (u64::from(words[0] as u32) + u64::from(HEADER_BYTES)).div_ceil(8) as usize;
        (used <= WORDS).then_some(Self { words, used })
    }

    /// Its header.
    #[inline]
    pub fn header(&self) -> u64 {
        self.words[0]
    }

    /// Its bytes in the ring: at most [`MAX_RECORD`].
    #[inline]
    pub fn bytes(&self) -> u64 {
        8 * self.used as u64
    }

    /// Its words, as numbers: the header, and the payload.
    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.words[..self.used]
    }

    /// The words behind the header. Words beyond the record are left from earlier lines.
    #[inline]
    pub fn payload(&self) -> [u64; MAX_PAYLOAD / 8] {
        let [_, payload @ ..] = self.words;
        payload
    }

    #[inline]
    fn checksum(&self, tail: u64) -> u64 {
        self.words()
            .iter()
            .fold(checksum_of(&[tail]), |checksum, word| checksum_extend(checksum, *word))
    }
}

/// Writes a tail and the inline record of `words` to `out`; returns the number of bytes. `None` if
/// `out` is too short, or `words` are no record that fits.
///
/// ```
/// use conn_core::{buffered_write::inline_record, ring::AdvertisedCursor};
///
/// let tail = AdvertisedCursor { position: 24, is_last: false };
/// let (mut line, record) = ([0; 64], [9, 0x0706_0504_0302_0100, 0x08]); // of 9 bytes, at 0
/// assert_eq!(inline_record::put(tail, &record, &mut line), Some(16 + 24));
///
/// let words = std::array::from_fn(|nth| u64::from_le_bytes(line[8 * nth..][..8].try_into().unwrap()));
/// let (told, record) = inline_record::get(words).unwrap();
/// assert_eq!((told, record.unwrap().bytes()), (tail, 24));
/// ```
#[inline]
pub fn put(tail: AdvertisedCursor, words: &[u64], out: &mut [u8]) -> Option<usize> {
    let mut record = [0; WORDS];
    record.get_mut(..words.len())?.copy_from_slice(words);
    let record = InlineRecord::new(record).filter(|record| record.used == words.len())?;
    let word = tail.to_word() | INLINE;
    let (to, _) = out.get_mut(..RECORD_AT + 8 * record.used)?.as_chunks_mut::<8>();
    to[0] = word.to_le_bytes();
    to[1] = record.checksum(word).to_le_bytes();
    for (to, word) in to[2..].iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    Some(8 * to.len())
}

/// Fills in the line of a tail and of the record of this header and payload that ends there;
/// returns the number of bytes to write. The record lies at [`RECORD_AT`] in it, in the format of
/// the ring. `None` if it does not fit.
///
/// ```
/// use conn_core::{buffered_write::inline_record, ring::AdvertisedCursor};
///
/// let tail = AdvertisedCursor { position: 24, is_last: false };
/// let mut line = [0; 64];
/// let len = inline_record::put(tail, &[9, 0x0706_0504_0302_0100, 0x08], &mut line);
/// assert_eq!(inline_record::line(tail, 9, &[0, 1, 2, 3, 4, 5, 6, 7, 8]), len.map(|len| (line, len)));
/// ```
#[inline]
pub fn line(
    tail: AdvertisedCursor,
    header: u64,
    payload: &[u8],
) -> Option<([u8; LINE_BYTES as usize], usize)> {
    if payload.len() > MAX_PAYLOAD || payload.len() != header as u32 as usize {
        return None;
    }
    let mut line = [0; LINE_BYTES as usize];
    let (words, _) = line.as_chunks_mut::<8>();
    let [to_tail, to_checksum, to_header, record @ ..] = words else { return None };
    let word = tail.to_word() | INLINE;
    let (mut checksum, (whole, rest)) = (checksum_of(&[word, header]), payload.as_chunks::<8>());
    let mut record = record.iter_mut();
    for (from, to) in whole.iter().zip(record.by_ref()) {
        *to = *from;
        checksum = checksum_extend(checksum, u64::from_le_bytes(*from));
    }
    if let Some(to) = record.next().filter(|_| !rest.is_empty()) {
        to.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        checksum = checksum_extend(checksum, u64::from_le_bytes(*to));
    }
    (*to_tail, *to_checksum, *to_header) =
        (word.to_le_bytes(), checksum.to_le_bytes(), header.to_le_bytes());
    Some((line, RECORD_AT + 8 + payload.len().next_multiple_of(8)))
}

/// Parses the words of a line: the tail, and the record if there is one. `None` while they are
/// being written.
#[inline]
pub fn get(line: [u64; 8]) -> Option<(AdvertisedCursor, Option<InlineRecord>)> {
    let [tail, checksum, words @ ..] = line;
    if tail & INLINE == 0 {
        return verified([tail], checksum).map(|[tail]| (AdvertisedCursor::from_word(tail), None));
    }
    let record = InlineRecord::new(words).filter(|record| record.checksum(tail) == checksum)?;
    Some((AdvertisedCursor::from_word(tail & !INLINE), Some(record)))
}

#[cfg(test)]
mod tests;
