//! The listening end: from the connection to standard output.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rdma_conn::listener::{Incoming, Listener};

use super::report::report;
use super::{Passed, Task, Whole, early};
use crate::bench::HAS_COME;
use crate::note::{Note, Wire, cause};
use crate::outcome::{Failure, Outcome};
use crate::progress;
use crate::protocol::{Kind, Purpose, Receiving, Taken, Work};
use crate::session::{self, Guest, Session, contradiction};

/// What whoever comes during a stream is told.
const BUSY: &str = "busy with another stream: wait for its end, or start another listener";
/// How long somebody, or something, is waited for until it is waited for again.
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

/// Somebody who was let in.
struct Welcomed<K: Kind> {
    receiver: K::Receiver,
    wire: Wire,
    config: K::Config,
    /// Bytes of a piece.
    size: u32,
}

/// Waits for somebody who can be let in.
fn welcome<K: Kind>(task: Task<'_>, listener: &Listener<K>) -> Result<Welcomed<K>> {
    loop {
        let Some(guest) = session::next_peer::<K>(listener, "pipe", WAIT)? else { continue };
        if let Err(why) = judge::<K>(task, &guest.session) {
            guest.refuse(&why);
            continue;
        }
        let Guest { incoming, session, wire } = guest;
        let from = incoming.from();
        match admit::<K>(task, incoming, session, wire) {
            Ok(welcomed) => return Ok(welcomed),
            Err(e) => session::refused(from, &format!("{e:#}")),
        }
    }
}

/// Whether it wants something else than this end was told.
fn judge<K: Kind>(task: Task<'_>, session: &Session<K::Wish>) -> Result<(), String> {
    let options = task.options;
    let wanted = session.traffic.flags(Purpose::Stream);
    let asked = K::asked(&options.connection);
    contradiction(&asked, &wanted).map_or(Ok(()), Err)
}

fn admit<K: Kind>(
    task: Task<'_>,
    incoming: Incoming<K>,
    session: Session<K::Wish>,
    wire: Wire,
) -> Result<Welcomed<K>> {
    let Task { common, options, device, .. } = task;
    let (args, traffic) = (&options.connection, &session.traffic);
    let config = K::hosted(common, args, Purpose::Stream, traffic.size, &traffic.wish);
    let made = K::receiver(device, &config, 1, None);
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
    mut receiver: K::Receiver,
    mut wire: Wire,
    mut output: File,
    (config, size): (&K::Config, u32),
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

/// Writes all that comes, until the other end says goodbye.
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

/// Why nothing more can be written.
fn refused(error: std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => anyhow!("nobody reads standard output any more"),
        _ => Failure::from(error).context("cannot write to standard output"),
    }
}

/// Compares what was written with what was sent, and tells the other end. A goodbye alone
/// is no end: whoever fails says goodbye, too.
fn settle(wire: &mut Wire, passed: &Passed, here: Work) -> Result<Whole> {
    let checksum = passed.checksum();
    match wire.hear()? {
        Note::Streamed { bytes, crc32, work } => {
            let (equal, work) = ((bytes, crc32) == (passed.bytes, checksum), work + here);
            wire.tell(&Note::Arrived { messages: passed.messages, work, equal: Some(equal) })?;
            match equal {
                true => Ok(Whole { work, checksum }),
                false => bail!(
                    "{} bytes with checksum {checksum:08x} have arrived, {bytes} with {crc32:08x} \
                     were sent",
                    passed.bytes
                ),
            }
        }
        Note::Failed(why) => bail!("the other end: {why}"),
        other => bail!("the other end says {other:?}"),
    }
}
