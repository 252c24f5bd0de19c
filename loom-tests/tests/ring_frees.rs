//! The free list: the head passes what was freed and nothing else, and the thread that moves
//! the head over a record sees whatever was done with it before its free.
//!
//! Only on soft0: a model has no device.
#![cfg(rdma_conn_loom)]
#![forbid(unsafe_code)]

use conn_core::ring::free::{FreeFront, FreeList, RecordSlot};
use loom::{cell::Cell, sync::Arc, thread};

/// A list, and the memory of its records: loom panics when accesses to a cell by
/// different threads are not ordered.
struct SharedFreeList {
    list: FreeList<Vec<RecordSlot>>,
    memory: Vec<Cell<u64>>,
}

impl SharedFreeList {
    fn new(slots: usize, records: usize) -> Arc<Self> {
        let list = FreeList::new((0..slots).map(|_| RecordSlot::new()).collect()).expect("a list");
        let memory = (0..records).map(|_| Cell::new(0)).collect();
        Arc::new(Self { list, memory })
    }

    /// Everything before `head` may be written again.
    fn overwrite(&self, from: &mut u64, head: u64) {
        while *from < head {
            self.memory[(*from / 8) as usize].set(head);
            *from += 8;
        }
    }
}

#[test]
fn two_threads_free_while_the_owner_looks() {
    loom::model(|| {
        let shared = SharedFreeList::new(2, 3);
        let mut front = FreeFront::new();
        let lent = [8, 16].map(|end| front.lend(&shared.list, end).expect("room"));
        let threads: Vec<_> = lent
            .into_iter()
            .enumerate()
            .map(|(at, lent)| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.memory[at].set(1); // the application's last access
                    shared.list.free(lent).expect("lent");
                })
            })
            .collect();
        let mut from = 0;
        // A pause lets loom see that the others might have been first.
        thread::yield_now();
        let head = front.head(&shared.list);
        shared.overwrite(&mut from, head);
        if front.lent() < 2 {
            // The slot of the first is used again while the second may be on its way.
            let lent = front.lend(&shared.list, 24).expect("room");
            shared.list.free(lent).expect("lent");
        }
        threads.into_iter().for_each(|thread| thread.join().expect("a free"));
        let head = front.head(&shared.list);
        shared.overwrite(&mut from, head);
        assert!(head == 16 || head == 24);
        assert_eq!(front.lent(), 0);
    });
}
