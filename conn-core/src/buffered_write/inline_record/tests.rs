use proptest::prelude::*;

use super::*;

fn words_of(line: &[u8; 64]) -> [u64; 8] {
    let words = line.as_chunks::<8>().0;
    core::array::from_fn(|nth| u64::from_le_bytes(words[nth]))
}

/// Writes the line of a record of `len` bytes of `fill` that ends at `position`, or of a
/// tail alone, over the old one; returns how many bytes were written.
fn write(line: &mut [u8; 64], position: u64, len: Option<u32>, fill: u64) -> usize {
    let tail = AdvertisedCursor { position, is_last: false };
    let Some(len) = len else {
        let word = tail.to_word();
        line[..8].copy_from_slice(&word.to_le_bytes());
        line[8..16].copy_from_slice(&checksum_of(&[word]).to_le_bytes());
        return 16;
    };
    let mut words = [fill; WORDS];
    words[0] = position << 29 | u64::from(len);
    let used = 1 + len.div_ceil(8) as usize;
    put(tail, &words[..used], line).unwrap()
}

#[test]
fn every_length_that_fits_comes_back_and_no_other_is_taken() {
    for len in 0..=64_u32 {
        let tail = AdvertisedCursor { position: 4096, is_last: len % 2 == 1 };
        let (mut line, mut words) = ([0xa5; 64], [7; 9]);
        words[0] = 4000 << 29 | u64::from(len);
        let used = 1 + len.div_ceil(8) as usize;
        let put = put(tail, &words[..used], &mut line);
        assert_eq!(put, (len <= 40).then_some(16 + 8 * used), "{len}");
        if put.is_some() {
            let (told, record) = get(words_of(&line)).unwrap();
            let record = record.unwrap();
            assert_eq!((told, record.words(), record.header()), (tail, &words[..used], words[0]));
        }
    }
    let mut line = [0; 64];
    let tail = AdvertisedCursor { position: 16, is_last: false };
    assert_eq!(super::line(tail, 8, &[1; 7]), None, "less than the header says");
    assert_eq!(super::line(tail, 41, &[1; 41]), None, "more than there is room for");
    assert_eq!(put(tail, &[8], &mut line), None, "less than the header says");
    assert_eq!(put(tail, &[8, 1], &mut line[..31]), None);
    assert_eq!(put(tail, &[], &mut line), None);
    let nothing = AdvertisedCursor { position: 0, is_last: false };
    assert_eq!(get([0; 8]), Some((nothing, None)), "no line was written");
}

#[test]
fn a_line_of_bytes_is_that_of_their_words() {
    let bytes: [u8; MAX_PAYLOAD] = core::array::from_fn(|nth| 0xf0 - nth as u8);
    let tail = AdvertisedCursor { position: 4096, is_last: false };
    for len in 0..=MAX_PAYLOAD {
        let header = 4000 << 29 | len as u64;
        let mut padded = [0; MAX_PAYLOAD];
        padded[..len].copy_from_slice(&bytes[..len]);
        let mut words = [header; WORDS];
        let payload = padded.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        words[1..].iter_mut().zip(payload).for_each(|(to, word)| *to = word);
        let words = &words[..1 + len.div_ceil(8)];
        let mut expected = [0; 64];
        let put = put(tail, words, &mut expected).unwrap();
        assert_eq!(line(tail, header, &bytes[..len]), Some((expected, put)), "{len}");
    }
}

#[test]
fn a_length_that_fits_no_line_is_never_followed() {
    for len in [41, 1 << 29, u32::MAX] {
        let words = [u64::from(len), 0, 0, 0, 0, 0];
        for used in 0..=WORDS {
            let mut checksummed = [16 | INLINE; WORDS + 1];
            checksummed[1..].copy_from_slice(&words);
            let [a, b, c, d, e, f] = words;
            let line = [16 | INLINE, checksum_of(&checksummed[..=used]), a, b, c, d, e, f];
            assert_eq!(get(line), None);
        }
    }
}

proptest! {
    /// Some bytes of a line have arrived, and others not yet: it decodes as the old one, the new
    /// one, or none.
    #[test]
    fn a_mixture_of_two_lines_is_none(
        from in 0..1_u64 << 40,
        by in 1..64_u64,
        lens in any::<[Option<u8>; 2]>(),
        fills in any::<[u64; 2]>(),
        mask: u64,
    ) {
        let len = |nth: usize| lens[nth].map(|len| u32::from(len % 41));
        let mut old = [0; 64];
        write(&mut old, 8 * from, len(0), fills[0]);
        let mut new = old;
        let written = write(&mut new, 8 * (from + by), len(1), fills[1]);
        let mut mixed = old;
        for byte in (0..written).filter(|byte| mask >> byte & 1 == 1) {
            mixed[byte] = new[byte];
        }
        let found = get(words_of(&mixed));
        let whole = [get(words_of(&old)), get(words_of(&new))];
        prop_assert!(found.is_none() || whole.contains(&found));
        prop_assert!(whole.iter().all(Option::is_some));
    }
}
