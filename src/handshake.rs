//! The out-of-band handshake: frames of [`conn_core::handshake`] over a byte
//! stream, usually TCP.
//!
//! ```text
//!  initiator                          acceptor
//!      | ------------- Hello -------------> |   makes its queue pairs, connects them
//!      | <------- Accept or Refuse -------- |
//!      |   connects its queue pairs         |
//!      | ------------- Ready -------------> |   may send from here on
//! ```

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use conn_core::handshake::{
    DecodeError, Decoded, Frame, MAX_FRAME, MAX_TEXT, Parameters, ProtocolId, Reason, Refusal,
    decode,
};

use crate::wait::Deadline;

/// A byte stream that a handshake can run over.
pub trait Stream: Read + Write {
    /// Lets a read or write that takes longer than `time` fail with
    /// [`io::ErrorKind::WouldBlock`] or [`io::ErrorKind::TimedOut`].
    ///
    /// # Errors
    /// The operating system's error.
    fn set_timeout(&self, time: Duration) -> io::Result<()>;

    /// Waits for input where a read does not block, as in a simulated world, for at most
    /// `time`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`].
    fn await_input(&self, time: Duration) -> io::Result<()> {
        let _ = time;
        Ok(())
    }

    /// The addresses of its ends, here and there, if it goes over a network: devices that speak
    /// RoCE v2 compare them with those of their packets.
    fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }
}

impl Stream for TcpStream {
    fn set_timeout(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }

    fn await_input(&self, time: Duration) -> io::Result<()> {
        host::fd::before_read_within(self, time)
    }

    fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.local_addr().ok()?, self.peer_addr().ok()?))
    }
}

impl Stream for UnixStream {
    fn set_timeout(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }

    fn await_input(&self, time: Duration) -> io::Result<()> {
        host::fd::before_read_within(self, time)
    }
}

impl<S: Stream + ?Sized> Stream for &mut S {
    fn set_timeout(&self, time: Duration) -> io::Result<()> {
        (**self).set_timeout(time)
    }

    fn await_input(&self, time: Duration) -> io::Result<()> {
        (**self).await_input(time)
    }

    fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        (**self).ends()
    }
}

/// A stream with a deadline: after it every read and write fails with [`io::ErrorKind::TimedOut`].
/// It limits everything that runs over the stream, a whole handshake as well. Without it an
/// initiator's handshake takes at most [`TIME_LIMIT`] from its first byte to its last, and an
/// acceptor's at most [`HELLO_LIMIT`] for the Hello, [`TIME_LIMIT`] for the answer and
/// [`READY_LIMIT`] for Ready.
///
/// ```
/// use std::time::Duration;
/// use rdma_conn::handshake::Within;
/// use rdma_conn::send_recv::Config;
/// use rdma_conn::{SendRecv, connect_over};
///
/// let device = rdma_conn::device::soft()?;
/// let (near, _silent) = std::os::unix::net::UnixStream::pair()?;
/// let mut near = Within::new(near, Duration::from_millis(1));
/// let late = connect_over::<SendRecv, _>(&mut near, &device, &Config::default(), b"").unwrap_err();
/// assert!(late.is_timeout());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Within<S> {
    stream: S,
    deadline: Deadline,
    /// Time that a single read or write may take.
    step: Cell<Duration>,
}

impl<S: Stream> Within<S> {
    /// `stream`, for `timeout` from now; a time that the clock cannot hold is no limit.
    pub fn new(stream: S, timeout: Duration) -> Within<S> {
        Within::until(stream, Deadline::after(timeout))
    }

    pub(crate) fn until(stream: S, deadline: Deadline) -> Within<S> {
        Within { stream, deadline, step: Cell::new(Duration::MAX) }
    }

    /// The stream.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The stream, without the limit.
    pub fn into_inner(self) -> S {
        self.stream
    }

    /// The next read or write ends in time.
    fn arm(&self) -> io::Result<()> {
        match self.deadline.remaining(host::time::now()).min(self.step.get()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            Duration::MAX => Ok(()),
            left => self.stream.set_timeout(left),
        }
    }
}

impl<S: Stream> Stream for Within<S> {
    fn set_timeout(&self, time: Duration) -> io::Result<()> {
        self.step.set(time);
        self.arm()
    }

    fn await_input(&self, time: Duration) -> io::Result<()> {
        self.stream.await_input(time.min(self.deadline.remaining(host::time::now())))
    }

    fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.stream.ends()
    }
}

impl<S: Stream> Read for Within<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.arm()?;
        // In a world, a read does not block.
        self.await_input(self.step.get())?;
        self.stream.read(bytes)
    }
}

impl<S: Stream> Write for Within<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.arm()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Reason why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The stream failed.
    #[error("the handshake was cut off: {0}")]
    Stream(
        /// The error of the stream.
        io::Error,
    ),
    /// The peer took too long.
    #[error("the peer did not finish the handshake in {0:?}: it may not have accepted")]
    TimedOut(
        /// Time that it had.
        Duration,
    ),
    /// The received bytes are no frame of this protocol.
    #[error("the peer does not speak this protocol: {0}")]
    Malformed(DecodeError),
    /// A frame arrived in place of another one.
    #[error("expected {expected}, the peer sent something else")]
    OutOfOrder {
        /// Name of the frame that belonged there.
        expected: &'static str,
    },
    /// The peer refused.
    #[error("the peer refused: {text}")]
    Refused {
        /// The code of its reason.
        reason: Reason,
        /// Its words.
        text: String,
    },
    /// The peer speaks this handshake, and then another protocol.
    #[error("it wants {}, this is {}", protocol_name(*theirs), protocol_name(*ours))]
    OtherProtocol {
        /// The number of its protocol.
        theirs: u8,
        /// The number of ours.
        ours: u8,
    },
    /// The devices of the two ends do not reach each other.
    #[error("the ends cannot reach each other: {0}")]
    OutOfReach(
        /// The reason, and the remedy.
        String,
    ),
    /// We refused the peer's request.
    #[error("refused the peer: {0}")]
    Unfit(
        /// The reason.
        String,
    ),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        HandshakeError::Stream(error)
    }
}

fn protocol_name(number: u8) -> String {
    match ProtocolId(number) {
        ProtocolId::SEND_RECV => "Send/Receive".into(),
        ProtocolId::BUFFERED_READ => "Buffered Read".into(),
        ProtocolId::BUFFERED_WRITE => "Buffered Write".into(),
        ProtocolId::DIRECT_READ => "Direct Read".into(),
        ProtocolId::DIRECT_WRITE => "Direct Write".into(),
        ProtocolId::SHARED_WRITE => "Shared Write".into(),
        ProtocolId::MULTICAST => "multicast".into(),
        ProtocolId::RAW => "raw queue pairs".into(),
        _ => format!("protocol {number}"),
    }
}

impl HandshakeError {
    /// The code that tells the peer.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            HandshakeError::Malformed(DecodeError::Version { .. }) => Reason::VERSION,
            HandshakeError::Unfit(_) => Reason::PARAMETERS,
            HandshakeError::OutOfReach(_) => Reason::UNREACHABLE,
            HandshakeError::Stream(_) => Reason::INTERNAL,
            _ => Reason::PROTOCOL,
        }
    }
}

/// A half that the handshake has made on both ends, or on neither.
pub(crate) fn present<T>(made: Option<T>) -> Result<T, HandshakeError> {
    made.ok_or_else(|| HandshakeError::Unfit("the ends disagree on the directions".into()))
}

/// Time limit of an initiator's handshake, from its first byte to its last, and of an acceptor's
/// answer to a Hello.
pub const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Time limit of an initiator's Hello. The initiator may have to register a lot of memory first,
/// and other initiators need not wait for it.
pub const HELLO_LIMIT: Duration = TIME_LIMIT;

/// Time limit of an accepted initiator's Ready: it only has to connect its queue pairs, and the
/// acceptor's thread waits.
pub const READY_LIMIT: Duration = Duration::from_secs(5);

/// Time limit for sending a refusal: there is room for it on a stream that works.
const REFUSAL_LIMIT: Duration = Duration::from_secs(1);

/// Bytes of frames that arrive in parts. The bytes that follow the handshake on the stream
/// belong to the application, so that never more is read than the next frame lacks.
#[derive(Debug, Default)]
pub(crate) struct Arriving {
    bytes: Vec<u8>,
    /// Bytes of the frames that were taken.
    consumed: usize,
}

impl Arriving {
    /// Returns the number of bytes that the next frame lacks at least; 0 when it is whole.
    /// Malformed bytes are an error as soon as they are seen.
    pub(crate) fn lacks(&self) -> Result<usize, HandshakeError> {
        match decode(&self.bytes[self.consumed..]) {
            Ok(_) => Ok(0),
            Err(DecodeError::Incomplete { need }) => {
                Ok((self.consumed + need).saturating_sub(self.bytes.len()).max(1))
            }
            Err(e) => Err(HandshakeError::Malformed(e)),
        }
    }

    /// Reads once, up to `lacks` bytes.
    pub(crate) fn read(&mut self, stream: &mut impl Read, lacks: usize) -> io::Result<()> {
        let start = self.bytes.len();
        self.bytes.resize(start + lacks, 0);
        let got = match stream.read(&mut self.bytes[start..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => other,
        };
        self.bytes.truncate(start + got.as_ref().unwrap_or(&0));
        got.map(drop)
    }

    /// Hands the next frame, which is whole, to `take`.
    pub(crate) fn take<T>(
        &mut self,
        take: impl FnOnce(&Frame<'_>) -> Result<T, HandshakeError>,
    ) -> Result<T, HandshakeError> {
        let decoded = decode(&self.bytes[self.consumed..]);
        let Decoded { frame, consumed } = decoded.map_err(HandshakeError::Malformed)?;
        let taken = refused(&frame).map_or_else(|| take(&frame), Err);
        self.consumed += consumed;
        taken
    }
}

/// One handshake on one stream.
pub(crate) struct Exchange<'s, S: Stream> {
    stream: &'s mut S,
    end: Instant,
    limit: Duration,
    arriving: Arriving,
}

impl<'s, S: Stream> Exchange<'s, S> {
    pub(crate) fn new(stream: &'s mut S, limit: Duration) -> Exchange<'s, S> {
        Exchange { stream, end: host::time::now() + limit, limit, arriving: Arriving::default() }
    }

    /// Gives the peer the time `limit` from here on.
    pub(crate) fn limit(&mut self, limit: Duration) {
        (self.end, self.limit) = (host::time::now() + limit, limit);
    }

    /// Sends one frame.
    pub(crate) fn send(&mut self, frame: &Frame<'_>) -> Result<(), HandshakeError> {
        let mut bytes = [0; MAX_FRAME];
        let length = frame.encode(&mut bytes).map_err(|e| HandshakeError::Unfit(e.to_string()))?;
        self.arm()?;
        self.stream.write_all(&bytes[..length]).map_err(|e| self.stream_error(e))?;
        self.stream.flush().map_err(|e| self.stream_error(e))
    }

    /// Sends the peer a refusal with the reason, also where its time is over. Whether the
    /// refusal arrives does not matter to this end.
    pub(crate) fn refuse(&mut self, reason: Reason, text: &str) {
        self.end = self.end.max(host::time::now() + REFUSAL_LIMIT);
        let text = truncated(text, MAX_TEXT);
        if let Err(e) = self.send(&Frame::Refuse(Refusal { reason, text })) {
            tracing::debug!(error = %e, "a refusal was not delivered");
        }
    }

    /// Refuses a peer that has made a mistake, unless it has ended the handshake itself.
    pub(crate) fn tell(&mut self, error: &HandshakeError) {
        if !matches!(error, HandshakeError::Refused { .. } | HandshakeError::Stream(_)) {
            self.refuse(error.reason(), &error.to_string());
        }
    }

    /// Accepts, and waits until the initiator is ready; one that sends another frame is
    /// refused.
    pub(crate) fn conclude(&mut self, answer: Parameters<'_>) -> Result<(), HandshakeError> {
        self.send(&Frame::Accept(answer)).inspect_err(|e| self.tell(e))?;
        self.limit(READY_LIMIT);
        self.ready()
    }

    /// Waits until the initiator is ready; one that sends another frame is refused.
    pub(crate) fn ready(&mut self) -> Result<(), HandshakeError> {
        let ready = self.receive(|frame| match frame {
            Frame::Ready => Ok(()),
            _ => Err(HandshakeError::OutOfOrder { expected: "Ready" }),
        });
        ready.inspect_err(|e| self.tell(e))
    }

    /// Receives one frame and hands it to `take`. A stream that is silent for too long
    /// is refused.
    pub(crate) fn receive<T>(
        &mut self,
        take: impl FnOnce(&Frame<'_>) -> Result<T, HandshakeError>,
    ) -> Result<T, HandshakeError> {
        while let lacks @ 1.. = self.arriving.lacks()? {
            self.arm()?;
            let left = self.end.saturating_duration_since(host::time::now());
            self.stream.await_input(left).map_err(|e| self.stream_error(e))?;
            let read = self.arriving.read(self.stream, lacks);
            read.map_err(|e| self.stream_error(e))?;
        }
        self.arriving.take(take)
    }

    fn arm(&mut self) -> Result<(), HandshakeError> {
        let left = self.end.saturating_duration_since(host::time::now());
        if left.is_zero() {
            return Err(HandshakeError::TimedOut(self.limit));
        }
        // A stream with a limit of its own may have reached it.
        self.stream.set_timeout(left).map_err(|e| self.stream_error(e))
    }

    fn stream_error(&self, e: io::Error) -> HandshakeError {
        match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                // The stream may have had less time.
                let left = self.end.saturating_duration_since(host::time::now());
                let had = self.limit.saturating_sub(left).as_millis() as u64;
                HandshakeError::TimedOut(Duration::from_millis(had))
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

#[cfg(test)]
mod tests;
