use super::*;

#[test]
fn each_bound_has_a_test_or_is_computed() {
    run().unwrap();
}

#[test]
fn tables_of_bounds_are_told_from_others() {
    let table = |heading| {
        format!("| a | {heading} |\n|---|---|\n| 1 | `N` (`a.rs`); `a/tests::is_kept` |\n\ntext\n")
    };
    assert_eq!(cells(&table("constant; test")), ["`N` (`a.rs`); `a/tests::is_kept`"]);
    assert_eq!(cells(&table("test")), ["`N` (`a.rs`); `a/tests::is_kept`"]);
    assert_eq!(cells(&table("constant")), [""; 0]);
    let cell = "`N::MOST` (`a.rs`); `a/tests::is_kept`, `b::ends`";
    assert_eq!(named(cell), [("a/tests", "is_kept"), ("b", "ends")]);
}
