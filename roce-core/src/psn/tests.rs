use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn the_distance_is_what_was_added(start: u32, by in -(1 << 23)..1_i32 << 23) {
        let start = Psn::new(start);
        let end = start.wrapping_add(by as u32);
        prop_assert_eq!(end.since(start), by);
        prop_assert_eq!(end.wrapping_sub(by as u32), start);
        prop_assert!(end.get() < COUNT);
        // The farthest has no opposite.
        if by != -(1 << 23) {
            prop_assert_eq!(start.since(end), -by);
        }
    }
}
