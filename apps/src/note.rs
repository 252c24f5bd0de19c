//! What two ends say to each other beside the messages, over the stream of their
//! handshake: when to begin, what was sent, what has arrived.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rdma_conn::direct_read;
use rdma_conn::send_recv::{Ended, RecvError, SendError};
use rdma_conn::verbs_safe::WcStatus;
use serde::{Deserialize, Serialize};

use crate::frame::{self, GONE, is_late};
use crate::outcome::Failure;
use crate::protocol::Work;

/// The longest note, in bytes.
const MAX_NOTE: usize = 4096;
/// How long the other end may take for a note that it has no reason to wait with.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long, in all, an end that has failed looks for the cause at the others.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// One note.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) enum Note {
    /// All senders are there: begin.
    Begin,
    /// This process has sent so many messages.
    Sent { messages: u64, work: Work },
    /// What has arrived of all that all processes have sent, with the work of all ends. Of a file: whether what arrived is equal to it.
    Arrived { messages: u64, work: Work, equal: Option<bool> },
    /// All of a stream was sent: its bytes, their checksum, and the work that it took.
    Streamed { bytes: u64, crc32: u32, work: Work },
    /// What a measurement has come to, for the end that did not measure.
    Latency(Box<crate::pingpong::Line>),
    /// Something failed.
    Failed(String),
}

/// The stream to the other end, once the handshake is over.
#[derive(Debug)]
pub(crate) struct Wire(TcpStream);

/// How long the host at the other end may be silent until its kernel is asked whether it
/// is there, and how often it is asked, at what distance, until it is taken for dead.
const SILENCE: Duration = Duration::from_secs(20);
const QUESTIONS: u32 = 4;
const BETWEEN: Duration = Duration::from_secs(10);

/// Has a wait for an other end whose host has died, or was cut off, come to an end: no
/// FIN says so.
pub(crate) fn notice_death(stream: &TcpStream) -> std::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_tcp_keepidle(stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, BETWEEN)?;
    sockopt::set_tcp_keepcnt(stream, QUESTIONS)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wire {
    /// The stream to the other end.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn new(stream: TcpStream) -> std::io::Result<Wire> {
        notice_death(&stream)?;
        Ok(Wire(stream))
    }

    /// Another hand on the same stream.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn try_clone(&self) -> std::io::Result<Wire> {
        self.0.try_clone().map(Wire)
    }

    /// Says something.
    pub(crate) fn tell(&mut self, note: &Note) -> Result<()> {
        frame::write(&mut self.0, note, MAX_NOTE, PATIENCE)
    }

    /// Tells why this end does not go on; whether it is heard does not matter.
    pub(crate) fn give_up(&mut self, why: &anyhow::Error) {
        frame::give_up(why, |why| self.tell(&Note::Failed(why)));
    }

    /// The next note, which the other end has no reason to wait with.
    pub(crate) fn hear(&mut self) -> Result<Note> {
        match self.hear_within(PATIENCE)? {
            Some(note) => Ok(note),
            None => bail!("the other end has said nothing for {PATIENCE:?}"),
        }
    }

    /// The next note, however long it takes: the other end waits for others.
    pub(crate) fn hear_whenever(&mut self) -> Result<Note> {
        loop {
            if let Some(note) = self.hear_within(PATIENCE)? {
                return Ok(note);
            }
        }
    }

    /// Why the other end has failed, if it tells within `time`.
    pub(crate) fn last_words(&mut self, time: Duration) -> Option<String> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            // No time at all would be for ever.
            let time = left.max(Duration::from_millis(1));
            match self.hear_limited(time, time) {
                Ok(Some(Note::Failed(why))) => return Some(why),
                // What it had to say before; but who never stops has no cause to tell.
                Ok(Some(_)) if !left.is_zero() => {}
                _ => return None,
            }
        }
    }

    /// Whether the other end is there; it does not say anything now.
    pub(crate) fn is_there(&self) -> bool {
        let peeked = self.0.set_nonblocking(true).and_then(|()| self.0.peek(&mut [0]));
        let blocks = self.0.set_nonblocking(false);
        // No byte is the end of the stream.
        blocks.is_ok() && peeked.map_or_else(|e| is_late(e.kind()), |bytes| bytes > 0)
    }

    /// Reads, however often a signal interrupts it.
    fn read_again(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.0.read(bytes) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// The next note, if it begins within `time`.
    pub(crate) fn hear_within(&mut self, time: Duration) -> Result<Option<Note>> {
        self.hear_limited(time, PATIENCE)
    }

    /// As [`hear_within`](Wire::hear_within): once it has begun, it ends within `whole`.
    fn hear_limited(&mut self, time: Duration, whole: Duration) -> Result<Option<Note>> {
        let mut first = [0];
        self.0.set_read_timeout(Some(time))?;
        match self.read_again(&mut first) {
            Ok(0) => bail!(GONE),
            Ok(_) => frame::read_rest(&mut self.0, first[0], MAX_NOTE, whole).map(Some),
            Err(e) if is_late(e.kind()) => Ok(None),
            Err(e) => Err(e).context(GONE),
        }
    }
}

/// Tells the other ends of a failure; what they tell may be its cause, which is returned.
pub(crate) fn cause<'w>(
    failure: Failure,
    wires: impl IntoIterator<Item = &'w mut Wire>,
) -> Failure {
    let mut wires: Vec<&mut Wire> = wires.into_iter().collect();
    // That it has stopped receiving the other end knows, and takes it for no cause.
    if !is_told(&failure) {
        wires.iter_mut().for_each(|wire| wire.give_up(&failure));
    }
    if !may_be_theirs(&failure) {
        return failure;
    }
    let each = LAST_WORDS / wires.len().max(1) as u32;
    match wires.iter_mut().find_map(|wire| wire.last_words(each)) {
        Some(why) => anyhow!("the other end: {why}"),
        None => failure.context(
            "the other end does not answer any more: look why it has ended, and start both again",
        ),
    }
}

/// Why a sending half has ended, of whichever connection, if that is what has failed.
pub(crate) fn sender_ended(failure: &Failure) -> Option<&Ended> {
    match (failure.downcast_ref(), failure.downcast_ref()) {
        (Some(SendError::Ended(ended)), _) => Some(ended),
        (_, Some(direct_read::SendError::Ended(ended))) => Some(ended),
        _ => None,
    }
}

/// Why a receiving half has lost a peer, of whichever connection, if that is what has failed.
pub(crate) fn receiver_ended(failure: &Failure) -> Option<&Ended> {
    use direct_read::{NotReadReason, RecvError as Direct};
    if let Some(RecvError::Peer { ended, .. }) = failure.downcast_ref() {
        return Some(ended);
    }
    match (failure.downcast_ref(), failure.downcast_ref()) {
        (Some(Direct::Peer { ended, .. } | Direct::Unread { ended, .. }), _) => Some(ended),
        (_, Some(NotReadReason::Ended(ended))) => Some(ended),
        _ => None,
    }
}

/// Whether the other end has brought this about, and told it.
fn is_told(failure: &Failure) -> bool {
    sender_ended(failure) == Some(&Ended::PeerStopped)
}

/// Whether a failure may have its cause at another end.
fn may_be_theirs(failure: &Failure) -> bool {
    let by_sending = sender_ended(failure).is_some_and(|ended| match ended {
        Ended::PeerStopped => true,
        // A receiver that is there and falls behind is no mystery.
        Ended::PeerLost(e) => e.status != WcStatus::RNR_RETRY_EXC,
        _ => false,
    });
    by_sending || matches!(receiver_ended(failure), Some(Ended::PeerLost(_)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    fn wires() -> (Wire, Wire) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Wire::new(near).unwrap(), Wire::new(listener.accept().unwrap().0).unwrap())
    }

    #[test]
    fn a_wait_ends_with_the_host_at_the_other_end() {
        let (near, mut far) = wires();
        assert!(rustix::net::sockopt::socket_keepalive(&near.0).unwrap());
        let waited = far.hear_within(Duration::from_millis(1)).unwrap();
        assert_eq!(waited, None, "who is there may be silent");
        assert!(!is_late(ErrorKind::TimedOut), "what is told then is the end");
        assert!(!is_late(ErrorKind::Interrupted), "it has the rest of its time");
    }

    #[test]
    fn notes_arrive_in_order_and_an_end_is_noticed() {
        let (mut near, mut far) = wires();
        assert!(far.is_there());
        let sent = Note::Sent { messages: u64::MAX, work: Work::requests(1) };
        near.tell(&Note::Begin).unwrap();
        near.tell(&sent).unwrap();
        near.give_up(&anyhow::anyhow!("a wrong checksum").context("x".repeat(5000)));
        assert!(far.is_there());
        assert_eq!(far.hear().unwrap(), Note::Begin);
        assert_eq!(far.hear_whenever().unwrap(), sent);
        assert_eq!(far.last_words(PATIENCE), Some("x".repeat(1000)));
        drop(near);
        assert!(far.hear().unwrap_err().to_string().contains(GONE));
        assert_eq!(far.last_words(PATIENCE), None);
        assert!(!far.is_there());
    }

    #[test]
    fn what_is_no_note_is_refused() {
        for junk in [&b"HTTP/1.1 400 Bad Request\r\n"[..], &[2, 0, 0, 0, b'{', b'}']] {
            let (near, mut far) = wires();
            (&near.0).write_all(junk).unwrap();
            assert!(far.hear().unwrap_err().to_string().contains("something else"));
        }
    }
}
