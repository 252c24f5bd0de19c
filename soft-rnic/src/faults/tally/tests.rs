use super::*;

#[test]
fn a_line_says_what_was_struck() {
    let tally = FaultTally::default();
    (0..3).for_each(|_| count(&tally.requests));
    assert_eq!(tally.line(false), "none of 3 requests struck");
    let why = ": loss strikes those of UC and UD only, and there were none";
    assert_eq!(tally.line(true), format!("none of 3 requests struck{why}"));
    count(&tally.struck);
    assert_eq!(tally.line(true), format!("1 of 3 requests struck, 0 failed{why}"));
    count(&tally.failed);
    count(&tally.unreliable);
    assert_eq!(tally.line(true), "1 of 3 requests struck, 1 failed");
}
