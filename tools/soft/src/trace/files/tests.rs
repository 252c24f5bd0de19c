use super::*;

#[test]
fn a_process_is_known_by_its_number_and_when_it_started() {
    let own = std::process::id();
    let started = trace::started(own).unwrap();
    assert_eq!(Process::of(own, started), Process::Running);
    assert_eq!(Process::of(own, started + 1), Process::Ended);
    assert_eq!(Process::of(u32::MAX, started), Process::Ended);
}
