use std::{println, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};

#[test]
fn every_short_history_agrees_with_the_model() {
    // The ids lie at the ends of leaves and of summary words.
    let (mut histories, leaf) = (0, WIDTH as u32);
    let summary = leaf * leaf;
    for buffers in [1, leaf, leaf + 1, summary, summary + leaf + 1] {
        let ids = [0, 1, leaf - 1, leaf, summary - 1, summary, summary + leaf, 5000];
        let ids = ids.map(|id| RepostQueueOp::Enqueue(id as u16));
        let rooms = [0, 1, 2, WIDTH as u8, 200].map(RepostQueueOp::Drain);
        let alphabet: Vec<RepostQueueOp> = ids.into_iter().chain(rooms).collect();
        let depth = if buffers <= leaf + 1 { 5 } else { 4 };
        histories += every_history(&CheckedRepostQueue::new(buffers).unwrap(), &alphabet, depth);
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
    // A full summary word and one for the last leaf.
    let (buffers, needed_words) = ((WIDTH * WIDTH) as u32 + 1, WIDTH + 3);
    let error = RepostQueueError::StorageTooSmall { needed_words };
    assert_eq!(new(needed_words - 1, buffers), error);
    assert_eq!(RepostQueue::words_for(buffers), needed_words);
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

fn op() -> impl Strategy<Value = RepostQueueOp> {
    prop_oneof![
        3 => (0..300u16).prop_map(RepostQueueOp::Enqueue),
        1 => any::<u8>().prop_map(RepostQueueOp::Drain),
    ]
}

proptest! {
    #[test]
    fn long_histories_agree_with_the_model(
        buffers in 1..300u32, ops in proptest::collection::vec(op(), 0..300),
    ) {
        let mut pair = CheckedRepostQueue::new(buffers).unwrap();
        ops.into_iter().for_each(|op| pair.apply(op));
    }
}
