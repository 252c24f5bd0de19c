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
pub(crate) use base::cli::{CommonArgs, EndsArgs, RoundsArgs, WaitFlag};
pub(crate) use bench::{BenchArgs, SenderRate};
pub(crate) use connection::ConnectionArgs;
pub(crate) use multicast::MulticastArgs;
pub(crate) use pingpong::{Compat, PingpongArgs};
pub(crate) use pipe::PipeArgs;
pub(crate) use protocol::ProtocolKind;
pub(crate) use raw::{Means, RawArgs, RawOp, RawTransport, SeededFaults};
