//! The stream to the other end beside the messages: a handshake, and then control messages.

use std::io::{ErrorKind, Read, Write};
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rdma_conn::handshake::Stream;
use rustix::net::{RecvFlags, recv};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::frame::{self, GONE, is_late};
use crate::outcome::CommandError;
use crate::signals;

/// The longest control message, in bytes.
const MAX_CONTROL: usize = 16_384;
/// Longest time that the other end may take for a control message that it has no reason to delay.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time within which a wait notices a signal.
pub const GLANCE: Duration = Duration::from_millis(100);

/// Time for which the host at the other end may be silent before its kernel is asked whether it is
/// there; then the number of questions, and the time between them, until the host is taken for
/// dead.
const SILENCE: Duration = Duration::from_secs(20);
const QUESTIONS: u32 = 4;
const BETWEEN: Duration = Duration::from_secs(10);

/// Ends a wait for an other end whose host has died, or was cut off: no FIN says so.
pub fn notice_death(stream: &TcpStream) -> std::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_tcp_keepidle(stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, BETWEEN)?;
    sockopt::set_tcp_keepcnt(stream, QUESTIONS)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

/// The stream to the other end, by which control messages `N` go.
#[derive(Debug)]
pub struct ControlChannel<N> {
    stream: TcpStream,
    /// True if the other end is in this process.
    is_within: bool,
    notes: PhantomData<N>,
}

/// Message on the stream.
#[derive(Serialize, Deserialize)]
enum ChannelMessage<N> {
    Note(N),
    /// The end that gives up, for this reason.
    Failed(String),
}

/// The other end gives up, for this reason.
#[derive(Debug, thiserror::Error)]
#[error("the other end: {0}")]
pub struct PeerFailure(String);

/// Last words of an end.
#[derive(Debug, PartialEq, Eq)]
pub enum LastWords {
    /// It has given up, for this reason.
    Why(String),
    /// Nothing, and it is still there.
    Nothing,
    /// It has ended.
    Gone,
}

/// The failure where the other end says something else than it should.
pub fn unexpected<T>(note: impl std::fmt::Debug) -> Result<T> {
    bail!("the other end says {note:?}")
}

impl<N> ControlChannel<N> {
    /// The stream to another process.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn new(stream: TcpStream) -> std::io::Result<ControlChannel<N>> {
        notice_death(&stream)?;
        Ok(ControlChannel { stream, is_within: false, notes: PhantomData })
    }

    /// The streams of both ends of this process.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn within() -> std::io::Result<(ControlChannel<N>, ControlChannel<N>)> {
        // What is called here is the same for sockets of either family.
        let end = |stream: UnixStream| ControlChannel {
            stream: TcpStream::from(OwnedFd::from(stream)),
            is_within: true,
            notes: PhantomData,
        };
        let (near, far) = UnixStream::pair()?;
        Ok((end(near), end(far)))
    }

    /// A stream to another program that says nothing, and what keeps it open.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn silent() -> std::io::Result<(ControlChannel<N>, ControlChannel<N>)> {
        let (near, far) = ControlChannel::within()?;
        Ok((ControlChannel { is_within: false, ..near }, far))
    }

    /// Another hand on the same stream.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> std::io::Result<ControlChannel<N>> {
        let stream = self.stream.try_clone()?;
        Ok(ControlChannel { stream, is_within: self.is_within, notes: PhantomData })
    }

    /// Reports whether the other end is in this process.
    pub fn stays_within(&self) -> bool {
        self.is_within
    }

    /// Has a wait for another process end at a signal: a wait for an end in this process ends
    /// anyway.
    pub fn end_at_signal(&self) -> Result<()> {
        if !self.is_within {
            signals::go_on()?;
        }
        Ok(())
    }

    /// Reports whether the other end is there, at a time when it says nothing.
    #[expect(clippy::disallowed_methods, reason = "by `DONTWAIT`")]
    pub fn is_there(&self) -> bool {
        let peeked = recv(&self.stream, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        // No byte is the end of the stream.
        peeked.map_or_else(|e| is_late(e.kind()), |(bytes, _)| bytes > 0)
    }
}

impl<N: Serialize + DeserializeOwned> ControlChannel<N> {
    /// Says something.
    pub fn tell(&mut self, note: &N) -> Result<()> {
        self.say(&ChannelMessage::Note(note))
    }

    /// Tells why this end gives up; whether it is received does not matter.
    pub fn give_up(&mut self, why: &CommandError) {
        frame::give_up(why, |why| self.say(&ChannelMessage::<()>::Failed(why)));
    }

    fn say(&mut self, said: &impl Serialize) -> Result<()> {
        frame::write(&mut self.stream, said, MAX_CONTROL, PATIENCE)
    }

    /// The next control message, which the other end has no reason to wait with.
    pub fn hear(&mut self) -> Result<N> {
        match self.hear_within(PATIENCE)? {
            Some(note) => Ok(note),
            None => bail!("the other end has said nothing for {PATIENCE:?}"),
        }
    }

    /// The next control message, however long it takes: the other end waits for others.
    pub fn hear_whenever(&mut self) -> Result<N> {
        loop {
            if let Some(note) = self.hear_within(PATIENCE)? {
                return Ok(note);
            }
        }
    }

    /// The next control message, unless a signal asks this end to stop waiting.
    pub fn hear_unless_interrupted(&mut self) -> Result<N> {
        loop {
            self.end_at_signal()?;
            if let Some(note) = self.hear_within(GLANCE)? {
                return Ok(note);
            }
        }
    }

    /// The next control message, if it begins within `time`.
    pub fn hear_within(&mut self, time: Duration) -> Result<Option<N>> {
        self.hear_limited(time, PATIENCE)?.map(note).transpose()
    }

    /// The next control message, if it has begun.
    #[expect(clippy::disallowed_methods, reason = "by `DONTWAIT`")]
    pub fn heard(&mut self) -> Result<Option<N>> {
        let mut first = [0];
        let read = recv(&self.stream, &mut first, RecvFlags::DONTWAIT);
        let said = self.rest(read.map(|(bytes, _)| bytes).map_err(Into::into), first[0], PATIENCE);
        said?.map(note).transpose()
    }

    /// Receives the last words of the other end, within `time`.
    pub fn last_words(&mut self, time: Duration) -> LastWords {
        let end = host::time::now() + time;
        loop {
            let left = end.saturating_duration_since(host::time::now());
            // No time at all would be for ever.
            let time = left.max(Duration::from_millis(1));
            match self.hear_limited(time, time) {
                Ok(Some(ChannelMessage::Failed(why))) => return LastWords::Why(why),
                // An earlier control message: skipped, until the time is over.
                Ok(_) if !left.is_zero() => {}
                Ok(_) => return LastWords::Nothing,
                Err(_) => return LastWords::Gone,
            }
        }
    }

    /// Receives the next message, if it begins within `time`; once it has begun, it ends within
    /// `whole`.
    fn hear_limited(
        &mut self,
        time: Duration,
        whole: Duration,
    ) -> Result<Option<ChannelMessage<N>>> {
        let mut first = [0];
        self.stream.set_read_timeout(Some(time))?;
        let read = loop {
            match self.await_input(time).and_then(|()| self.stream.read(&mut first)) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                done => break done,
            }
        };
        self.rest(read, first[0], whole)
    }

    /// Receives the rest of a message after the byte `first`, if `read` has brought that.
    fn rest(
        &mut self,
        read: std::io::Result<usize>,
        first: u8,
        whole: Duration,
    ) -> Result<Option<ChannelMessage<N>>> {
        match read {
            Ok(0) => bail!(GONE),
            Ok(_) => frame::read_rest(&mut self.stream, first, MAX_CONTROL, whole).map(Some),
            Err(e) if is_late(e.kind()) || e.kind() == ErrorKind::Interrupted => Ok(None),
            Err(e) => Err(e).context(GONE),
        }
    }
}

fn note<N>(said: ChannelMessage<N>) -> Result<N> {
    match said {
        ChannelMessage::Note(note) => Ok(note),
        ChannelMessage::Failed(why) => Err(PeerFailure(why).into()),
    }
}

impl<N> AsFd for ControlChannel<N> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl<N> Read for ControlChannel<N> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.stream.read(buffer)
    }
}

impl<N> Write for ControlChannel<N> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<N> Stream for ControlChannel<N> {
    fn set_timeout(&self, time: Duration) -> std::io::Result<()> {
        self.stream.set_timeout(time)
    }

    fn await_input(&self, time: Duration) -> std::io::Result<()> {
        // The error of a host's read that times out.
        self.stream.await_input(time).map_err(|_| ErrorKind::WouldBlock.into())
    }

    fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.stream.ends()
    }
}

#[cfg(test)]
mod tests;
