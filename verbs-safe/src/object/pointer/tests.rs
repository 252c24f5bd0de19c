use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;

/// A subscriber of the program that panics at each event.
struct PanickingSubscriber;

impl Subscriber for PanickingSubscriber {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        panic!("the program's log");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn what_a_failed_destroy_uses_stays_even_if_the_report_panics() {
    let used = Arc::new(());
    let report = || destroyed("an object", Err(Errno::EINVAL), || Arc::clone(&used));
    let reported = catch_unwind(AssertUnwindSafe(|| {
        tracing::subscriber::with_default(PanickingSubscriber, report);
    }));
    assert!(reported.is_err(), "the subscriber was called");
    assert_eq!(Arc::strong_count(&used), 2, "a reference is leaked");
}

#[test]
fn what_a_destroyed_object_used_is_free() {
    let used = Arc::new(());
    destroyed("an object", Ok(()), || Arc::clone(&used));
    assert_eq!(Arc::strong_count(&used), 1);
}
