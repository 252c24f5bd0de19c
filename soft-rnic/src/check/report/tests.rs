use super::*;

#[test]
fn each_kind_is_there_once() {
    assert!(ReportKind::ALL.iter().enumerate().all(|(i, kind)| *kind as usize == i));
    assert!(ReportKind::Unacknowledged.is_finding() && !ReportKind::Overlaps.is_finding());
}

#[test]
fn all_are_counted() {
    let report = CheckReport::default();
    (0..LINES + 3).for_each(|_| report.say(ReportKind::Overlaps, || "overlaps".into()));
    report.say(ReportKind::TooSmall, || "too small".into());
    assert_eq!(report.sum_up(), (1, LINES + 3));
}

#[test]
fn numbers_have_their_plural() {
    let all = [number(0, "note"), number(1, "memory"), number(2, "memory"), number(2, "CQ")];
    assert_eq!(all, ["0 notes", "1 memory", "2 memories", "2 CQs"]);
}
