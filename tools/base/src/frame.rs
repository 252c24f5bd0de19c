//! Control messages on a stream: four bytes of length, and JSON. A limit is that of the whole
//! message, and not of each part of it: a peer that sends or takes a byte now and then gains no
//! time.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rdma_conn::handshake::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::outcome::CommandError;

/// Error text about an end that no longer speaks.
pub const GONE: &str = "the other end has gone";

/// The most bytes of its reason that an end sends when it gives up.
const MOST_OF_WHY: usize = 1000;

/// Tells another end, by `tell`, why this one gives up; whether it is received does not matter.
pub fn give_up(why: &CommandError, tell: impl FnOnce(String) -> Result<()>) {
    let mut text = format!("{why:#}");
    text.truncate(text.floor_char_boundary(MOST_OF_WHY));
    if let Err(e) = tell(text) {
        tracing::debug!(error = %e, "the other end was not told");
    }
}

/// Writes a control message of up to `most` bytes.
pub fn write(
    stream: &mut impl Stream,
    note: &impl Serialize,
    most: usize,
    limit: Duration,
) -> Result<()> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, note)?;
    let length = bytes.len() - 4;
    ensure!(length <= most, "a note of {length} bytes");
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    let written = Hurried::new(stream, limit).write_all(&bytes);
    written.map_err(|e| ended(e, || format!("the other end has not read a note in {limit:?}")))
}

/// Reads a control message of up to `most` bytes, for as long as the stream's own timeout allows until
/// it begins, and for `limit` until it ends.
pub fn read<N: DeserializeOwned>(
    stream: &mut impl Stream,
    most: usize,
    limit: Duration,
) -> Result<N> {
    let mut first = [0];
    stream.read_exact(&mut first).context(GONE)?;
    read_rest(stream, first[0], most, limit)
}

/// Reads the rest of a control message of up to `most` bytes, whose first byte is here.
pub fn read_rest<N: DeserializeOwned>(
    stream: &mut impl Stream,
    first: u8,
    most: usize,
    limit: Duration,
) -> Result<N> {
    let mut stream = Hurried::new(stream, limit);
    let late =
        |e| ended(e, || format!("the other end has begun a note, and not ended it in {limit:?}"));
    let mut length = [first, 0, 0, 0];
    stream.read_exact(&mut length[1..]).map_err(late)?;
    let length = u32::from_le_bytes(length) as usize;
    ensure!(length <= most, "the other end says something else ({length} bytes)");
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).map_err(late)?;
    serde_json::from_slice(&bytes).context("the other end says something else")
}

/// Explains an error of the stream: the time is over, or the other end is not there.
fn ended(error: std::io::Error, late: impl FnOnce() -> String) -> CommandError {
    match is_late(error.kind()) {
        true => anyhow!(late()),
        false if error.kind() == ErrorKind::UnexpectedEof => anyhow!(GONE),
        false => CommandError::from(error).context(GONE),
    }
}

/// A step that reached its time limit would have blocked; one that timed out is the end of a
/// stream to a host that does not answer.
pub fn is_late(kind: ErrorKind) -> bool {
    kind == ErrorKind::WouldBlock
}

/// A stream until its time is over: each step may take its own, and all of them no more than that.
#[derive(Debug)]
pub struct Hurried<'s, S> {
    stream: &'s mut S,
    end: Instant,
    /// Time limit of a single step.
    step: Cell<Duration>,
}

impl<'s, S: Stream> Hurried<'s, S> {
    /// Gives all steps together the time `limit`, from now on.
    pub fn new(stream: &'s mut S, limit: Duration) -> Hurried<'s, S> {
        Hurried { stream, end: host::time::now() + limit, step: Cell::new(limit) }
    }

    /// Time that the next step may take: the step's limit, or what is left of the whole.
    fn arm(&self) -> std::io::Result<Duration> {
        let left = self.end.saturating_duration_since(host::time::now()).min(self.step.get());
        match left.is_zero() {
            true => Err(ErrorKind::WouldBlock.into()),
            false => self.stream.set_timeout(left).map(|()| left),
        }
    }
}

impl<S: Stream> Read for Hurried<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = self.arm()?;
        // In a world, a read does not block.
        self.stream.await_input(left)?;
        self.stream.read(buffer)
    }
}

impl<S: Stream> Write for Hurried<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.arm()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

impl<S: Stream> Stream for Hurried<'_, S> {
    fn set_timeout(&self, time: Duration) -> std::io::Result<()> {
        self.step.set(time);
        self.arm().map(drop)
    }

    fn await_input(&self, time: Duration) -> std::io::Result<()> {
        self.stream.await_input(self.arm()?.min(time))
    }

    fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.stream.ends()
    }
}

#[cfg(test)]
mod tests;
