//! The connecting end: from standard input into the connection.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::outcome::Outcome;
use base::progress;
use rustix::event::{PollFd, PollFlags};

use super::ending::early;
use super::report::report;
use super::stream::{Passed, Task, Whole};
use crate::cli::Pipe;
use crate::measure::Work;
use crate::protocol::{Kind, Sending};
use crate::session::{self, Channel, Control, Part, Session, Traffic, cause};

/// Sends standard input to the listener at `address`.
pub(super) fn run<K: Kind>(task: Task<'_>, config: &K::Settings, address: SocketAddr) -> Outcome {
    let Task { common, options, device, ending } = task;
    let mut input = Input::new()?;
    let mut stream = session::dial(address)?;
    let session = session::<K>(task, config).encode()?;
    let made = K::connect_sender(&mut stream, device, config, &session);
    let mut sender = made.map_err(|e| session::explain(e, address, "pipe"))?;
    let bar = progress::stream(input.length, common.json);
    ending.join(Channel::new(stream.try_clone()?)?, &bar);
    let mut wire = Channel::new(stream)?;
    let mut passed = Passed::new();
    let sent =
        pump(&mut sender, &mut input, &mut wire, options.size as usize, &mut passed, |bytes| {
            ending.passed(bytes);
            bar.set_position(bytes);
        });
    let sent = sent.and_then(|()| sender.wait_all());
    let work = sender.work();
    // An error of sending is reported first: closing then fails as a consequence.
    let closed = sender.close();
    let settled = sent.and(closed).and_then(|()| settle(work, &mut wire, &passed));
    bar.finish_and_clear();
    let whole = settled.map_err(|e| early(cause(e, [&mut wire]), passed.bytes))?;
    report::<K>(task, config, options.size, &passed, whole)
}

/// Describes the stream to the other end.
fn session<K: Kind>(task: Task<'_>, config: &K::Settings) -> Session {
    let Pipe { connection, size, .. } = task.options;
    Part::only().session("pipe", 1, 0, Traffic::new::<K>(connection, config, *size, false))
}

/// Says what was sent; what the other end makes of it.
fn settle(work: Work, wire: &mut Channel, passed: &Passed) -> Result<Whole> {
    let checksum = passed.checksum();
    wire.tell(&Control::Streamed { bytes: passed.bytes, crc32: checksum, work })?;
    // The reader of the other end's output may take its time.
    match wire.hear_whenever()? {
        Control::Arrived { equal: Some(true), work, .. } => Ok(Whole { work, checksum }),
        Control::Arrived { .. } => bail!("what has arrived is not what was sent"),
        other => session::unexpected(other),
    }
}

/// Sends all that there is to read.
fn pump(
    sender: &mut impl Sending,
    input: &mut Input,
    wire: &mut Channel,
    piece: usize,
    passed: &mut Passed,
    mut tell: impl FnMut(u64),
) -> Result<()> {
    let mut scratch = vec![0; piece];
    loop {
        input.wait(wire)?;
        let sent = sender.send_up_to(&mut scratch, |room| {
            let got = input.read(room)?;
            if got > 0 {
                passed.add(&room[..got]);
            }
            Ok(got)
        })?;
        if sent == 0 {
            return Ok(());
        }
        if sent < scratch.len() {
            // There may be no more for long.
            sender.flush()?;
        }
        tell(passed.bytes);
    }
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
    fn wait(&self, wire: &mut Channel) -> Result<()> {
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

    fn read(&mut self, room: &mut [u8]) -> Result<usize> {
        loop {
            match self.file.read(room) {
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
fn heard(wire: &mut Channel) -> Result<()> {
    match wire.hear_within(Duration::from_millis(1))? {
        None => Ok(()),
        Some(other) => bail!("the other end says {other:?}"),
    }
}
