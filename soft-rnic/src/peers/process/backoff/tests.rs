use super::*;

#[test]
fn a_process_that_timed_out_is_not_waited_for_during_a_pause() {
    let (mut backoff, start) = (AnswerBackoff::default(), host::time::now());
    assert_eq!(backoff.until(7, start), start + TIMEOUT);
    let late = start + TIMEOUT;
    backoff.timed_out(7, late);
    for later in [late, late + PAUSE / 2] {
        assert_eq!(backoff.until(7, later), later);
        assert_eq!(backoff.until(8, later), later + TIMEOUT, "another one");
        // Datagrams that do not wait do not extend the pause.
        backoff.timed_out(7, later);
    }
    let again = late + PAUSE;
    assert_eq!(backoff.until(7, again), again + TIMEOUT);
    backoff.timed_out(7, again + TIMEOUT);
    assert_eq!(backoff.until(7, again + PAUSE), again + PAUSE);
}
