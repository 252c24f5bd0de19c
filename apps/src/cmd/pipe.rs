//! `rdma-conn pipe`: a stream of bytes from one process to another, as netcat does it.
//!
//! ```text
//!  --connect < in                                 --listen > out
//!    standard input ── pieces ── connection ──> standard output
//!    goodbye, bytes and checksum ── control ───> compares with what it has written
//!                       <────── control ──────── whether they are equal
//! ```
//!
//! An end succeeds only when all was written, and is known to be equal: the listening end
//! tells the connecting one so. A stream that ends otherwise (a signal, an end that vanishes,
//! a reader that leaves) is a failure at both.

mod ending;
mod receive;
mod send;
mod task;

use base::outcome::{CommandResult, usage};

use crate::cli::{CommonArgs, PipeArgs};
use crate::protocol::{self, MeasuredProtocol, Purpose, With};
use crate::session;
use ending::PipeEnding;
use task::PipeTask;

pub(crate) fn run(common: &CommonArgs, options: &PipeArgs) -> CommandResult {
    let protocol = options.protocol();
    protocol.check_flags(&options.connection.given.names())?;
    if options.ends.listen.is_none() && options.ends.connect.is_none() {
        return Err(usage("give one end --listen ADDRESS and the other --connect ADDRESS"));
    }
    let device = session::open_device(common, &options.ends)?;
    let ending = PipeEnding::watch()?;
    let task = PipeTask { common, options, device: &device, ending: &ending };
    let outcome = protocol.with(task);
    // The outcome is known: a signal from here on does not change it.
    ending.claim();
    outcome
}

impl With for PipeTask<'_> {
    type Out = CommandResult;

    fn with<K: MeasuredProtocol>(self) -> CommandResult {
        let options = self.options;
        let config =
            protocol::config::<K>(self.common, &options.connection, Purpose::Stream, options.size);
        K::check(&options.connection, &config, options.size)?;
        match (options.ends.listen, options.ends.connect) {
            (Some(address), _) => receive::run::<K>(self, address),
            (None, Some(address)) => send::run::<K>(self, &config, address),
            (None, None) => Ok(()), // refused before
        }
    }
}
