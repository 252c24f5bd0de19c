use super::*;

#[test]
fn a_thread_that_cannot_do_what_is_due_lets_others_run() {
    let (mut backoff, began) = (IdleBackoff::default(), host::time::now());
    let at = |instant: Instant| Deadline::at(Some(instant));
    assert_eq!(backoff.step(began, Deadline::NEVER), None);
    let later = began + YIELDING;
    assert_eq!(backoff.step(later, Deadline::NEVER), Some(Duration::MAX));
    let soon = Duration::from_micros(3);
    assert_eq!(backoff.step(later, at(later + soon)), Some(soon));
    assert_eq!(backoff.step(later, at(later)), None);
    assert_eq!(backoff.step(later, at(began)), None);
    (0..LOOKS).for_each(|_| backoff.wait(Deadline::NEVER));
    backoff.end();
    assert_eq!(backoff.step(later, Deadline::NEVER), None, "it begins anew");
}
