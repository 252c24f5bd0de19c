use super::*;

#[test]
fn a_pause_is_made_of_passes() {
    let (mut pause, began) = (Pause::new(Duration::from_millis(80)), Instant::now());
    let at = |ms: u64| began + Duration::from_millis(ms);
    assert!(!pause.is_over(at(0)));
    // The process has not run for an hour: no member has pushed anything meanwhile.
    assert!(!pause.is_over(at(3_600_000)));
    let over = (1..).find(|n| pause.is_over(at(3_600_000 + 10 * n)));
    assert_eq!(over, Some(6));
    pause.restart();
    assert!(!pause.is_over(at(7_200_000)));
}
