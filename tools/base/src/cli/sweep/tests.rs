use proptest::prelude::*;

use super::super::values::byte_count;
use super::*;

fn parsed(text: &str) -> Vec<u64> {
    Sweep::parse(text, byte_count).unwrap_or_else(|e| panic!("{text}: {e}")).to_vec()
}

#[test]
fn a_range_goes_on_by_the_ratio_before_it_or_doubles() {
    for (text, values) in [
        ("7", &[7][..]),
        ("1,2,4..256", &[1, 2, 4, 8, 16, 32, 64, 128, 256]),
        ("1,4..64", &[1, 4, 16, 64]),
        ("1..16", &[1, 2, 4, 8, 16]),
        ("16..1M*4", &[16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20]),
        ("16,64..1k", &[16, 64, 256, 1024]),
        ("0..96+32", &[0, 32, 64, 96]),
        ("1..20", &[1, 2, 4, 8, 16]),
        ("4k..64k, 100", &[4096, 8192, 16_384, 32_768, 65_536, 100]),
        (" 1 , 2 .. 8 ", &[1, 2, 4, 8]),
        ("5..5", &[5]),
        ("3g..4095m*2", &[3 << 30]),
        ("16,16", &[16, 16]),
    ] {
        assert_eq!(parsed(text), values, "{text}");
    }
}

#[test]
fn an_error_has_the_place_and_what_is_allowed() {
    for (text, column, found, allowed) in [
        ("", 1, "", "bytes"),
        ("1,,2", 3, "", "bytes"),
        ("1,x", 3, "x", "bytes"),
        ("µ,1", 1, "µ", "bytes"),
        ("1,µ..2", 3, "µ", "bytes"),
        ("1, 2..many", 7, "many", "bytes"),
        ("8..4", 1, "8..4", "must not be below the start"),
        ("0..8", 1, "0..8", "as 0..8+1"),
        ("2,3..9", 3, "3..9", "as 3..9*2 or 3..9+1"),
        ("4,4..9", 3, "4..9", "not a multiple of the number before, 4"),
        ("1..8*1", 6, "1", "2 or more"),
        ("1..8+0", 6, "0", "1 or more"),
        ("1..8+k", 6, "k", "1 or more"),
        ("1..1000+1", 1, "1..1000+1", "up to 256 values"),
        ("1...4", 4, ".4", "bytes"),
    ] {
        let error = Sweep::parse(text, byte_count).unwrap_err();
        let SweepError { column: at, found: what, allowed: rule } = &error;
        assert_eq!((*at, &**what), (column, found), "{text}: {error}");
        assert!(rule.contains(allowed), "{text}: {error}");
    }
}

proptest! {
    /// Whatever the text, it is a bounded number of values, or an error within it.
    #[test]
    fn any_text_is_values_or_an_error_at_a_place_in_it(text in "[0-9kM,.*+ xµ]{0,24}") {
        match Sweep::parse(&text, byte_count) {
            Ok(values) => prop_assert!((1..=MOST_VALUES).contains(&values.len())),
            Err(e) => prop_assert!((1..=text.chars().count() + 1).contains(&e.column), "{}", e),
        }
    }

    #[test]
    fn a_list_is_what_it_says(values in prop::collection::vec(any::<u32>(), 1..MOST_VALUES)) {
        let text = values.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let wanted: Vec<u64> = values.into_iter().map(u64::from).collect();
        prop_assert_eq!(parsed(&text), wanted);
    }

    /// A range rises by its step, from its start to within a step of its end.
    #[test]
    fn a_range_goes_from_its_start_to_its_end(
        from in 1_u64..1_000_000, span in 0_u64..1_000_000, by in 2_u64..9, times in any::<bool>(),
    ) {
        let end = from + span;
        let (sign, step) = if times { ('*', by) } else { ('+', span / 9 + 1) };
        let values = parsed(&format!("{from}..{end}{sign}{step}"));
        let after = |value: u64| if times { value * step } else { value + step };
        prop_assert_eq!(values[0], from);
        prop_assert!(values.windows(2).all(|pair| pair[1] == after(pair[0])));
        let last = *values.last().unwrap();
        prop_assert!(last <= end && end < after(last));
    }
}
