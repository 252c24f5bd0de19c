use super::is_card;

#[test]
fn a_report_of_a_card_goes_on_as_slowly_as_it_was_begun() {
    let begun = "soft0@card=connectx5,slow=12";
    assert!(is_card(begun, Some("soft0@card=connectx5")));
    for other in ["soft0@card=connect", "soft0@card=connectx5,slow=1", "soft0", begun] {
        assert!(!is_card(begun, Some(other)), "{other}");
    }
    assert!(!is_card(begun, None) && !is_card("soft0", Some("soft0")));
}
