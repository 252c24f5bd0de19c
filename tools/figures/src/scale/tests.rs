use proptest::prelude::*;

use super::*;

#[test]
fn ticks_are_round() {
    let ticks = |scale, values: [f64; 2], thinning| {
        AxisRange::rounded(scale, values.into_iter()).ticks(thinning)
    };
    assert_eq!(ticks(Scale::Linear, [3.0, 9.3], 0), (0..=10).map(f64::from).collect::<Vec<_>>());
    assert_eq!(ticks(Scale::Linear, [3.0, 9.3], 1), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
    assert_eq!(ticks(Scale::Linear, [0.0, 0.7], 1), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8]);
    assert_eq!(ticks(Scale::Log2, [16.0, 250.0], 0), [16.0, 32.0, 64.0, 128.0, 256.0]);
    assert_eq!(ticks(Scale::Log2, [16.0, 250.0], 1), [16.0, 64.0, 256.0]);
    assert_eq!(ticks(Scale::Log10, [0.3, 40.0], 0).first(), Some(&0.2));
    assert_eq!(ticks(Scale::Log10, [0.3, 40.0], 1), [1.0, 10.0]);
    assert_eq!(ticks(Scale::Log10, [3.0, 4.0], 0), [2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn figures_have_three_digits() {
    for (value, text) in [
        (0.0, "0"),
        (7.0, "7"),
        (0.6000000000000001, "0.6"),
        (1.2345, "1.23"),
        (12.345, "12.3"),
        (123.45, "123"),
        (999_999.0, "999999"),
        (0.00123, "0.00123"),
        (0.0001014, "0.000101"),
        (2e7, "2e7"),
        (1.25e-9, "1.25e-9"),
        (3.5e7, "3.5e7"),
        (f64::NAN, "-"),
    ] {
        assert_eq!(digits(value), text);
    }
}

proptest! {
    /// Whatever the values, positions are numbers from 0 to 1, and ticks lie on the axis.
    #[test]
    fn any_values_have_a_place_or_none(
        values in prop::collection::vec(prop::num::f64::ANY, 0..9),
        scale in prop::sample::select(vec![Scale::Linear, Scale::Log2, Scale::Log10]),
        thinning in 0_usize..9,
        rounded in any::<bool>(),
    ) {
        let make = if rounded { AxisRange::rounded } else { AxisRange::covering };
        // The range of the largest finite numbers overflows: it is not supported.
        let values: Vec<f64> =
            values.into_iter().filter(|value| (1e-300..1e300).contains(&value.abs())).collect();
        let span = make(scale, values.iter().copied());
        for value in values.iter().copied().filter(|value| has_place(scale, *value)) {
            prop_assert!(span.position(value).is_some_and(|at| (0.0..=1.0).contains(&at)));
        }
        for tick in span.ticks(thinning) {
            prop_assert!(span.position(tick).is_some(), "{} in {:?}", tick, span);
        }
    }
}
