//! Misuse that must not compile. Each file of `ui/` says what it tries.
//!
//! Only on soft0: programs that must not compile have no device.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
