use super::*;

#[test]
fn what_no_machine_has_is_an_error() {
    const MUCH: usize = 1 << 46;
    assert_eq!(list::<u64>(MUCH), Err(OutOfMemory));
    assert_eq!(list::<u64>(usize::MAX), Err(OutOfMemory));
    assert_eq!(filled(MUCH, || 0_u64), Err(OutOfMemory));
    assert_eq!(zeroes(MUCH), Err(OutOfMemory));
    assert_eq!(filled(3, || 7), Ok(vec![7; 3]));
    assert_eq!((zeroes(0), zeroes(2)), (Ok(vec![]), Ok(vec![0; 2])));
    assert_eq!(headroom(), Ok(()));
}
