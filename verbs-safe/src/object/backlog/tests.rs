use super::*;
use crate::descriptor::{deadline, wait_readable};
use crate::ids::CqId;
use crate::object::event::{AsyncEventKind, AsyncSource};
use std::time::Duration;

fn is_readable(backlog: &Backlog) -> bool {
    let now = deadline(Some(Duration::ZERO));
    wait_readable(&[backlog.wakeup().unwrap()], now).unwrap().is_some()
}

#[test]
fn the_descriptor_is_readable_as_long_as_there_is_an_event() {
    let source = |number| AsyncSource::Cq(CqId(number));
    let note = |number| AsyncEvent { kind: AsyncEventKind::CQ_ERR, source: source(number) };
    let backlog = Backlog::default();
    backlog.put(note(0));
    assert!(is_readable(&backlog), "what arrived before there was a descriptor counts");
    backlog.put(note(1));
    assert_eq!(backlog.take(), Some(note(0)));
    assert!(is_readable(&backlog));
    assert_eq!(backlog.take(), Some(note(1)));
    assert!(!is_readable(&backlog) && backlog.take().is_none());
    (0..2000).for_each(|number| backlog.put(note(number)));
    for number in 2000 - MOST as u32..2000 {
        assert!(is_readable(&backlog));
        assert_eq!(backlog.take(), Some(note(number)));
    }
    assert!(!is_readable(&backlog));
}
