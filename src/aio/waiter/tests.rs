use super::*;

#[test]
fn looks_grow_while_sleeps_are_short_and_shrink_after_long_ones() {
    let mut patience = Patience::default();
    let mut after = |micros: &[u64]| {
        micros.iter().for_each(|&time| patience.slept(Duration::from_micros(time)));
        patience.looks
    };
    assert_eq!(after(&[10, 49]), 4 * Patience::LEAST);
    assert_eq!(after(&[1; 20]), Patience::MOST);
    assert_eq!(after(&[50]), Patience::MOST / 2);
    assert_eq!(after(&[1_000; 20]), Patience::LEAST);
}
