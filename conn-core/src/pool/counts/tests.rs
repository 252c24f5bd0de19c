use std::{println, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};

#[test]
fn every_short_history_agrees_with_the_model() {
    let mut histories = 0;
    for buffers in 1..=4 {
        let numbers = 0..=buffers as u8 + 1;
        let ops: Vec<PoolCountsOp> = numbers
            .flat_map(|n| {
                [
                    PoolCountsOp::Lend(n),
                    PoolCountsOp::Free(n),
                    PoolCountsOp::Return(n),
                    PoolCountsOp::Repost(n),
                ]
            })
            .collect();
        for batch in 1..=buffers + 1 {
            histories += every_history(&CheckedPoolCounts::new(buffers, batch).unwrap(), &ops, 4);
        }
    }
    println!("pool counts: {histories} histories");
    assert!(histories > 1_000_000);
}

#[test]
fn what_makes_no_pool_is_refused() {
    let new = |n, repost_batch| PoolCounts::new(n, PoolConfig { repost_batch }).map(|_| ());
    assert_eq!(new(0, 1), Err(PoolConfigError::NoBuffers));
    assert_eq!(new(1, 0), Err(PoolConfigError::EmptyBatch));
    assert_eq!(new(MAX_BUFFERS, u32::MAX), Ok(()));
    assert_eq!(new(MAX_BUFFERS + 1, 1), Err(PoolConfigError::TooManyBuffers));
}

fn op() -> impl Strategy<Value = PoolCountsOp> {
    prop_oneof![
        (0..8u8).prop_map(PoolCountsOp::Lend),
        (0..8u8).prop_map(PoolCountsOp::Free),
        (0..2u8).prop_map(PoolCountsOp::Return),
        (0..8u8).prop_map(PoolCountsOp::Repost),
    ]
}

proptest! {
    #[test]
    fn long_histories_agree_with_the_model(
        buffers in 1..40u32,
        batch in 1..50u32,
        ops in proptest::collection::vec(op(), 0..300),
    ) {
        let mut pair = CheckedPoolCounts::new(buffers, batch).unwrap();
        ops.into_iter().for_each(|op| pair.apply(op));
    }
}
