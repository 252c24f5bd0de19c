//! Numbers that follow from a seed, and numbers that follow from nothing.

pub(crate) mod generator;

use std::hash::{BuildHasher, RandomState};

pub use generator::Random;

/// A number that peers and other users cannot guess; in a world, the next one of its seed.
#[must_use]
pub fn entropy() -> u64 {
    #[cfg(feature = "world")]
    if let Some(number) = crate::world::here(crate::world::Here::random) {
        return number;
    }
    RandomState::new().hash_one(0)
}
