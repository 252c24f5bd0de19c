//! The combiner: one at a time inside, and nothing that was asked for is left undone.
//!
//! Only on soft0: a model has no device.
#![cfg(rdma_conn_loom)]
#![forbid(unsafe_code)]

use conn_core::{
    combiner::Combiner,
    repost::{RepostQueue, RepostWord, words_for},
};
use loom::{
    cell::Cell,
    sync::Arc,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

/// The work is published with relaxed stores and the result kept in plain memory, so
/// all ordering is the combiner's.
struct SharedCombiner<const N: usize> {
    combiner: Combiner,
    asked: [AtomicBool; N],
    done: [Cell<u32>; N],
}

impl<const N: usize> SharedCombiner<N> {
    fn new() -> Arc<Self> {
        let asked = std::array::from_fn(|_| AtomicBool::new(false));
        let done = std::array::from_fn(|_| Cell::new(0));
        Arc::new(Self { combiner: Combiner::new(), asked, done })
    }

    fn ask(&self, at: usize) {
        self.asked[at].store(true, Relaxed);
        if self.combiner.try_enter() {
            self.look();
            while self.combiner.leave() {
                self.look();
            }
        }
    }

    fn look(&self) {
        for (asked, done) in self.asked.iter().zip(&self.done) {
            if asked.load(Relaxed) && done.get() == 0 {
                done.set(1);
            }
        }
    }
}

fn everything_asked_for_is_done<const N: usize>() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = (N > 2).then_some(3);
    model.check(|| {
        let shared = SharedCombiner::<N>::new();
        let threads: Vec<_> = (1..N)
            .map(|at| {
                let shared = shared.clone();
                thread::spawn(move || shared.ask(at))
            })
            .collect();
        shared.ask(0);
        threads.into_iter().for_each(|thread| thread.join().expect("a request"));
        assert!(shared.done.iter().all(|done| done.get() == 1), "a request was forgotten");
        assert!(shared.combiner.try_enter(), "the combiner is free again");
    });
}

#[test]
fn two_threads_ask() {
    everything_asked_for_is_done::<2>();
}

#[test]
fn three_threads_ask() {
    everything_asked_for_is_done::<3>();
}

/// As a connection uses it: a thread that frees a buffer and enters becomes the reposter.
#[test]
fn combining_leaves_the_repost_queue_empty() {
    loom::model(|| {
        let words = (0..words_for(2)).map(|_| RepostWord::new()).collect::<Vec<_>>();
        let shared = Arc::new((
            Combiner::new(),
            RepostQueue::new(words, 2).expect("a queue"),
            [Cell::new(0), Cell::new(0)],
        ));
        let free =
            |id: u32, (combiner, queue, posted): &(Combiner, RepostQueue<_>, [Cell<u32>; 2])| {
                queue.enqueue(id).expect("freed once");
                if !combiner.try_enter() {
                    return;
                }
                loop {
                    let mut out = [0; 64];
                    let count = queue.drain(&mut out);
                    out[..count].iter().for_each(|&id| posted[id as usize].set(1));
                    if !combiner.leave() {
                        break;
                    }
                }
            };
        let other = shared.clone();
        let thread = thread::spawn(move || free(1, &other));
        free(0, &shared);
        thread.join().expect("a free");
        assert!(shared.1.is_empty());
        assert!(shared.2.iter().all(|posted| posted.get() == 1), "a buffer was left behind");
    });
}
