//! The listening end: from the connection to standard output.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use base::outcome::{Failure, Outcome};
use base::progress;
use rdma_conn::listener::{Incoming, Listener};

use super::ending::early;
use super::report::report;
use super::stream::{Passed, Task, Whole};
use crate::measure::{HAS_COME, Work};
use crate::protocol::{self, Kind, Purpose, Receiving, Taken};
use crate::session::{self, Channel, Control, Pending, Session, cause, contradiction};

/// Reason given to a connection that is refused during a stream.
const BUSY: &str = "busy with another stream: wait for its end, or start another listener";
/// Time that one wait for a connection, or for a message, takes; it is repeated.
const WAIT: Duration = Duration::from_secs(1);

/// Writes what one connector sends to standard output.
pub(super) fn run<K: Kind>(task: Task<'_>, address: SocketAddr) -> Outcome {
    let output = std::io::stdout().as_fd().try_clone_to_owned();
    let output = File::from(output.context("no standard output")?);
    let listener = session::listen::<K>(address)?;
    let Welcomed { receiver, wire, config, size } = welcome::<K>(task, &listener)?;
    session::engaged::<K, _>(&listener, "pipe", BUSY, || {
        stream::<K>(task, receiver, wire, output, (&config, size))
    })
}

/// A sender that was admitted.
struct Welcomed<K: Kind> {
    receiver: K::RecvEnd,
    wire: Channel,
    config: K::Settings,
    /// Bytes of a piece.
    size: u32,
}

/// Waits for a sender that can be admitted.
fn welcome<K: Kind>(task: Task<'_>, listener: &Listener<K>) -> Result<Welcomed<K>> {
    loop {
        let Some(pending) = session::next_peer::<K>(listener, "pipe", WAIT)? else { continue };
        if let Err(why) = judge::<K>(task, &pending.session) {
            pending.refuse(&why);
            continue;
        }
        let Pending { incoming, session, wire } = pending;
        let from = incoming.from();
        match admit::<K>(task, incoming, session, wire) {
            Ok(welcomed) => return Ok(welcomed),
            Err(e) => session::refused(from, &format!("{e:#}")),
        }
    }
}

/// Checks that the connecting end wants nothing else than this end was told.
fn judge<K: Kind>(task: Task<'_>, new: &Session) -> Result<(), String> {
    let options = task.options;
    let wanted = new.traffic.flags::<K>(Purpose::Stream);
    let asked = session::asked::<K>(&options.connection, None, false);
    contradiction(&asked, &wanted).map_or(Ok(()), Err)
}

fn admit<K: Kind>(
    task: Task<'_>,
    incoming: Incoming<K>,
    session: Session,
    wire: Channel,
) -> Result<Welcomed<K>> {
    let Task { common, options, device, .. } = task;
    let (args, traffic) = (&options.connection, &session.traffic);
    let config =
        protocol::hosted::<K>(common, args, Purpose::Stream, traffic.size, &traffic.terms)?;
    let made = K::new_receiver(device, &config, 1, None);
    let mut receiver = match made {
        Ok(receiver) => receiver,
        Err(e) => {
            incoming.refuse(&e.to_string());
            return Err(e.into());
        }
    };
    K::accept_into(incoming, &mut receiver, None, device, &config)?;
    Ok(Welcomed { receiver, wire, config, size: session.traffic.size })
}

/// Takes the stream to its end.
fn stream<K: Kind>(
    task: Task<'_>,
    mut receiver: K::RecvEnd,
    mut wire: Channel,
    mut output: File,
    (config, size): (&K::Settings, u32),
) -> Outcome {
    let Task { common, ending, .. } = task;
    let bar = progress::stream(None, common.json);
    ending.join(wire.try_clone()?, &bar);
    let mut passed = Passed::new();
    let drained = drain(&mut receiver, &mut output, &mut passed, |bytes| {
        ending.passed(bytes);
        bar.set_position(bytes);
    });
    let settled = drained.and_then(|()| settle(&mut wire, &passed, receiver.work()));
    bar.finish_and_clear();
    let whole = settled.map_err(|e| early(cause(e, [&mut wire]), passed.bytes))?;
    report::<K>(task, config, size, &passed, whole)
}

/// Writes all received bytes, until the other end says goodbye.
fn drain(
    receiver: &mut impl Receiving,
    output: &mut File,
    passed: &mut Passed,
    mut tell: impl FnMut(u64),
) -> Result<()> {
    loop {
        let is_first = passed.messages == 0;
        let taken = receiver.take(Some(WAIT), |_, piece| {
            passed.add(piece);
            output.write_all(piece).map_err(refused)
        })?;
        match taken {
            Taken::Some(_) if is_first => tracing::info!("{HAS_COME}"),
            Taken::Some(_) | Taken::Nothing => {}
            Taken::Closed => return Ok(()),
        }
        tell(passed.bytes);
    }
}

/// Returns the failure of an output that takes nothing more.
fn refused(error: std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => anyhow!("the reader of standard output has gone"),
        _ => Failure::from(error).context("cannot write to standard output"),
    }
}

/// Compares what was written with what was sent, and tells the other end. A goodbye alone
/// proves nothing: an end that fails says goodbye, too.
fn settle(wire: &mut Channel, passed: &Passed, here: Work) -> Result<Whole> {
    let checksum = passed.checksum();
    match wire.hear()? {
        Control::Streamed { bytes, crc32, work } => {
            let (equal, work) = ((bytes, crc32) == (passed.bytes, checksum), work + here);
            wire.tell(&Control::Arrived { messages: passed.messages, work, equal: Some(equal) })?;
            match equal {
                true => Ok(Whole { work, checksum }),
                false => bail!(
                    "{} bytes with checksum {checksum:08x} have arrived, {bytes} with {crc32:08x} \
                     were sent",
                    passed.bytes
                ),
            }
        }
        other => session::unexpected(other),
    }
}
