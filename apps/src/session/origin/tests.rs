use super::*;

#[test]
fn what_soft0_cannot_connect_is_refused_with_the_reason() {
    let own = Origin { is_soft: true, user: 1000, boot: 7 };
    assert_eq!(Origin::decode(&own.encode()), Some(own));
    assert_eq!(own.reaches(own), Ok(()));
    let why = |other: Origin| own.reaches(other).unwrap_err();
    assert_eq!(
        why(Origin { user: 0, ..own }),
        "the connecting end has the user 0, the listening end 1000: soft0 connects the \
             processes of one user: run both as the same"
    );
    assert!(why(Origin { boot: 8, ..own }).contains("on another"));
    assert!(why(Origin { is_soft: false, ..own }).contains("--device"));
    let card = Origin { is_soft: false, ..own };
    assert_eq!(card.reaches(Origin { user: 0, boot: 9, ..card }), Ok(()));
    for junk in ["", "s", "x1.00000000", "s1", "s-1.00000000", "s1.y"] {
        assert_eq!(Origin::decode(junk), None, "{junk}");
    }
}

#[test]
fn a_device_on_the_network_is_no_device_of_one_machine() {
    assert!(is_on_the_network("roce:10.0.0.1") && is_on_the_network("roce:fd00::1"));
    assert!(!is_on_the_network("soft0") && !is_on_the_network("rocep1s0"));
}
