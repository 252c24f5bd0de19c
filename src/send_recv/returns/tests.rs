use super::*;

#[test]
fn more_buffers_than_have_numbers_are_refused() {
    SlotReturns::new(1 << 10, 64).unwrap();
    // Numbers that would come twice.
    for links in [(1 << 26) + 1, (1 << 27) + 1, u32::MAX] {
        assert!(SlotReturns::new(links, 64).is_err(), "{links}");
    }
}
