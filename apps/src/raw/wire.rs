//! What the ends say to each other beside the queue pairs: the handshakes, and notes
//! before the end. Whoever waits looks here for an end that has gone.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rdma_conn::handshake::Stream;
use serde::{Deserialize, Serialize};

use super::report::Line;

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
    /// The follower has received so many messages, with so many requests of its own.
    Received { messages: u64, operations: u64, reordered: u64, repeated: u64 },
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

impl Wire {
    /// The stream to another process.
    pub(super) fn tcp(stream: TcpStream) -> Result<Wire> {
        crate::note::notice_death(&stream)?;
        Ok(Wire::Tcp(stream))
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
        let mut bytes = vec![0; 4];
        serde_json::to_writer(&mut bytes, note)?;
        let length = bytes.len() - 4;
        ensure!(length <= MAX_NOTE, "a note of {length} bytes");
        bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
        self.set_timeout(PATIENCE)?;
        self.write_all(&bytes).context("the other end has gone")
    }

    /// Tells the other end why this one does not go on; whether it hears it does not
    /// matter.
    pub(super) fn give_up(&mut self, why: &anyhow::Error) {
        let mut text = format!("{why:#}");
        text.truncate(text.floor_char_boundary(1000));
        if let Err(e) = self.tell(&Note::Failed(text)) {
            tracing::debug!(error = %e, "the other end was not told");
        }
    }

    /// Waits for what the other end says.
    pub(super) fn hear(&mut self) -> Result<Note> {
        self.set_timeout(PATIENCE)?;
        let mut first = [0];
        self.read_exact(&mut first).context("the other end has gone")?;
        self.hear_after(first[0])
    }

    /// As [`hear`](Self::hear), however long it takes.
    pub(super) fn hear_whenever(&mut self) -> Result<Note> {
        let mut first = [0];
        loop {
            self.set_timeout(PATIENCE)?;
            match self.read(&mut first) {
                Ok(0) => bail!("the other end has gone"),
                Ok(_) => return self.hear_after(first[0]),
                Err(e) if is_timeout(e.kind()) => {}
                Err(e) => return Err(e).context("the other end has gone"),
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
            Ok(0) => bail!("the other end has gone"),
            Ok(_) => self.hear_after(first[0]).map(Some),
            Err(e) if is_timeout(e.kind()) => Ok(None),
            Err(e) => Err(e).context("the other end has gone"),
        }
    }

    /// The note whose first byte was read.
    fn hear_after(&mut self, first: u8) -> Result<Note> {
        self.set_timeout(PATIENCE)?;
        let mut length = [first, 0, 0, 0];
        self.read_exact(&mut length[1..]).context("the other end has gone")?;
        let length = u32::from_le_bytes(length) as usize;
        ensure!(length <= MAX_NOTE, "the other end says something else ({length} bytes)");
        let mut bytes = vec![0; length];
        self.read_exact(&mut bytes).context("the other end has gone")?;
        serde_json::from_slice(&bytes).context("the other end says something else")
    }
}

/// A read that has come to its limit would have blocked; one that has timed out is the
/// end of a stream to a host that does not answer.
fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
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

/// The wire during a set-up of many steps, which has a limit of its own: each step may
/// take its time, and all of them no more than that.
#[derive(Debug)]
pub(super) struct Hurried<'w> {
    wire: &'w mut Wire,
    end: Instant,
}

impl<'w> Hurried<'w> {
    pub(super) fn new(wire: &'w mut Wire, limit: Duration) -> Hurried<'w> {
        Hurried { wire, end: Instant::now() + limit }
    }
}

impl Read for Hurried<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.wire.read(buffer)
    }
}

impl Write for Hurried<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.wire.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.wire.flush()
    }
}

impl Stream for Hurried<'_> {
    fn set_timeout(&self, time: Duration) -> std::io::Result<()> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.wire.set_timeout(time.min(left))
    }
}

#[cfg(test)]
mod tests {
    use rdma_conn::raw::Incoming;

    use super::*;

    /// However much time each single step would have.
    #[test]
    fn a_set_up_ends_with_its_time() {
        for limit in [Duration::ZERO, Duration::from_millis(1)] {
            let (near, _silent) = UnixStream::pair().unwrap();
            let mut wire = Wire::Unix(near);
            let late = Incoming::greet(&mut Hurried::new(&mut wire, limit)).unwrap_err();
            assert!(late.to_string().contains("handshake"), "{late}");
        }
    }

    #[test]
    fn a_wait_ends_with_the_host_at_the_other_end() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let Wire::Tcp(near) = Wire::tcp(near).unwrap() else { panic!("a TCP stream") };
        assert!(rustix::net::sockopt::socket_keepalive(&near).unwrap());
        assert!(!is_timeout(ErrorKind::TimedOut), "what is told then is the end");
    }

    #[test]
    fn more_messages_than_can_be_counted_are_an_error() {
        let sent = |sent: &[u64]| Totals { sent: sent.to_vec() }.messages();
        assert_eq!(sent(&[]).unwrap(), 0);
        assert_eq!(sent(&[u64::MAX - 1, 1]).unwrap(), u64::MAX);
        assert!(sent(&[u64::MAX, 1]).unwrap_err().to_string().contains("can be counted"));
    }
}
