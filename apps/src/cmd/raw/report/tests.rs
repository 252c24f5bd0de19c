use super::*;

#[test]
fn what_was_lost_for_want_of_a_receive_is_said_and_what_to_do() {
    let bench = |lost: u64, dropped: Option<u64>| {
        let line = ResultLine::default().with("lost", lost).with("dropped", dropped);
        line.with("reordered", 0).with("repeated", 0)
    };
    let says = faults(&bench(9, Some(7)));
    assert!(says.starts_with("2 lost on the network, 7 dropped for want of a receive"), "{says}");
    assert!(says.contains("(nothing holds the sender back"), "{says}");
    // Which it was, not every device counts.
    let says = faults(&bench(9, None));
    assert!(says.starts_with("9 lost, ") && says.contains("does not tell"), "{says}");
    for nothing in [bench(9, Some(0)), bench(0, None), bench(9, None).with("late", 1)] {
        let says = faults(&nothing);
        assert!(!says.contains('('), "{says}");
    }
}
