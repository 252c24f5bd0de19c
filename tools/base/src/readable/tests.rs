use super::*;

#[test]
fn sizes_are_binary_and_exact_and_counts_have_a_plural() {
    assert_eq!(
        [16, 65_536, 1 << 20, 3 << 30, 70_000].map(size),
        ["16 B", "64 KiB", "1 MiB", "3 GiB", "70000 B"]
    );
    assert_eq!([0, 300, 32_832, 20 << 20].map(memory), ["-", "300 B", "32.1 KiB", "20.0 MiB"]);
    assert_eq!([0.2, 9.5, 10.0, 1500.0].map(rate), ["0.20", "9.50", "10", "1.5 k"]);
    assert_eq!(counted_as(1, "entry", "entries"), "1 entry");
    assert_eq!(counted_as(0, "entry", "entries"), "0 entries");
    assert_eq!(spread(100.0, 90.0, 120.0), "15 %");
}
