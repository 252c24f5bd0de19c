use std::{println, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{Pair, every_history};

fn alphabet(buffers: u8) -> Vec<Op> {
    let mut ops = Vec::new();
    for n in 0..=buffers {
        ops.extend([Op::Lend(n), Op::Free(n), Op::Return(n), Op::Repost(n), Op::Unpost(n)]);
    }
    ops.extend([Op::UnpostAny(0, 0), Op::UnpostAny(0, 1), Op::UnpostAny(1, buffers)]);
    ops
}

#[test]
fn every_short_history_agrees_with_the_model() {
    let mut histories = 0;
    for buffers in 1..=3 {
        for batch in 1..=buffers + 1 {
            let mut start = Pooled::new(buffers, batch).unwrap();
            histories += every_history(&start, &alphabet(buffers as u8), 3);
            start.apply(Op::Repost(buffers as u8));
            histories += every_history(&start, &alphabet(buffers as u8), 4);
        }
    }
    println!("pool: {histories} histories");
    assert!(histories > 1_000_000);
}

#[test]
fn storage_that_makes_no_pool_is_refused() {
    let new = |n: usize, repost_batch| {
        BufferPool::new(std::vec![PoolSlot::new(); n], PoolConfig { repost_batch }).map(|_| ())
    };
    assert_eq!(new(0, 1), Err(PoolConfigError::NoBuffers));
    assert_eq!(new(1, 0), Err(PoolConfigError::EmptyBatch));
    assert_eq!(new(1, u32::MAX), Ok(()));
}

#[test]
fn a_pool_of_two_reposts_at_once_whatever_the_batch() {
    let mut pool = BufferPool::new([PoolSlot::new(); 2], PoolConfig { repost_batch: 32 }).unwrap();
    pool.take_repost(&mut [0; 2]);
    pool.lend(0).unwrap();
    pool.free(0).unwrap();
    assert!(pool.due());
}

fn op(buffers: u8) -> impl Strategy<Value = Op> {
    let id = 0..buffers + 2;
    prop_oneof![
        4 => id.clone().prop_map(Op::Lend),
        4 => id.clone().prop_map(Op::Free),
        1 => id.clone().prop_map(Op::Return),
        2 => id.clone().prop_map(Op::Repost),
        1 => id.clone().prop_map(Op::Unpost),
        1 => (id.clone(), id).prop_map(|(a, b)| Op::UnpostAny(a, b)),
    ]
}

proptest! {
    #[test]
    fn long_histories_agree_with_the_model(
        (buffers, ops) in (1..40u8).prop_flat_map(|b| {
            (Just(b), proptest::collection::vec(op(b), 0..300))
        }),
        batch in 1..50u32,
    ) {
        let mut pair = Pooled::new(buffers.into(), batch).unwrap();
        ops.into_iter().for_each(|op| pair.apply(op));
    }
}
