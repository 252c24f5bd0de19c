use super::*;

#[test]
fn more_messages_than_can_be_counted_are_an_error() {
    let sent = |sent: &[u64]| Totals { sent: sent.to_vec() }.messages();
    assert_eq!(sent(&[]).unwrap(), 0);
    assert_eq!(sent(&[u64::MAX - 1, 1]).unwrap(), u64::MAX);
    assert!(sent(&[u64::MAX, 1]).unwrap_err().to_string().contains("can be counted"));
}
