//! The command line.

mod args;
mod bench;
mod connection;
mod copy;
mod doctor;
mod figures;
mod multicast;
mod pingpong;
mod pipe;
pub(crate) mod points;
mod protocol;
mod raw;
mod roced;
mod soft;
mod trace;
pub(crate) mod usage;

pub(crate) use args::{Args, Command};
pub(crate) use base::cli::{Common, Ends, Rounds, Wait};
pub(crate) use bench::{Bench, Rate};
pub(crate) use connection::ConnectionArgs;
pub(crate) use copy::Copy;
pub(crate) use doctor::Doctor;
pub(crate) use figures::Figures;
pub(crate) use multicast::Multicast;
pub(crate) use pingpong::{Compat, Pingpong};
pub(crate) use pipe::Pipe;
pub(crate) use protocol::Protocol;
pub(crate) use raw::{Faults, Means, Op, RawArgs, RawTransport};
pub(crate) use roced::Roced;
pub(crate) use soft::Soft;
pub(crate) use trace::Trace;
