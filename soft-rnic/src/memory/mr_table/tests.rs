use super::*;

#[test]
fn slots_rest_and_their_old_keys_are_refused() {
    let mrs = MrTable::default();
    let mut old = Vec::new();
    for _ in 0..3 * RESTING {
        let (key, slot) = mrs.take(&mut mrs.free.lock()).unwrap();
        slot.key.store(key, Ordering::Relaxed);
        assert!(core::ptr::eq(mrs.slot(key).unwrap(), slot));
        slot.key.store(0, Ordering::Relaxed);
        mrs.release(key);
        old.push(key);
    }
    let index = |nth: usize| mrs.keys.index(old[nth]);
    assert!((1..RESTING).all(|nth| index(nth) != index(0)), "it has rested");
    assert_eq!(index(RESTING), index(0));
    let all: std::collections::HashSet<_> = old.iter().collect();
    assert_eq!(all.len(), old.len(), "each key is new");
    let (key, slot) = mrs.take(&mut mrs.free.lock()).unwrap();
    slot.key.store(key, Ordering::Relaxed);
    slot.pd.store(1, Ordering::Relaxed);
    // SAFETY: nothing is accessed.
    let room = unsafe { crate::memory::span::SpanBuf::new() };
    assert!(mrs.view(room.hold(), key, 1, 0).is_some());
    assert!(old.iter().all(|key| mrs.view(room.hold(), *key, 1, 0).is_none()));
    let tags = (1..256).map(|other| key ^ other);
    assert!(tags.into_iter().all(|key| mrs.view(room.hold(), key, 1, 0).is_none()));
}

#[test]
fn the_table_can_be_filled() {
    let mut free = FreeSlots::default();
    let take = |free: &mut FreeSlots| free.next().inspect(|_| free.take().unwrap());
    let all: Vec<u32> = core::iter::from_fn(|| take(&mut free)).collect();
    assert_eq!(all.len(), limits::MAX_KEYS);
    free.freed.push_back(7);
    assert_eq!((take(&mut free), take(&mut free)), (Some(7), None));
}
