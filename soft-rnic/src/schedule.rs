//! Times at which a device does what is posted: inside the post, in steps drawn from a seed, or
//! when a network would have carried it; and deadlines.

pub(crate) mod deadlines;
pub(crate) mod distance;
pub(crate) mod network;
pub(crate) mod sim;
#[cfg(feature = "simulation")]
pub(crate) mod world;
