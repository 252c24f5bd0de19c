//! The connecting end: from standard input into the connection.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::outcome::CommandResult;
use base::progress;
use rustix::event::{PollFd, PollFlags};

use super::ending::early;
use super::task::PipeTask;
use crate::cli::PipeArgs;
use crate::cmd::stream::{Passed, confirmed, send_all};
use crate::protocol::MeasuredProtocol;
use crate::session::{
    self, MeasurementIndex, SessionChannel, SessionParameters, TrafficParameters, cause,
};

/// Sends standard input to the listener at `address`.
pub(super) fn run<K: MeasuredProtocol>(
    task: PipeTask<'_>,
    config: &K::Settings,
    address: SocketAddr,
) -> CommandResult {
    let PipeTask { common, options, device, ending } = task;
    let input = Input::new()?;
    let mut stream = session::dial(address)?;
    let session = session::<K>(task, config).encode()?;
    let made = K::connect_sender(&mut stream, device, config, &session);
    let sender = made.map_err(|e| session::explain(e, address, "pipe"))?;
    let bar = progress::stream(input.length, common.json);
    ending.join(SessionChannel::new(stream.try_clone()?)?, &bar);
    let mut wire = SessionChannel::new(stream)?;
    let mut passed = Passed::new();
    let sent = send_all(
        sender,
        options.size,
        &mut passed,
        |room| input.read(room),
        |bytes| {
            ending.passed(bytes);
            bar.set_position(bytes);
            input.wait(&mut wire)
        },
    );
    // The reader of the other end's output may take its time.
    let hear = SessionChannel::hear_whenever;
    let confirmed = sent.and_then(|work| confirmed(&mut wire, &passed, work, hear));
    passed.end();
    bar.finish_and_clear();
    let work = confirmed.map_err(|e| early(cause(e, [&mut wire]), passed.bytes))?;
    task.report::<K>(config, options.size, &passed, work)
}

/// Describes the stream to the other end.
fn session<K: MeasuredProtocol>(task: PipeTask<'_>, config: &K::Settings) -> SessionParameters {
    let PipeArgs { connection, size, .. } = task.options;
    MeasurementIndex::only().session(
        "pipe",
        1,
        0,
        TrafficParameters::new::<K>(connection, config, *size, false),
    )
}

/// Standard input.
struct Input {
    file: File,
    /// Rest of the input, if it is a file.
    length: Option<u64>,
}

impl Input {
    fn new() -> Result<Input> {
        let file = std::io::stdin().as_fd().try_clone_to_owned();
        let mut file = File::from(file.context("no standard input")?);
        let about = file.metadata().context("no standard input")?;
        let length = about
            .is_file()
            .then(|| file.stream_position().map(|at| about.len() - at.min(about.len())));
        Ok(Input { file, length: length.and_then(Result::ok) })
    }

    /// Waits until there is something to read, or no more. An other end that goes, or has
    /// something to say, ends the wait.
    fn wait(&self, wire: &mut SessionChannel) -> Result<()> {
        loop {
            let mut fds = [
                PollFd::new(&self.file, PollFlags::IN),
                PollFd::from_borrowed_fd(wire.as_fd(), PollFlags::IN),
            ];
            match host::fd::poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                done => done.context("cannot wait for standard input")?,
            };
            let [input, other] = fds.map(|fd| !fd.revents().is_empty());
            if other {
                heard(wire)?;
            }
            if input {
                return Ok(());
            }
        }
    }

    fn read(&self, room: &mut [u8]) -> Result<usize> {
        loop {
            match (&self.file).read(room) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
                    // What fails here fails there again.
                    let _ = host::fd::poll(&mut fds, None);
                }
                done => return done.context("cannot read standard input"),
            }
        }
    }
}

/// The other end has nothing to say before the end, unless it gives up.
fn heard(wire: &mut SessionChannel) -> Result<()> {
    match wire.hear_within(Duration::from_millis(1))? {
        None => Ok(()),
        Some(other) => bail!("the other end says {other:?}"),
    }
}
