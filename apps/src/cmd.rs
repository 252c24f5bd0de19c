//! The subcommands.

pub(crate) mod bench;
pub(crate) mod devices;
pub(crate) mod multicast;
pub(crate) mod pingpong;
pub(crate) mod pipe;
pub(crate) mod raw;
mod stream;
pub(crate) mod sweep;
