use super::*;

#[test]
fn a_change_of_what_was_looked_at_is_news_until_the_next_look() {
    let mut watch = WatchedAddresses::default();
    watch.add(64, 8);
    watch.notify(56, 8);
    watch.notify(72, 100);
    assert!(!watch.is_signalled());
    watch.notify(60, 5);
    assert!(watch.is_signalled());
    watch.clear();
    watch.notify(60, 5);
    assert!(!watch.is_signalled());
}

#[test]
fn a_change_of_any_byte_of_a_word_is_news() {
    for byte in 64..72 {
        let mut watch = WatchedAddresses::default();
        watch.add(64, 8);
        watch.notify(byte, 1);
        assert!(watch.is_signalled(), "byte {byte}");
    }
}

#[test]
fn a_thread_that_watches_nothing_or_too_much_is_not_told_of_all() {
    let mut watch = WatchedAddresses::default();
    assert!(!watch.is_complete());
    (0..MOST).for_each(|n| watch.add(n, 1));
    (0..MOST).for_each(|n| watch.add(n, 1));
    assert!(watch.is_complete());
    watch.add(MOST, 1);
    assert!(!watch.is_complete());
    watch.clear();
    assert!(!watch.is_complete());
}
