//! Misuse that must not compile. Each file of `ui/` says what it tries.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
