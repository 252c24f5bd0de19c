use super::*;

#[test]
fn the_median_is_in_the_middle_whatever_the_order() {
    let of = |figures: &[f64]| Spread::of(figures.iter().copied());
    assert_eq!(of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
    assert_eq!(of(&[4.0, 1.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
    assert_eq!(of(&[7.0]), Spread { median: 7.0, min: 7.0, max: 7.0 });
    assert_eq!(Spread::of_whole([5, 2, 9]), (5, 2, 9));
}
