use super::*;

#[test]
fn what_no_machine_has_is_an_error_with_its_size() {
    const MUCH: usize = 1 << 46;
    let error = filled("allocating a test", MUCH, || 0_u64).unwrap_err();
    assert_eq!((error.step, error.bytes), ("allocating a test", 8 * MUCH));
    assert_eq!(error.errno, Errno::ENOMEM);
    assert_eq!(list::<u64>("", usize::MAX).unwrap_err().bytes, usize::MAX);
    assert_eq!(collected("", [1, 2].into_iter()), Ok(vec![1, 2]));
}
