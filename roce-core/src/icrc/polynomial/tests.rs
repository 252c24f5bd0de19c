use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn a_division_by_x_undoes_a_multiplication(value: u32) {
        prop_assert_eq!(divide_by_x(times_x(value)), value);
        prop_assert_eq!(times_x(divide_by_x(value)), value);
    }

    #[test]
    fn products_are_those_of_a_field(a: u32, b: u32, c: u32) {
        prop_assert_eq!(multiply(a, b), multiply(b, a));
        prop_assert_eq!(multiply(a, multiply(b, c)), multiply(multiply(a, b), c));
        prop_assert_eq!(multiply(a, b ^ c), multiply(a, b) ^ multiply(a, c));
        prop_assert_eq!(multiply(a, ONE), a);
        prop_assert_eq!(multiply(a, ONE >> 1), times_x(a));
    }

    #[test]
    fn words_are_taken_away_one_by_one(value: u32, words in 0..MAX_WORDS) {
        let mut expected = value;
        for _ in 0..32 * words {
            expected = divide_by_x(expected);
        }
        prop_assert_eq!(divide_by_words(value, words), Some(expected));
    }
}

#[test]
fn bytes_are_eight_bits() {
    assert_eq!(pass_bytes(1 << 31, 3), 1 << 7);
    assert_eq!(take_bytes(1 << 7, 3), 1 << 31);
    assert_eq!(take_bytes(pass_bytes(0x1234_5678, 44), 44), 0x1234_5678);
}

#[test]
fn as_many_words_as_there_are_powers_for() {
    assert!(divide_by_words(1, MAX_WORDS - 1).is_some());
    assert_eq!(divide_by_words(1, MAX_WORDS), None);
    assert_eq!(divide_by_words(0, MAX_WORDS), Some(0));
}
