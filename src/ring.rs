//! What the ring connections (Buffered Read, Buffered Write) share: set-up, memory,
//! policies of the ring.

// Each connection uses what it needs of it.
#[allow(dead_code)]
pub(crate) mod memory;
#[allow(dead_code)]
pub(crate) mod setup;
mod shape;
pub(crate) mod turns;

pub use shape::{Layout, RingShape};
