use std::{println, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};

fn alphabet(buffers: u8) -> Vec<BufferPoolOp> {
    let mut ops = Vec::new();
    for n in 0..=buffers {
        ops.extend([
            BufferPoolOp::Lend(n),
            BufferPoolOp::Free(n),
            BufferPoolOp::Return(n),
            BufferPoolOp::Repost(n),
            BufferPoolOp::Unpost(n),
        ]);
    }
    ops.extend([
        BufferPoolOp::UnpostAny(0, 0),
        BufferPoolOp::UnpostAny(0, 1),
        BufferPoolOp::UnpostAny(1, buffers),
    ]);
    ops
}

#[test]
fn every_short_history_agrees_with_the_model() {
    let mut histories = 0;
    for buffers in 1..=3 {
        for batch in 1..=buffers + 1 {
            let mut start = CheckedBufferPool::new(buffers, batch).unwrap();
            histories += every_history(&start, &alphabet(buffers as u8), 3);
            start.apply(BufferPoolOp::Repost(buffers as u8));
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

fn op(buffers: u8) -> impl Strategy<Value = BufferPoolOp> {
    let id = 0..buffers + 2;
    prop_oneof![
        4 => id.clone().prop_map(BufferPoolOp::Lend),
        4 => id.clone().prop_map(BufferPoolOp::Free),
        1 => id.clone().prop_map(BufferPoolOp::Return),
        2 => id.clone().prop_map(BufferPoolOp::Repost),
        1 => id.clone().prop_map(BufferPoolOp::Unpost),
        1 => (id.clone(), id).prop_map(|(a, b)| BufferPoolOp::UnpostAny(a, b)),
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
        let mut pair = CheckedBufferPool::new(buffers.into(), batch).unwrap();
        ops.into_iter().for_each(|op| pair.apply(op));
    }
}
