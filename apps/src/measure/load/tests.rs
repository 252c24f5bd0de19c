use super::*;

#[test]
fn a_count_ends_exactly_there() {
    let start = Instant::now();
    let sent = (0..).take_while(|n| EndOfLoad::Messages(1000).goes_on(*n, start, 256)).count();
    assert_eq!(sent, 1000);
}

#[test]
fn rounds_share_a_load() {
    let end = EndOfLoad::After(Duration::from_secs(3));
    assert_eq!(end.of_round(2, 3), EndOfLoad::After(Duration::from_secs(1)));
    assert_eq!(EndOfLoad::Messages(2).rounds(3), 2);
}

#[test]
fn fairness_is_of_several_senders_that_send_for_a_time() {
    let of = |end, sent: &[u64]| {
        let load = MessageLoad { size: 16, end, verify: true, rate: None, in_turn: false };
        load.fairness(sent.iter().copied())
    };
    let time = EndOfLoad::After(Duration::from_secs(1));
    assert_eq!(of(time, &[40, 100, 80]), Some(0.4));
    assert_eq!(of(time, &[0, 100]), Some(0.0));
    for nothing in [of(time, &[]), of(time, &[5]), of(time, &[0, 0])] {
        assert_eq!(nothing, None);
    }
    assert_eq!(of(EndOfLoad::Messages(100), &[100, 100]), None);
}

#[test]
fn slow_senders_end_in_time_too() {
    let end = EndOfLoad::After(Duration::ZERO);
    let load = |size, rate| MessageLoad { size, end, verify: true, rate, in_turn: false };
    // However little a message costs, or however long it takes: it is over.
    for load in [load(16, Some(1.0)), load(1 << 30, None), load(8192, None)] {
        let goes_on = |n: &u64| end.goes_on(*n, Instant::now(), load.stride());
        let more = (1..).take_while(goes_on).count() as u64;
        assert!(more * u64::from(load.size) <= 1 << 20, "{more} messages of {}", load.size);
        assert!(load.rate.is_none() || more == 0, "{more} messages that are paced");
    }
    assert_eq!(load(0, None).stride(), 256);
    assert!((0..2000).all(|kb| load(kb << 10, None).stride().is_power_of_two()));
}

#[test]
fn a_pacer_that_was_held_up_does_not_burst() {
    let past = Instant::now() - Duration::from_secs(1);
    let mut pacer = Pacer::new(Some(1000.0), past);
    let before = Instant::now();
    pacer.wait();
    assert!(pacer.next >= before, "what was missed is not made up for");
}
