use super::*;

#[test]
fn what_was_lost_for_want_of_a_receive_is_said_and_what_to_do() {
    let bench = |lost, dropped| Counted {
        lost: Some(lost),
        dropped,
        reordered: Some(0),
        repeated: Some(0),
        ..Counted::default()
    };
    let says = bench(9, Some(7)).text();
    assert!(says.starts_with("2 lost on the network, 7 dropped for want of a receive"), "{says}");
    assert!(says.contains("(nothing holds the sender back"), "{says}");
    // Which it was, not every device counts.
    let says = bench(9, None).text();
    assert!(says.starts_with("9 lost, ") && says.contains("does not tell"), "{says}");
    for nothing in [bench(9, Some(0)), bench(0, None), Counted { late: Some(1), ..bench(9, None) }]
    {
        let says = nothing.text();
        assert!(!says.contains('('), "{says}");
    }
}
