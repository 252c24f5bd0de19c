use super::*;

#[test]
fn a_text_that_is_too_long_ends_in_dots_and_fits() {
    assert_eq!(fitted("batched", 200.0), "batched");
    let short = fitted(&"batched ".repeat(20), 100.0);
    assert!(short.ends_with('…') && width(&short) <= 100.0, "{short}");
}
