use super::*;

#[test]
fn what_no_system_has_is_an_error() {
    let bytes = zeroed("a copy", isize::MAX as usize).unwrap_err();
    assert_eq!(bytes.to_string(), "a copy: out of memory");
    let values = filled("a list", isize::MAX as usize / 8, || 0_u64).unwrap_err();
    assert_eq!(values.to_string(), "a list: out of memory");
    assert_eq!(*zeroed("a copy", 3).unwrap(), [0; 3]);
    assert_eq!(*filled("a list", 2, || 7).unwrap(), [7; 2]);
}
