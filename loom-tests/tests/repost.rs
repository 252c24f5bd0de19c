//! The repost queue: nothing lost, nothing doubled, and what was done to a buffer
//! before its enqueue is seen after the drain.
//!
//! Only on soft0: a model has no device.
#![cfg(rdma_conn_loom)]
#![forbid(unsafe_code)]

use conn_core::repost::{EnqueueError, RepostQueue, RepostWord, words_for};
use loom::{cell::Cell, sync::Arc, thread};

const BUFFERS: u32 = 65;

/// Two buffers of a queue. A cell stands for the memory of its buffer: loom panics
/// when accesses to it by different threads are not ordered.
struct SharedRepostQueue {
    queue: RepostQueue<Vec<RepostWord>>,
    ids: [u32; 2],
    memory: [Cell<u32>; 2],
}

impl SharedRepostQueue {
    fn new(ids: [u32; 2]) -> Arc<Self> {
        let words = (0..words_for(BUFFERS)).map(|_| RepostWord::new()).collect();
        let queue = RepostQueue::new(words, BUFFERS).expect("a queue");
        Arc::new(Self { queue, ids, memory: [Cell::new(0), Cell::new(0)] })
    }

    /// The application reads the message for the last time, and frees the buffer.
    fn free(&self, at: usize) {
        self.memory[at].set(self.ids[at] + 1);
        self.queue.enqueue(self.ids[at]).expect("freed once");
    }

    /// Reposts up to `room` buffers: the device may write to them from here on.
    fn repost(&self, room: usize, times: &mut [u32; 2]) -> usize {
        let mut out = vec![u32::MAX; room];
        let count = self.queue.drain(&mut out);
        for id in &out[..count] {
            let at = self.ids.iter().position(|known| known == id).expect("an id of ours");
            assert_eq!(self.memory[at].replace(0), id + 1);
            times[at] += 1;
        }
        count
    }
}

/// Two threads free a buffer each, while a third drains `looks` times with room for
/// `room`; what is left is drained in the end.
fn frees_and_drain(ids: [u32; 2], room: usize, looks: usize) {
    loom::model(move || {
        let shared = SharedRepostQueue::new(ids);
        let threads = [0, 1].map(|at| {
            let shared = shared.clone();
            thread::spawn(move || shared.free(at))
        });
        let mut times = [0, 0];
        for _ in 0..looks {
            shared.repost(room, &mut times);
        }
        threads.into_iter().for_each(|thread| thread.join().expect("a free"));
        while shared.repost(room, &mut times) > 0 {}
        assert_eq!(times, [1, 1], "lost or doubled");
        assert!(shared.queue.is_empty());
    });
}

#[test]
fn two_frees_in_one_leaf() {
    frees_and_drain([3, 9], 64, 2);
}

#[test]
fn two_frees_in_two_leaves() {
    frees_and_drain([3, 64], 128, 2);
}

#[test]
fn a_drain_without_room_for_all_leaves_the_rest_to_the_next() {
    frees_and_drain([3, 9], 1, 2);
}

#[test]
fn of_two_frees_of_one_buffer_one_is_refused() {
    loom::model(|| {
        let shared = SharedRepostQueue::new([3, 4]);
        let queue = shared.clone();
        let other = thread::spawn(move || queue.queue.enqueue(3));
        let here = shared.queue.enqueue(3);
        let results = [here, other.join().expect("a free")];
        assert!(results.contains(&Ok(())));
        assert!(results.contains(&Err(EnqueueError::AlreadyQueued)));
        let mut out = [0; 2];
        assert_eq!((shared.queue.drain(&mut out), out[0]), (1, 3));
    });
}
