use super::*;

#[test]
fn a_process_is_known_by_its_number_and_when_it_started() {
    let own = std::process::id();
    let started = trace::started(own).unwrap();
    assert_eq!(ProcessState::query(own, started), ProcessState::Running);
    assert_eq!(ProcessState::query(own, started + 1), ProcessState::Ended);
    assert_eq!(ProcessState::query(u32::MAX, started), ProcessState::Ended);
}
