//! The listening end: from the connection to standard output.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use base::outcome::{CommandError, CommandResult};
use base::progress;
use rdma_conn::listener::{Incoming, Listener};

use super::ending::early;
use super::task::PipeTask;
use crate::cmd::stream::{Passed, confirm, take_all};
use crate::protocol::{self, MeasuredProtocol, Purpose};
use crate::session::{
    self, SessionChannel, SessionParameters, TrafficParameters, cause, contradiction,
};

/// Reason given to a connection that is refused during a stream.
const BUSY: &str = "busy with another stream: wait for its end, or start another listener";
/// Time that one wait for a connection takes; it is repeated.
const WAIT: Duration = Duration::from_secs(1);

/// Writes what one connector sends to standard output.
pub(super) fn run<K: MeasuredProtocol>(task: PipeTask<'_>, address: SocketAddr) -> CommandResult {
    let output = std::io::stdout().as_fd().try_clone_to_owned();
    let output = File::from(output.context("no standard output")?);
    let listener = session::listen::<K>(address)?;
    let welcomed = welcome::<K>(task, &listener)?;
    session::engaged::<K, _>(&listener, "pipe", BUSY, || stream::<K>(task, welcomed, output))
}

/// A sender that was admitted.
struct Welcomed<K: MeasuredProtocol> {
    receiver: K::RecvEnd,
    wire: SessionChannel,
    config: K::Settings,
    /// Bytes of a piece.
    size: u32,
}

/// Waits for a sender that can be admitted.
fn welcome<K: MeasuredProtocol>(task: PipeTask<'_>, listener: &Listener<K>) -> Result<Welcomed<K>> {
    loop {
        let judge = |new: &SessionParameters| judge::<K>(task, new);
        let admit =
            |incoming, session: &SessionParameters| admit::<K>(task, incoming, &session.traffic);
        let admitted = session::admitted::<K, _>(listener, "pipe", WAIT, judge, admit)?;
        if let Some(((receiver, config), SessionParameters { traffic, .. }, wire)) = admitted {
            return Ok(Welcomed { receiver, wire, config, size: traffic.size });
        }
    }
}

/// Checks that the connecting end wants nothing else than this end was told.
fn judge<K: MeasuredProtocol>(task: PipeTask<'_>, new: &SessionParameters) -> Result<(), String> {
    let options = task.options;
    let wanted = new.traffic.flags::<K>(Purpose::Stream);
    let asked = session::asked::<K>(&options.connection, None, false);
    contradiction(&asked, &wanted).map_or(Ok(()), Err)
}

fn admit<K: MeasuredProtocol>(
    task: PipeTask<'_>,
    incoming: Incoming<K>,
    traffic: &TrafficParameters,
) -> Result<(K::RecvEnd, K::Settings)> {
    let PipeTask { common, options, device, .. } = task;
    let args = &options.connection;
    let config =
        protocol::hosted::<K>(common, args, Purpose::Stream, traffic.size, &traffic.terms)?;
    let mut receiver = match K::new_receiver(device, &config, 1, None) {
        Ok(receiver) => receiver,
        Err(e) => {
            incoming.refuse(&e.to_string());
            return Err(e.into());
        }
    };
    K::accept_into(incoming, &mut receiver, None, device, &config)?;
    Ok((receiver, config))
}

/// Takes the stream to its end.
fn stream<K: MeasuredProtocol>(
    task: PipeTask<'_>,
    welcomed: Welcomed<K>,
    mut output: File,
) -> CommandResult {
    let PipeTask { common, ending, .. } = task;
    let Welcomed { mut receiver, mut wire, config, size } = welcomed;
    let bar = progress::stream(None, common.json);
    ending.join(wire.try_clone()?, &bar);
    let mut passed = Passed::new();
    let taken = take_all(
        &mut receiver,
        &mut passed,
        |piece| output.write_all(piece).map_err(refused),
        |bytes| {
            ending.passed(bytes);
            bar.set_position(bytes);
            Ok(())
        },
    );
    let confirmed = taken.and_then(|work| match confirm(&mut wire, &passed, work)? {
        (work, None) => Ok(work),
        (_, Some(difference)) => bail!(difference),
    });
    passed.end();
    bar.finish_and_clear();
    let work = confirmed.map_err(|e| early(cause(e, [&mut wire]), passed.bytes))?;
    task.report::<K>(&config, size, &passed, work)
}

/// Returns the failure of an output that takes nothing more.
fn refused(error: std::io::Error) -> CommandError {
    match error.kind() {
        ErrorKind::BrokenPipe => anyhow!("the reader of standard output has gone"),
        _ => CommandError::from(error).context("cannot write to standard output"),
    }
}
