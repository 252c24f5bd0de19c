//! The command line.

mod args;
mod bench;
mod connection;
mod multicast;
mod pingpong;
mod pipe;
pub(crate) mod points;
mod protocol;
mod raw;
pub(crate) mod usage;

pub(crate) use args::{Args, Command};
pub(crate) use base::cli::{Common, Ends, Rounds, Wait};
pub(crate) use bench::{Bench, Rate};
pub(crate) use connection::ConnectionArgs;
pub(crate) use multicast::Multicast;
pub(crate) use pingpong::{Compat, Pingpong};
pub(crate) use pipe::Pipe;
pub(crate) use protocol::Protocol;
pub(crate) use raw::{Faults, Means, Op, RawArgs, RawTransport};
