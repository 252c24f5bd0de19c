use super::*;

#[test]
fn another_users_slot_is_found_among_the_sockets() {
    let (own, other) = (geteuid().as_raw(), geteuid().as_raw() + 1);
    let line = |name: &str| format!("0000: 00000002 00000000 00010000 0005 01 4711 {name}\n");
    let sockets = [
        "Num RefCount Protocol Flags Type St Inode Path\n".to_owned(),
        line("/run/socket"),
        line("@soft-rnic-x-7"),
        line(&format!("@soft-rnic-{own}-7")),
        line(&format!("@soft-rnic-{other}-77")),
        line(&format!("@soft-rnic-{other}-8")),
    ]
    .concat();
    assert_eq!(
        [7, 8, 9].map(|slot| user_of(&sockets, &SocketNames::default(), slot)),
        [None, Some(other), None]
    );
}
