use super::*;

#[test]
fn what_is_alive_is_reported_by_kind() {
    let checker = Checker::new(FailurePolicy::Never, RecordFile::default());
    (1..=10).for_each(|id| checker.made(Object::QueuePair, id, None));
    checker.gone(Object::QueuePair, 10);
    for _ in 0..2 {
        checker.made(Object::ProtectionDomain, 0, None);
    }
    checker.gone(Object::ProtectionDomain, 0);
    checker.made(Object::Channel, 5, None);
    checker.gone(Object::Channel, 5);
    let left: Leftovers = Box::new(|| vec![(ReportKind::Unpolled, "3 completions".into())]);
    checker.made(Object::CompletionQueue, 1, Some(left));
    assert_eq!(checker.finish(), (0, 4));
}

#[test]
fn a_line_names_some() {
    let names: Vec<String> = (0..10).map(|id| Object::QueuePair.named(id).unwrap()).collect();
    let line = leak(Object::QueuePair, 10, &names);
    assert!(line.starts_with("10 queue pairs were never destroyed: QP 0x0, QP 0x1, "));
    assert!(line.ends_with(" QP 0x7 and 2 more"), "{line}");
    assert_eq!(leak(Object::Context, 1, &[]), "1 open context was never closed");
    let line = leak(Object::DeviceMemory, 2, &[]);
    assert_eq!(line, "2 device memories were never destroyed");
}
