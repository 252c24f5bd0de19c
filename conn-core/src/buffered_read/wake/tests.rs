use super::*;

fn asked(sleep: &mut Sleep) -> Option<u64> {
    sleep.prepare();
    sleep.request()
}

#[test]
fn a_request_stands_until_it_is_answered() {
    let mut sleep = Sleep::new();
    assert_eq!(asked(&mut sleep), Some(1));
    assert_eq!(asked(&mut sleep), None);
    sleep.on_vain_look();
    assert!(!sleep.is_ready());
    sleep.on_vain_look();
    assert!(sleep.is_ready());
    // Something new was read meanwhile: the looks behind the request count from there.
    sleep.on_news();
    assert!(!sleep.is_ready() && asked(&mut sleep).is_none());
    assert!(sleep.on_wake_up());
    assert_eq!(asked(&mut sleep), Some(2));
}

#[test]
fn wake_ups_in_vain_are_no_longer_asked_for_until_there_is_news() {
    let mut sleep = Sleep::new();
    for number in 1..=u64::from(VAIN_WAKE_UPS) {
        assert_eq!(asked(&mut sleep), Some(number));
        assert!(sleep.on_wake_up());
    }
    assert_eq!(asked(&mut sleep), None);
    for _ in 0..LOOKS {
        assert!(!sleep.is_ready(), "the last wake-up may have news");
        sleep.on_vain_look();
    }
    assert!(sleep.is_ready(), "it sleeps nevertheless");
    // A wake-up that was not asked for is looked behind, too.
    assert!(!sleep.on_wake_up());
    assert!(asked(&mut sleep).is_none() && !sleep.is_ready());
    sleep.on_news();
    assert!(asked(&mut sleep).is_some());
}

#[test]
fn a_wake_up_that_was_not_asked_for_changes_no_request() {
    let mut sleep = Sleep::new();
    assert!(!sleep.on_wake_up());
    assert_eq!(asked(&mut sleep), Some(1));
}

#[test]
fn each_word_is_answered_once_whatever_it_is() {
    let mut waker = Waker::default();
    assert!(!waker.answer(0));
    for word in [7, u64::MAX, 1, 7] {
        assert!(waker.answer(word) && !waker.answer(word) && !waker.is_news(word));
        assert_eq!(waker.answered(), word);
    }
}
