use super::slow;

#[test]
fn a_device_that_stands_for_a_card_says_how_much_slower_it_is() {
    assert_eq!(slow("soft0@card=connectx5,slow=8"), Some(8.0));
    assert_eq!([slow("soft0@card=connectx5"), slow("soft0@card=x,slow=y")], [None, None]);
}
