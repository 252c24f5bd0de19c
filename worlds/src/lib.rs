//! Cases for worlds: every connection of rdma-conn, byte streams and groups on every kind of device, in virtual time and by seed.
//!
//! 1. [`WorldCase::draw`](case::WorldCase::draw) draws a case from a seed: device, settings,
//!    faults, and the steps of each end.
//! 2. [`play`](play::play) plays it in a world, and checks every promise of the API.
//! 3. [`shrink`](shrink::shrink) makes a case that fails smaller.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod bytes;
pub mod case;
mod checks;
mod futures;
mod group;
mod meet;
mod places;
pub mod play;
pub mod setup;
mod shared;
pub mod shrink;
mod silence;
