use super::*;

#[test]
fn times_have_three_digits() {
    let times = [7, 1_234, 45_678, 999_000, 1_500_000_000, 86_400_000_000_000];
    let texts = ["7 ns", "1.23 µs", "45.7 µs", "999 µs", "1.50 s", "86400 s"];
    assert_eq!(times.map(time), texts);
}
