//! A connection as a stream of bytes: [`Read`] and [`Write`], and with the feature `tokio`
//! `AsyncRead` and `AsyncWrite` as well.
//!
//! ```
//! use std::io::{Read, Write};
//! use rdma_conn::io::ByteStream;
//! use rdma_conn::{BufferedWrite, pair};
//!
//! let device = rdma_conn::device::soft()?;
//! let (left, right) = pair::<BufferedWrite>(&device, &device, &Default::default())?;
//! let (mut left, mut right) = (ByteStream::<BufferedWrite>::new(left), ByteStream::<BufferedWrite>::new(right));
//! left.write_all(b"to the end")?;
//! left.close_write()?;
//! let mut text = String::new();
//! right.read_to_string(&mut text)?;
//! assert_eq!(text, "to the end");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "tokio")]
mod asynchronous;

use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};

use crate::error::{CloseReason, RecvError, SendError};
use crate::half::{RecvHalf, Room, SendHalf};
use crate::protocol::{Connection, Protocol};

#[cfg(feature = "tokio")]
use crate::aio::{Receiver as RecvEnd, Sender as SendEnd};
#[cfg(not(feature = "tokio"))]
use plain::{RecvEnd, SendEnd};

/// Bytes that one write passes on at most, as one message.
const CHUNK: usize = 64 << 10;

/// A connection as a stream of bytes both ways. Its halves can be [taken
/// apart](ByteStream::into_split).
///
/// A write is sent at once, as one message: gather small ones, as by
/// [`BufWriter`](std::io::BufWriter). Written bytes may be lost when the peer vanishes, as with
/// TCP; [`close_write`](ByteStream::close_write) reports whether all of them arrived. Dropping it
/// says goodbye, and the peer reads to the end.
#[derive(Debug)]
pub struct ByteStream<P: Protocol> {
    reader: ByteReader<P::Receiver>,
    writer: ByteWriter<P::Sender>,
}

/// The half of a stream that reads.
#[derive(Debug)]
pub struct ByteReader<R: RecvHalf + 'static> {
    end: RecvEnd<R>,
    /// The message that is being read, and how much of it was.
    message: Option<R::Message>,
    read: usize,
    /// The peer has closed.
    is_over: bool,
}

/// The half of a stream that writes.
#[derive(Debug)]
pub struct ByteWriter<S: SendHalf + 'static> {
    /// `None` once it is closed.
    end: Option<SendEnd<S>>,
    chunk: usize,
}

impl<P: Protocol> ByteStream<P> {
    /// Over a connection on which nothing was sent or received yet, or on which both ends know the
    /// first message of the stream.
    #[must_use]
    pub fn new(connection: Connection<P>) -> ByteStream<P> {
        let Connection { sender, receiver } = connection;
        ByteStream { reader: ByteReader::new(receiver), writer: ByteWriter::new(sender) }
    }

    /// Both halves, each for a thread or a task of its own.
    #[must_use]
    pub fn into_split(self) -> (ByteReader<P::Receiver>, ByteWriter<P::Sender>) {
        (self.reader, self.writer)
    }

    /// As [`ByteWriter::close`]: the peer reads to the end, and may still write.
    ///
    /// # Errors
    /// As [`ByteWriter::close`].
    pub fn close_write(&mut self) -> io::Result<()> {
        self.writer.close()
    }
}

impl<R: RecvHalf + 'static> ByteReader<R> {
    /// Over a receiver of one peer.
    #[must_use]
    pub fn new(half: R) -> ByteReader<R> {
        ByteReader { end: RecvEnd::new(half), message: None, read: 0, is_over: false }
    }

    /// Returns the bytes of the current message that were not read yet; none if there is no
    /// message.
    fn rest(&self) -> &[u8] {
        self.message.as_ref().map_or(&[], |message| &message[self.read..])
    }

    /// Takes the next message in; false at the end.
    fn take_in(&mut self, next: Result<R::Message, RecvError>) -> io::Result<bool> {
        match next {
            Ok(message) => (self.message, self.read) = (Some(message), 0),
            Err(RecvError::Closed) => self.is_over = true,
            Err(e) => return Err(read_error(e)),
        }
        Ok(!self.is_over)
    }

    /// Marks `bytes` bytes as read.
    fn advance(&mut self, bytes: usize) {
        self.read += bytes;
        if self.rest().is_empty() {
            self.message = None;
        }
    }

    /// Copies the available bytes.
    fn copy_out(&mut self, into: &mut [u8]) -> usize {
        let rest = self.rest();
        let bytes = rest.len().min(into.len());
        into[..bytes].copy_from_slice(&rest[..bytes]);
        self.advance(bytes);
        bytes
    }
}

impl<R: RecvHalf + 'static> Read for ByteReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        self.fill_buf()?;
        Ok(self.copy_out(into))
    }
}

impl<R: RecvHalf + 'static> BufRead for ByteReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.rest().is_empty() && !self.is_over {
            let next = self.end.half().recv();
            self.take_in(next)?;
        }
        Ok(self.rest())
    }

    fn consume(&mut self, bytes: usize) {
        self.advance(bytes);
    }
}

impl<S: SendHalf + 'static> ByteWriter<S> {
    /// Over a sender.
    #[must_use]
    pub fn new(half: S) -> ByteWriter<S> {
        let chunk = half.max_message_bytes().min(CHUNK);
        ByteWriter { end: Some(SendEnd::new(half)), chunk }
    }

    /// Ends the writing: delivers written bytes, and says goodbye to the peer, which reads to the
    /// end. It waits as [`SendHalf::close`] does. A second call has no effect.
    ///
    /// # Errors
    /// Written bytes did not arrive: [`ErrorKind::BrokenPipe`] if the peer has closed,
    /// [`ErrorKind::ConnectionReset`] if it has vanished.
    pub fn close(&mut self) -> io::Result<()> {
        let half = self.end.take().and_then(SendEnd::into_half);
        half.map_or(Ok(()), |half| half.close().map_err(write_error))
    }

    fn half(&mut self) -> io::Result<&mut S> {
        let half = self.end.as_mut().and_then(SendEnd::half);
        half.ok_or_else(|| io::Error::new(ErrorKind::BrokenPipe, "the writing half was closed"))
    }
}

impl<S: SendHalf + 'static> Write for ByteWriter<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(self.chunk)];
        if !bytes.is_empty() {
            self.half()?.send(bytes).map_err(write_error)?;
        }
        Ok(bytes.len())
    }

    fn write_vectored(&mut self, all: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes = length(all, self.chunk);
        if bytes > 0 {
            let room = self.half()?.reserve(bytes).map_err(write_error)?;
            fill(room, all, bytes).map_err(write_error)?;
        }
        Ok(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        flushed(self.half()?.flush())
    }
}

/// Bytes of all slices, as many as fit.
fn length(all: &[IoSlice<'_>], limit: usize) -> usize {
    all.iter().fold(0, |sum: usize, slice| sum.saturating_add(slice.len())).min(limit)
}

/// Sends `bytes` bytes of the slices as one message.
fn fill(mut room: impl Room, all: &[IoSlice<'_>], bytes: usize) -> Result<(), SendError> {
    let mut at = 0;
    for slice in all {
        let part = &slice[..slice.len().min(bytes - at)];
        room.write(at, part)?;
        at += part.len();
    }
    room.commit(bytes).map(drop)
}

impl<P: Protocol> Read for ByteStream<P> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.reader.read(into)
    }
}

impl<P: Protocol> BufRead for ByteStream<P> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
    }
}

impl<P: Protocol> Write for ByteStream<P> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn write_vectored(&mut self, all: &[IoSlice<'_>]) -> io::Result<usize> {
        self.writer.write_vectored(all)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// A flush succeeds if the peer has closed after all had arrived, as with TCP.
fn flushed(done: Result<(), SendError>) -> io::Result<()> {
    match done {
        Err(SendError::Ended(CloseReason::Closed)) => Ok(()),
        done => done.map_err(write_error),
    }
}

fn read_error(error: RecvError) -> io::Error {
    io::Error::new(ErrorKind::ConnectionReset, error)
}

fn write_error(error: SendError) -> io::Error {
    let kind = match &error {
        SendError::Ended(CloseReason::Closed | CloseReason::PeerClosed { .. }) => {
            ErrorKind::BrokenPipe
        }
        SendError::Ended(_) => ErrorKind::ConnectionReset,
        _ => ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// The halves without a runtime.
#[cfg(not(feature = "tokio"))]
mod plain {
    #[derive(Debug)]
    pub(super) struct RecvEnd<R>(R);

    impl<R> RecvEnd<R> {
        pub(super) fn new(half: R) -> RecvEnd<R> {
            RecvEnd(half)
        }

        pub(super) fn half(&mut self) -> &mut R {
            &mut self.0
        }
    }

    #[derive(Debug)]
    pub(super) struct SendEnd<S>(S);

    impl<S> SendEnd<S> {
        pub(super) fn new(half: S) -> SendEnd<S> {
            SendEnd(half)
        }

        pub(super) fn half(&mut self) -> Option<&mut S> {
            Some(&mut self.0)
        }

        pub(super) fn into_half(self) -> Option<S> {
            Some(self.0)
        }
    }
}
