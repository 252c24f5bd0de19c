//! Tests that the set-up of a queue pair ends with a typed error where the system has no memory.
//! One test: it limits its process.
//!
//! Only on soft0: the memory of a card's queues is not all the process's.

mod common;

use common::context;
use verbs_safe::*;

/// Limits what this process maps to `more` bytes beyond what it has, or ends the limit.
fn limit(more: Option<u64>) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let rlim_cur = more.map_or(libc::RLIM_INFINITY, |more| pages * 4_096 + more);
    let limit = libc::rlimit { rlim_cur, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a limit of this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}

/// Bytes that are left for what is small and has to be there: less than a list of the queue pair, also together with
/// the pieces beside them.
const SMALL: usize = 16 << 10;

/// Takes what the allocator has left, but for [`SMALL`] bytes, and pieces of less than 4 KiB; `rest` has room for them.
fn take_rest(rest: &mut Vec<Vec<u8>>) {
    let room = |size: usize| {
        let mut room = Vec::<u8>::new();
        room.try_reserve_exact(size).ok().map(|()| room)
    };
    let small = room(SMALL);
    for size in [1 << 20, 1 << 16, 1 << 14, 1 << 12] {
        let most = rest.capacity() - rest.len();
        rest.extend(core::iter::from_fn(|| room(size)).take(most));
    }
    drop(small);
}

#[test]
fn a_queue_pair_for_which_there_is_no_memory_is_an_error() {
    /// The smallest list has 4 bytes for each of these: 32 KiB.
    const DEPTH: u32 = 8_192;
    /// Each try has this number of bytes more than the one before: memory ends at each step in
    /// turn, the smallest list included, until there is enough.
    const STEP: u64 = 16 << 10;
    const TRIES: u64 = 4_000;
    let context = context();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(CqConfig::new(2 * DEPTH)).unwrap();
    let config = QueuePairConfig {
        max_send_wr: DEPTH,
        send_slots: 1,
        send_slot_bytes: 8,
        recv: RecvSide::Own { slots: DEPTH, slot_bytes: 8 },
        ..QueuePairConfig::new(&cq, &cq)
    };
    let mut failures = std::collections::BTreeSet::new();
    let mut rest = Vec::with_capacity(10_000);
    let has_succeeded = (0..TRIES).any(|nth| {
        limit(Some(0));
        take_rest(&mut rest);
        limit(Some(nth * STEP));
        let made = pd.create_qp(&config, ());
        limit(None);
        rest.clear();
        made.map_err(|error| failures.insert(error.to_string())).is_ok()
    });
    assert!(has_succeeded, "{failures:?}");
    let of = |what: &str| failures.iter().any(|failure| failure.contains(what));
    for what in ["registering", "allocating a send queue", "allocating a receive queue"] {
        assert!(of(what), "{what}: {failures:#?}");
    }
}
