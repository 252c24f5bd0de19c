use proptest::prelude::*;

use super::*;

/// Bytes of `new` where the mask has a bit set, else of `old`.
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
    /// Counters that rise a little: any mixture of old and new bytes is the old words, the new
    /// words, or fails the checksum.
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
