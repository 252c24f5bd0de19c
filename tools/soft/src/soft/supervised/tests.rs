use super::*;

#[test]
fn findings_fail_and_notes_only_if_they_are_to() {
    let of = |record: &str| {
        let all = read(record.as_bytes()).unwrap();
        [FailCondition::Never, FailCondition::WithFindings, FailCondition::WithNotes]
            .map(|fails| fails.judge(&all).is_some())
    };
    assert_eq!(of("c 1 a\n"), [false, false, false]);
    assert_eq!(of("c 1 a\nc 2 b\nn 1 note\n"), [false, false, true]);
    assert_eq!(of("c 1 a\nc 2 b\nf 2 finding\n"), [false, true, true]);
    assert_eq!(of(""), [false, true, true], "nothing was checked");
}

#[test]
fn a_status_is_a_shells() {
    assert_eq!(shells(ExitStatus::from_raw(7 << 8)), 7);
    assert_eq!(shells(ExitStatus::from_raw(9)), 137);
}
