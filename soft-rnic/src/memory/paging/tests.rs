use super::*;
use core::cell::Cell;

#[test]
fn what_was_brought_is_good_for_the_same_pieces_only() {
    let mut bytes = [0_u8; 64];
    let span = MemSpan::from_slice(&mut bytes);
    let look = |brought, to: &[MemSpan<'_>], is_written| {
        let pages = RequestPages::new(brought);
        let presence = presence(Some(&pages), to, is_written);
        let is_needed = pages.into_parts().0.is_some();
        assert_eq!(is_needed, presence == Presence::Unknown);
        presence
    };
    let needed = || Needed::from_spans(&[span], true);
    assert_eq!(look(None, &[span], true), Presence::Unknown);
    assert_eq!(look(Some((needed(), true)), &[span], true), Presence::There);
    assert_eq!(look(Some((needed(), false)), &[span], true), Presence::Gone);
    assert_eq!(look(Some((needed(), true)), &[span], false), Presence::Unknown);
    assert_eq!(look(Some((needed(), true)), &[span.first(63)], true), Presence::Unknown);
    assert_eq!(look(Some((needed(), true)), &[span, span], true), Presence::Unknown);
}

#[test]
fn pages_are_brought_in_chunks_while_they_still_matter() {
    let mut bytes = vec![0_u8; 3 * BROUGHT_AT_ONCE + 5];
    let needed = Needed::from_spans(&[MemSpan::from_slice(&mut bytes)], true);
    let asked = Cell::new(0);
    let matter = |most| {
        asked.set(0);
        let asked = &asked;
        move || {
            asked.set(asked.get() + 1);
            asked.get() <= most
        }
    };
    assert!(needed.bring(matter(9)));
    assert_eq!(asked.get(), 4);
    assert!(!needed.bring(matter(2)));
    assert_eq!(asked.get(), 3);
}
