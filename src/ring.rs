//! Parts that the ring connections (Buffered Read, Buffered Write) share: terms, memory, policies
//! of the ring.

pub(crate) mod memory;
mod shape;
pub(crate) mod terms;
pub(crate) mod turns;

pub use shape::{Layout, RingShape};
