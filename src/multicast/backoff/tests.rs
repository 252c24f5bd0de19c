use super::*;

#[test]
fn a_thread_that_cannot_do_what_is_due_lets_others_run() {
    let (mut backoff, began) = (Backoff::default(), host::time::now());
    let at = |instant: Instant| Deadline::at(Some(instant));
    assert_eq!(backoff.step(began, Deadline::NEVER), Step::Yield);
    let later = began + YIELDING;
    assert_eq!(backoff.step(later, Deadline::NEVER), Step::Sleep(Duration::MAX));
    let soon = Duration::from_micros(3);
    assert_eq!(backoff.step(later, at(later + soon)), Step::Sleep(soon));
    assert_eq!(backoff.step(later, at(later)), Step::Yield);
    assert_eq!(backoff.step(later, at(began)), Step::Yield);
    (0..LOOKS).for_each(|_| backoff.wait(Deadline::NEVER));
    backoff.end();
    assert_eq!(backoff.step(later, Deadline::NEVER), Step::Yield, "it begins anew");
}
