use super::*;

#[test]
fn names_say_the_user_the_device_and_the_slot() {
    let user = geteuid().as_raw();
    let all =
        [SocketNames::default(), SocketNames::of_address("::ffff:192.0.2.7".parse().unwrap(), 9)];
    let texts = [format!("soft-rnic-{user}-5"), format!("soft-rnic-{user}-192.0.2.7-5")];
    for (names, text) in all.iter().zip(&texts) {
        let name = names.slot(5).unwrap();
        assert_eq!(name.abstract_name(), Some(text.as_bytes()));
        let found = texts.each_ref().map(|text| names.parse(text));
        assert_eq!(found.iter().flatten().collect::<Vec<_>>(), [&(user, 5)]);
        assert_eq!(names.parse(text), Some((user, 5)));
    }
    assert_eq!((all[0].slots, all[1].slots), (SLOTS, 9));
}
