use super::*;

#[test]
fn every_convention_of_the_providers_is_understood() {
    assert_eq!(Errno::check(0), Ok(()));
    assert_eq!(Errno::check(libc::ENOMEM), Err(Errno::ENOMEM));
    assert_eq!(Errno::check(-libc::EINVAL), Err(Errno::EINVAL));
    assert!(Errno::check(-1).is_err());
    assert!(Errno::check(i32::MIN).is_err());
}
