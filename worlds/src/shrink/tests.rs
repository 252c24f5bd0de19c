use super::*;
use crate::case::SendStep;

#[test]
fn what_a_failure_needs_is_left() {
    let case = (0..).map(|seed| WorldCase::draw(seed, None, None)).find(fails).unwrap();
    let small = shrink(&case, fails);
    assert!(fails(&small));
    assert_eq!((small.steps(), small.senders.len()), (2, 1), "{small}");
}

/// Needs a flush, a wait, and one of five orders of threads: fewer steps, another order.
fn fails(case: &WorldCase) -> bool {
    if !(case.seed + case.steps() as u64).is_multiple_of(5) {
        return false;
    }
    let waits = |step: &SendStep| matches!(step, SendStep::WaitAll(_));
    case.senders.iter().any(|s| s.contains(&SendStep::Flush) && s.iter().any(waits))
}
