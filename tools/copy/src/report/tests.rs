use super::*;

#[test]
fn what_is_not_named_can_be_asked_for_or_follows_from_what_is() {
    let failed = || {
        let inside = (0..30).map(|at| (format!("a/{at}"), "no"));
        let beside = (0..30).map(|at| (format!("{at}"), "no"));
        std::iter::once(("a".to_owned(), "no")).chain(inside).chain(beside)
    };
    let all = complaints(failed(), NamedFailures::All, 0);
    assert_eq!((all.len(), &*all[30]), (32, "29: no"));
    assert_eq!(all[31], "and 30 more, in directories that have failed");
    let some = complaints(failed(), NamedFailures::Some, 5);
    assert_eq!((some.len(), &*some[19]), (22, "18: no"));
    assert_eq!(some[21], "and 16 more, of which -v tells");
    assert_eq!(complaints(failed(), NamedFailures::All, 5)[32], "and 5 more, told above");
}

#[test]
fn a_partial_copy_is_reported_with_its_size() {
    let (device, tally) = (rdma_conn::device::soft().unwrap(), CopyTally::default());
    tally.moves(40_000);
    tally.done();
    (0..2).for_each(|_| tally.fails());
    let of = |error: Option<&str>, all| {
        let counts = CopySummary { tally: &tally, how: None };
        let error = error.map(Into::into);
        let mut line = line(&device, "x".into(), counts, Duration::from_secs(1), error);
        line.count_at_sender(all, 0);
        line
    };
    // Text and JSON have the same numbers, and all entries are in one of them.
    for (error, all, entries, missing) in [(Some("it has gone"), 7, "1 of 7", 4), (None, 3, "1", 0)]
    {
        let line = of(error, all);
        let row = line.row(all);
        assert_eq!([&*row[1], &*row[6], &*row[7]], [entries, "2", &missing.to_string()]);
        let json = serde_json::to_value(&line).unwrap();
        assert_eq!((&json["failed"], &json["missing"]), (&2.into(), &missing.into()));
        assert_eq!(json["entries"].as_u64().unwrap() + 2 + missing, all);
    }
    let mut left_out = of(None, 3);
    left_out.ok = true;
    left_out.count_at_sender(3, 1);
    assert!(!left_out.ok, "the exit status says so, too");
    let of = |error| of(error, 7);
    let says = of(Some("it has gone")).says();
    assert!(says.ends_with("2 failed, and no more"), "{says}");
}

#[test]
fn what_differs_is_there_and_no_success() {
    let (device, tally) = (rdma_conn::device::soft().unwrap(), CopyTally::default());
    tally.done();
    tally.differs();
    let counts = CopySummary { tally: &tally, how: None };
    let line = line(&device, "x".into(), counts, Duration::from_secs(1), None);
    assert_eq!((line.entries, line.differing, line.ok), (1, 1, false));
    assert!(line.says().ends_with("0 failed, 1 not as at the sender"), "{}", line.says());
}
