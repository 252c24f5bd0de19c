use std::{println, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{Pair, every_history};

#[test]
fn every_short_history_agrees_with_the_model() {
    // The ids lie at the ends of leaves and of summary words.
    let mut histories = 0;
    for buffers in [1, 64, 65, 4096, 4161] {
        let ids = [0, 1, 63, 64, 4095, 4096, 4160, 5000].map(Op::Enqueue);
        let rooms = [0, 1, 2, 64, 200].map(Op::Drain);
        let alphabet: Vec<Op> = ids.into_iter().chain(rooms).collect();
        let depth = if buffers <= 65 { 5 } else { 4 };
        histories += every_history(&Queued::new(buffers).unwrap(), &alphabet, depth);
    }
    println!("repost: {histories} histories");
    assert!(histories > 1_000_000);
}

#[test]
fn storage_that_does_not_fit_is_refused() {
    let new = |words: usize, buffers| {
        let words: Vec<_> = (0..words).map(|_| RepostWord::new()).collect();
        RepostQueue::new(words, buffers).map(|_| ()).unwrap_err()
    };
    assert_eq!(new(9, 0), RepostQueueError::NoBuffers);
    assert_eq!(new(1, 1), RepostQueueError::StorageTooSmall { needed_words: 2 });
    assert_eq!(new(66, 4097), RepostQueueError::StorageTooSmall { needed_words: 67 });
    assert_eq!(RepostQueue::words_for(4097), 67);
}

#[test]
fn threads_lose_nothing_and_double_nothing() {
    const BUFFERS: u32 = 300;
    let words: Vec<_> = (0..words_for(BUFFERS)).map(|_| RepostWord::new()).collect();
    let queue = RepostQueue::new(words, BUFFERS).unwrap();
    let mut seen = [0u32; BUFFERS as usize];
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|t| {
                let queue = &queue;
                scope.spawn(move || {
                    (t..BUFFERS).step_by(3).for_each(|id| queue.enqueue(id).unwrap())
                })
            })
            .collect();
        let mut take = |room: usize| {
            let mut out = [0; 80];
            let count = queue.drain(&mut out[..room]);
            out[..count].iter().for_each(|&id| seen[id as usize] += 1);
            count
        };
        while !workers.iter().all(|worker| worker.is_finished()) {
            take(7);
        }
        while take(80) > 0 {}
    });
    assert!(seen.iter().all(|&times| times == 1), "{seen:?}");
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![3 => (0..300u16).prop_map(Op::Enqueue), 1 => any::<u8>().prop_map(Op::Drain)]
}

proptest! {
    #[test]
    fn long_histories_agree_with_the_model(
        buffers in 1..300u32, ops in proptest::collection::vec(op(), 0..300),
    ) {
        let mut pair = Queued::new(buffers).unwrap();
        ops.into_iter().for_each(|op| pair.apply(op));
    }
}
