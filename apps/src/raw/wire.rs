//! What the ends say to each other beside the queue pairs: the handshakes, and notes
//! before the end. Whoever waits looks here for an end that has gone.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rdma_conn::handshake::Stream;
use rdma_conn::verbs_safe::{WcError, WcStatus};
use serde::{Deserialize, Serialize};

use super::report::Line;
use crate::frame::{self, GONE, is_late};
use crate::outcome::Failure;

/// The longest note, in bytes.
const MAX_NOTE: usize = 16_384;
/// How long the other end may take to say what it has to say.
const PATIENCE: Duration = Duration::from_secs(60);

/// The byte stream to the other end.
#[derive(Debug)]
pub(super) enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// None: the other program has closed it.
    Closed,
}

/// What an end says when it has finished, or cannot go on.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(super) enum Note {
    /// The leader has sent all.
    Done(Totals),
    /// The follower has received so many messages, with so many requests of its own; its
    /// device has counted so many that came from another process and found no receive.
    Received { messages: u64, operations: u64, reordered: u64, repeated: u64, missed: Option<u64> },
    /// What has come of it, for the follower to print.
    Results(Vec<Line>),
    /// Something failed.
    Failed(String),
}

/// What the leader has sent.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
pub(super) struct Totals {
    /// Messages, by queue pair.
    pub(super) sent: Vec<u64>,
}

impl Totals {
    /// Messages of all queue pairs.
    pub(super) fn messages(&self) -> Result<u64> {
        let sum = self.sent.iter().try_fold(0_u64, |sum, sent| sum.checked_add(*sent));
        sum.context("the other end says that it has sent more messages than can be counted")
    }
}

/// What an end that does not go on has said.
enum LastWords {
    Why(String),
    /// Nothing, and it lives; or what follows from the failure here.
    Nothing,
    /// It has ended.
    Gone,
}

/// Of a queue pair that does not work any more, for whatever reason.
pub(super) const LOST: &str = "the peer was lost";
pub(super) const UNRECEIVED: &str = "a receive failed";

/// Whether what an end says is what any end sees of a failure at the other one.
fn is_symptom(why: &str) -> bool {
    ["the other end: ", LOST, UNRECEIVED].iter().any(|symptom| why.starts_with(symptom))
}

const ENDED: &str = "the other end has gone: look why it has ended, and start both again";
/// How long an end that has failed looks for the cause at the other.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl Wire {
    /// The stream to another process.
    pub(super) fn tcp(stream: TcpStream) -> Result<Wire> {
        crate::note::notice_death(&stream)?;
        Ok(Wire::Tcp(stream))
    }

    /// Whether the other end is in this process.
    pub(super) fn stays_within(&self) -> bool {
        matches!(self, Wire::Unix(_))
    }

    fn set_nonblocking(&self, on: bool) -> std::io::Result<()> {
        match self {
            Wire::Tcp(stream) => stream.set_nonblocking(on),
            Wire::Unix(stream) => stream.set_nonblocking(on),
            Wire::Closed => Ok(()),
        }
    }

    /// Says something.
    pub(super) fn tell(&mut self, note: &Note) -> Result<()> {
        frame::write(self, note, MAX_NOTE, PATIENCE)
    }

    /// Tells the other end why this one does not go on; whether it hears it does not
    /// matter.
    pub(super) fn give_up(&mut self, why: &anyhow::Error) {
        frame::give_up(why, |why| self.tell(&Note::Failed(why)));
    }

    /// Tells the other end of a failure, and looks there for its cause: who has gone, or has
    /// failed before, breaks queue pairs here.
    pub(super) fn cause(&mut self, failure: Failure) -> Failure {
        self.give_up(&failure);
        let is_gone = failure.to_string() == GONE;
        let is_lost = failure.downcast_ref().is_some_and(|error: &WcError| {
            [WcStatus::RETRY_EXC, WcStatus::WR_FLUSH, WcStatus::REM_OP, WcStatus::REM_ACCESS]
                .contains(&error.status)
        });
        if !is_gone && !is_lost {
            return failure;
        }
        match self.last_words(LAST_WORDS) {
            LastWords::Why(why) => anyhow!("the other end: {why}"),
            LastWords::Gone if is_gone => anyhow!(ENDED),
            LastWords::Gone => failure.context(ENDED),
            LastWords::Nothing => failure,
        }
    }

    /// What the other end says last, in so much `time` at most.
    fn last_words(&mut self, time: Duration) -> LastWords {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            // No time at all would be for ever.
            let time = left.max(Duration::from_millis(1));
            let mut first = [0];
            let ready = self.set_timeout(time);
            match ready.and_then(|()| self.read(&mut first)) {
                Ok(1..) => {}
                Err(e) if is_timeout(e.kind()) && !left.is_zero() => continue,
                Err(e) if is_timeout(e.kind()) => return LastWords::Nothing,
                _ => return LastWords::Gone,
            }
            match self.hear_after(first[0], time) {
                Ok(Note::Failed(why)) if is_symptom(&why) => return LastWords::Nothing,
                Ok(Note::Failed(why)) => return LastWords::Why(why),
                // What it had to say before; but who never stops has no cause to tell.
                Ok(_) if !left.is_zero() => {}
                Ok(_) => return LastWords::Nothing,
                Err(_) => return LastWords::Gone,
            }
        }
    }

    /// Waits for what the other end says.
    pub(super) fn hear(&mut self) -> Result<Note> {
        self.hear_within(PATIENCE)
    }

    /// As [`hear`](Self::hear), if it begins to within `time`.
    fn hear_within(&mut self, time: Duration) -> Result<Note> {
        self.set_timeout(time)?;
        let mut first = [0];
        match self.read_exact(&mut first) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => bail!(GONE),
            Err(e) if is_late(e.kind()) => bail!("the other end has said nothing for {time:?}"),
            read => read.context(GONE)?,
        }
        self.hear_after(first[0], PATIENCE)
    }

    /// As [`hear`](Self::hear), however long it takes.
    pub(super) fn hear_whenever(&mut self) -> Result<Note> {
        let mut first = [0];
        loop {
            self.set_timeout(PATIENCE)?;
            match self.read(&mut first) {
                Ok(0) => bail!(GONE),
                Ok(_) => return self.hear_after(first[0], PATIENCE),
                Err(e) if is_timeout(e.kind()) => {}
                Err(e) => return Err(e).context(GONE),
            }
        }
    }

    /// What the other end has said, if it has said something.
    pub(super) fn heard(&mut self) -> Result<Option<Note>> {
        let mut first = [0];
        self.set_nonblocking(true)?;
        let read = self.read(&mut first);
        self.set_nonblocking(false)?;
        match read {
            Ok(0) => bail!(GONE),
            Ok(_) => self.hear_after(first[0], PATIENCE).map(Some),
            Err(e) if is_timeout(e.kind()) => Ok(None),
            Err(e) => Err(e).context(GONE),
        }
    }

    /// The note whose first byte was read, which ends within `time`.
    fn hear_after(&mut self, first: u8, time: Duration) -> Result<Note> {
        frame::read_rest(self, first, MAX_NOTE, time)
    }
}

/// Whether somebody who has said nothing yet is still waited for.
fn is_timeout(kind: ErrorKind) -> bool {
    is_late(kind) || kind == ErrorKind::Interrupted
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Wire::Tcp(stream) => stream.read(buffer),
            Wire::Unix(stream) => stream.read(buffer),
            Wire::Closed => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Wire::Tcp(stream) => stream.write(bytes),
            Wire::Unix(stream) => stream.write(bytes),
            Wire::Closed => Err(ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Stream for Wire {
    fn set_timeout(&self, time: Duration) -> std::io::Result<()> {
        match self {
            Wire::Tcp(stream) => stream.set_timeout(time),
            Wire::Unix(stream) => stream.set_timeout(time),
            Wire::Closed => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_host_at_the_other_end() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let Wire::Tcp(near) = Wire::tcp(near).unwrap() else { panic!("a TCP stream") };
        assert!(rustix::net::sockopt::socket_keepalive(&near).unwrap());
        assert!(!is_timeout(ErrorKind::TimedOut), "what is told then is the end");
    }

    #[test]
    fn who_is_silent_is_there_and_half_a_word_is_not_waited_for() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut near = Wire::Unix(near);
        let silent = near.hear_within(Duration::from_millis(1)).unwrap_err();
        assert_eq!(format!("{silent:#}"), "the other end has said nothing for 1ms");
        let mut note = vec![0; 4];
        serde_json::to_writer(&mut note, &Note::Failed("too late".into())).unwrap();
        note[0] = note.len() as u8 - 4;
        far.write_all(&note[..1]).unwrap();
        let (over, is_over) = std::sync::mpsc::channel::<()>();
        // The rest comes while somebody with more patience would still wait.
        let rest = std::thread::spawn(move || {
            let _ = is_over.recv_timeout(PATIENCE / 2);
            let _ = far.write_all(&note[1..]);
        });
        assert!(matches!(near.last_words(Duration::from_millis(1)), LastWords::Gone));
        drop(over);
        rest.join().unwrap();
    }

    #[test]
    fn more_messages_than_can_be_counted_are_an_error() {
        let sent = |sent: &[u64]| Totals { sent: sent.to_vec() }.messages();
        assert_eq!(sent(&[]).unwrap(), 0);
        assert_eq!(sent(&[u64::MAX - 1, 1]).unwrap(), u64::MAX);
        assert!(sent(&[u64::MAX, 1]).unwrap_err().to_string().contains("can be counted"));
    }
}
