use super::*;

#[test]
fn a_missing_library_says_what_to_install() {
    let error = open("libibverbs-that-is-not-here.so.1").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("ibverbs-providers"), "{text}");
    assert!(text.contains("libibverbs-that-is-not-here"), "{text}");
}

#[test]
fn a_library_that_is_something_else_names_the_missing_symbol() {
    let error = open("libc.so.6").unwrap_err();
    assert_eq!(error, LoadError::Symbol { name: "ibv_get_device_list" });
}
