use super::*;

#[test]
fn no_more_is_mapped_than_there_are_places_and_bytes() {
    let budget = MapBudget { windows: AtomicUsize::new(0), bytes: AtomicU64::new(0) };
    let taken = (0..2 * WINDOWS).filter(|_| budget.take(1)).count();
    assert_eq!(taken, WINDOWS);
    budget.give_back(1);
    assert!(!budget.take(BYTES) && !budget.take(u64::MAX));
    let left = BYTES - (WINDOWS as u64 - 1);
    assert!(budget.take(left) && !budget.take(0));
}
