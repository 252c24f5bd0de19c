use super::*;

#[test]
fn tests_oracles_and_bindings_are_no_product() {
    for name in ["src/half.rs", "conn-core/src/ring/shared.rs", "src/testing.rs"] {
        assert!(is_product(name), "{name}");
    }
    for name in
        ["src/half/tests.rs", "src/half/tests/a.rs", "verbs-sys/src/bindings.rs", "a/oracle.rs"]
    {
        assert!(!is_product(name), "{name}");
    }
}

#[test]
fn blank_lines_and_comments_are_no_code() {
    assert_eq!(code_lines("//! A module.\n\nfn f() {\n    // Why.\n    g(); // And why.\n}\n"), 3);
}
