//! Running what is posted when it is due ([`run`]): inside the post, in steps drawn from a seed, or
//! when a network would have carried it; and at deadlines.

pub(crate) mod deadlines;
pub(crate) mod distance;
pub(crate) mod network;
mod run;
pub(crate) mod sim;
#[cfg(feature = "simulation")]
pub(crate) mod world;
