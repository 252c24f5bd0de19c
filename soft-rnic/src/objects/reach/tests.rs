use super::*;

#[test]
fn a_user_has_one_gid_and_each_device_of_its_own_another() {
    let (user, device) = (gid_of_user(), gid_of_device());
    assert_eq!(user, gid_of_user());
    assert_ne!(device, gid_of_device());
    for gid in [user, device, gid_of(0), gid_of(u32::MAX)] {
        assert_eq!(gid[..13], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127]);
        assert!((64..128).contains(&gid[13]));
    }
}
