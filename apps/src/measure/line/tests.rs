use super::*;

#[test]
fn a_line_takes_some_time_between_two_processors() {
    // `None` on one processor, or where there is no time for it.
    assert!(line_ns().is_none_or(|ns| ns > 0.0));
    assert_eq!(
        [40.0, 170.0].map(ProcessorDistance::from_line_ns),
        [ProcessorDistance::Near, ProcessorDistance::Far]
    );
}
