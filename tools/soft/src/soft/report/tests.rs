use super::*;

fn checked(program: &str, findings: &[&str], notes: &[&str]) -> CheckedProcess {
    let lines: Vec<_> = [("c", program)]
        .into_iter()
        .chain(findings.iter().map(|text| ("f", *text)))
        .chain(notes.iter().map(|text| ("n", *text)))
        .map(|(letter, text)| format!("{letter} 7 {text}\n"))
        .collect();
    soft_rnic::check::read(lines.concat().as_bytes()).unwrap().remove(0)
}

fn run(processes: &[CheckedProcess]) -> ProgramRun<'_> {
    ProgramRun {
        command: &[],
        program_status: 0,
        failed: true,
        why: Some("nothing was checked"),
        counts_notes: false,
        processes,
    }
}

#[test]
fn a_finding_is_a_failed_case() {
    let all = [checked("a<b", &["\"x\" & \u{1}y"], &["a note"]), checked("c", &[], &[])];
    let text = junit(&run(&all));
    assert!(text.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites "));
    assert!(text.contains("<testsuite name=\"a&lt;b 7\" tests=\"1\" failures=\"1\">"), "{text}");
    assert!(text.contains("<failure message=\"&quot;x&quot; &amp; \u{fffd}y\"></failure>"));
    assert!(text.contains("<system-out>a note</system-out>"), "{text}");
    assert!(text.contains("<testcase classname=\"c\" name=\"no findings\"></testcase>"));
    let strict = junit(&ProgramRun { counts_notes: true, ..run(&all) });
    assert!(strict.contains("tests=\"2\" failures=\"2\""), "{strict}");
}

#[test]
fn a_run_without_a_checked_process_is_a_failed_case() {
    let text = junit(&run(&[]));
    assert!(text.contains("<failure message=\"nothing was checked\"></failure>"), "{text}");
}

#[test]
fn json_has_all_that_was_reported() {
    let all = [checked("a", &["f"], &["n"])];
    let value = serde_json::to_value(run(&all)).unwrap();
    let of = &value["processes"][0];
    assert_eq!((&of["process"], &of["program"]), (&7.into(), &"a".into()));
    assert_eq!((&of["findings"][0], &of["notes"][0]), (&"f".into(), &"n".into()));
}
