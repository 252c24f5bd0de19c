//! Numbers that follow from a seed, and numbers that follow from nothing.

use std::hash::{BuildHasher, RandomState};

pub use crate::generator::Random;

/// A number that peers and other users cannot guess; in a world, the next one of its seed.
#[must_use]
pub fn entropy() -> u64 {
    in_world!(return crate::world::CurrentTask::random);
    RandomState::new().hash_one(0)
}

/// Numbers as [`entropy`]'s, of what a process keeps for ever. In a world they are always the same: a process's first
/// world would draw other numbers of its seed otherwise than later ones.
#[must_use]
pub fn lasting<const N: usize>() -> [u64; N] {
    let mut fixed = Random::new(0);
    core::array::from_fn(|_| if crate::is_in_world() { fixed.next_u64() } else { entropy() })
}
