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

#[test]
fn other_boots_namespaces_and_users_have_other_gids() {
    let all = [
        gid_of_place(b"boot", [1, 2], 1000),
        gid_of_place(b"another boot", [1, 2], 1000),
        gid_of_place(b"boot", [3, 2], 1000),
        gid_of_place(b"boot", [1, 3], 1000),
        gid_of_place(b"boot", [1, 2], 0),
    ];
    for (nth, gid) in all.iter().enumerate() {
        assert!(!all[..nth].contains(gid), "{nth}");
    }
    assert_eq!(gid_of_place(b"boot", [1, 2], 1000), all[0]);
}
