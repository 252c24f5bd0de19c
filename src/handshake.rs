//! The out-of-band handshake (D9): frames of [`conn_core::handshake`] over a byte
//! stream, usually TCP.
//!
//! ```text
//!  initiator                          acceptor
//!      | ------------- Hello -------------> |   makes its queue pairs, connects them
//!      | <------- Accept or Refuse -------- |
//!      |   connects its queue pairs         |
//!      | ------------- Ready -------------> |   may send from here on
//! ```

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use conn_core::handshake::{
    DecodeError, Decoded, Frame, MAX_FRAME, MAX_TEXT, Reason, Refusal, decode,
};

/// A byte stream that a handshake can run over.
pub trait Stream: Read + Write {
    /// Lets a read or write that takes longer than `time` fail with
    /// [`io::ErrorKind::WouldBlock`] or [`io::ErrorKind::TimedOut`].
    ///
    /// # Errors
    /// What the operating system says.
    fn set_timeout(&self, time: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_timeout(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Stream for UnixStream {
    fn set_timeout(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The stream failed.
    #[error("the handshake was cut off: {0}")]
    Stream(#[from] io::Error),
    /// The peer took too long.
    #[error("the peer did not finish the handshake in {0:?}")]
    TimedOut(
        /// How long it had.
        Duration,
    ),
    /// What came is no frame of this protocol.
    #[error("the peer does not speak this protocol: {0}")]
    Malformed(DecodeError),
    /// A frame came where another one belongs.
    #[error("expected {expected}, the peer sent something else")]
    OutOfOrder {
        /// What belonged there.
        expected: &'static str,
    },
    /// The peer refused.
    #[error("the peer refused: {text} (reason {reason:?})")]
    Refused {
        /// The code of its reason.
        reason: Reason,
        /// Its words.
        text: String,
    },
    /// We refused what the peer asked for.
    #[error("refused the peer: {0}")]
    Unfit(
        /// Why.
        String,
    ),
}

impl HandshakeError {
    /// The code that tells the peer.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            HandshakeError::Malformed(DecodeError::Version { .. }) => Reason::VERSION,
            HandshakeError::Unfit(_) => Reason::PARAMETERS,
            HandshakeError::Stream(_) => Reason::INTERNAL,
            _ => Reason::PROTOCOL,
        }
    }
}

/// How long a handshake may take from its first byte to its last.
pub const TIME_LIMIT: Duration = Duration::from_secs(10);

/// How long whoever connects may take for its Hello: a fraction of [`TIME_LIMIT`], so
/// that one who says nothing does not make the others give up.
pub const HELLO_LIMIT: Duration = Duration::from_secs(3);

/// One handshake on one stream.
pub(crate) struct Exchange<'s, S: Stream> {
    stream: &'s mut S,
    end: Instant,
    limit: Duration,
    buffer: Vec<u8>,
    consumed: usize,
}

impl<'s, S: Stream> Exchange<'s, S> {
    pub(crate) fn new(stream: &'s mut S, limit: Duration) -> Exchange<'s, S> {
        let end = Instant::now() + limit;
        Exchange { stream, end, limit, buffer: Vec::with_capacity(MAX_FRAME), consumed: 0 }
    }

    /// Sends one frame.
    pub(crate) fn send(&mut self, frame: &Frame<'_>) -> Result<(), HandshakeError> {
        let mut bytes = [0; MAX_FRAME];
        let length = frame.encode(&mut bytes).map_err(|e| HandshakeError::Unfit(e.to_string()))?;
        self.arm()?;
        self.stream.write_all(&bytes[..length]).map_err(|e| self.stream_error(e))?;
        self.stream.flush().map_err(|e| self.stream_error(e))
    }

    /// Tells the peer why not; whether it hears it does not matter to us.
    pub(crate) fn refuse(&mut self, reason: Reason, text: &str) {
        let text = truncated(text, MAX_TEXT);
        if let Err(e) = self.send(&Frame::Refuse(Refusal { reason, text })) {
            tracing::debug!(error = %e, "a refusal was not delivered");
        }
    }

    /// Receives one frame and hands it to `take`. Junk is refused as soon as it
    /// shows, and so is a stream that is silent for too long.
    pub(crate) fn receive<T>(
        &mut self,
        take: impl FnOnce(&Frame<'_>) -> Result<T, HandshakeError>,
    ) -> Result<T, HandshakeError> {
        loop {
            match decode(&self.buffer[self.consumed..]) {
                Ok(Decoded { frame, consumed }) => {
                    let taken = refused(&frame).map_or_else(|| take(&frame), Err);
                    self.consumed += consumed;
                    return taken;
                }
                Err(DecodeError::Incomplete { need }) => self.read(need)?,
                Err(e) => return Err(HandshakeError::Malformed(e)),
            }
        }
    }

    /// Reads at least one byte, at most what the frame needs: what follows the
    /// handshake on the stream belongs to somebody else.
    fn read(&mut self, need: usize) -> Result<(), HandshakeError> {
        self.arm()?;
        let start = self.buffer.len();
        let missing = (self.consumed + need).saturating_sub(start).max(1);
        self.buffer.resize(start + missing, 0);
        let got = match self.stream.read(&mut self.buffer[start..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => other,
        };
        let got = got.map_err(|e| self.stream_error(e))?;
        self.buffer.truncate(start + got);
        Ok(())
    }

    fn arm(&mut self) -> Result<(), HandshakeError> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(HandshakeError::TimedOut(self.limit));
        }
        Ok(self.stream.set_timeout(left)?)
    }

    fn stream_error(&self, e: io::Error) -> HandshakeError {
        match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                HandshakeError::TimedOut(self.limit)
            }
            _ => HandshakeError::Stream(e),
        }
    }
}

fn refused(frame: &Frame<'_>) -> Option<HandshakeError> {
    match frame {
        Frame::Refuse(refuse) => {
            Some(HandshakeError::Refused { reason: refuse.reason, text: refuse.text.to_owned() })
        }
        _ => None,
    }
}

/// The longest prefix of at most `limit` bytes that is valid UTF-8.
fn truncated(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}
