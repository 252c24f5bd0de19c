use super::*;

#[test]
fn the_factor_is_that_of_most_operations() {
    let mut slowest = Slowest::default();
    for _ in 0..95 {
        slowest.took([119.0, 1.0], 1, Duration::from_nanos(300));
    }
    for _ in 0..5 {
        slowest.took([119.0, 1.0], 1, Duration::from_millis(1));
    }
    assert_eq!(slowest.factor(), 3.0);
    assert_eq!(Slowest::default().factor(), 1.0);
}
