use super::*;

#[test]
fn loans_that_come_late_are_slept_for_until_one_comes_soon() {
    const ADAPTIVE: WaitStrategy = WaitStrategy::Adaptive;
    let (late, soon) = (Duration::from_millis(1), Duration::from_micros(10));
    let mut waits = LoanWaits::default();
    assert_eq!(waits.strategy(ADAPTIVE), ADAPTIVE);
    let mut polled = 0;
    for _ in 0..4 * LoanWaits::POLLED {
        waits.note(late);
        polled += u32::from(waits.strategy(ADAPTIVE) == ADAPTIVE);
        assert_eq!(waits.strategy(WaitStrategy::Spin), WaitStrategy::Spin, "as asked for");
    }
    assert_eq!(polled, 4);
    waits.note(late);
    assert_eq!(waits.strategy(ADAPTIVE), WaitStrategy::Block);
    waits.note(soon);
    assert_eq!(waits.strategy(ADAPTIVE), ADAPTIVE);
}
