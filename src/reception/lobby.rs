//! Where those who connect wait until they have said who they are: all at once, so that
//! nobody waits for one who says nothing.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use conn_core::handshake::ProtocolId;
use rustix::event::{Timespec, epoll};

use super::{Caller, Hello};
use crate::handshake::{Arriving, Exchange, HELLO_LIMIT, HandshakeError};

/// Guests at most. One more, and the one that has been there longest has to go: a flood
/// of silent strangers costs no more memory than this, and holds nobody up.
const PLACES: usize = 64;

/// Those who have connected and not finished their Hello, the first one first.
#[derive(Debug)]
pub(super) struct Lobby {
    protocol: ProtocolId,
    guests: Vec<Guest>,
}

/// What threads sleep on: the listening socket, and those of all guests.
#[derive(Debug)]
pub(super) struct Door(OwnedFd);

#[derive(Debug)]
struct Guest {
    stream: TcpStream,
    from: SocketAddr,
    arriving: Arriving,
    since: Instant,
}

impl Door {
    /// The door of a listening socket, which does not block from here on.
    pub(super) fn new(tcp: &TcpListener) -> io::Result<Door> {
        tcp.set_nonblocking(true)?;
        let door = Door(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        door.watch(tcp)?;
        Ok(door)
    }

    fn watch(&self, source: impl std::os::fd::AsFd) -> io::Result<()> {
        let nobody_asks = epoll::EventData::new_u64(0);
        Ok(epoll::add(&self.0, source, nobody_asks, epoll::EventFlags::IN)?)
    }

    /// Sleeps until somebody comes or says something, for at most `time`.
    pub(super) fn wait(&self, time: Duration) -> io::Result<()> {
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1);
        match epoll::wait(&self.0, rustix::buffer::spare_capacity(&mut events), Some(&time)) {
            // An interrupted sleep is one that ends early: the caller looks again.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

impl Lobby {
    pub(super) fn new(protocol: ProtocolId) -> Lobby {
        Lobby { protocol, guests: Vec::new() }
    }

    /// Lets in those who wait outside, until there is one more than there are places.
    ///
    /// # Errors
    /// The operating system has nothing left to accept with. Those who are in stay.
    pub(super) fn let_in(&mut self, tcp: &TcpListener, door: &Door) -> io::Result<()> {
        while self.guests.len() <= PLACES {
            match tcp.accept() {
                Ok((stream, from)) => self.seat(stream, from, door),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // It has gone again.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn seat(&mut self, stream: TcpStream, from: SocketAddr, door: &Door) {
        let ready = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
        match ready.and_then(|()| door.watch(&stream)) {
            Ok(()) => {
                let (arriving, since) = (Arriving::default(), Instant::now());
                self.guests.push(Guest { stream, from, arriving, since });
            }
            Err(e) => tracing::debug!(%from, error = %e, "a connection was dropped"),
        }
    }

    /// The first guest that is done: it has said its Hello, or something else, or has had
    /// its time, or has to make room.
    pub(super) fn attend(
        &mut self,
        door: &Door,
        now: Instant,
    ) -> Option<Result<Caller<TcpStream>, HandshakeError>> {
        let protocol = self.protocol;
        let done = |guest: &mut Guest| guest.listen(protocol, now).transpose();
        let told = self.guests.iter_mut().enumerate().find_map(|(at, g)| Some((at, done(g)?)));
        let crowded =
            || (self.guests.len() > PLACES).then(|| (0, Err(self.guests[0].too_slow(now))));
        let (at, said) = told.or_else(crowded)?;
        let Guest { mut stream, from, .. } = self.guests.remove(at);
        let blocks = epoll::delete(&door.0, &stream).map_err(io::Error::from);
        let blocks = blocks.and_then(|()| stream.set_nonblocking(false));
        let said = blocks.map_err(HandshakeError::Stream).and(said);
        Some(match said {
            Ok(hello) => Ok(Caller { stream, from: Some(from), hello }),
            Err(e) => {
                Exchange::new(&mut stream, HELLO_LIMIT).refuse(e.reason(), &e.to_string());
                Err(e)
            }
        })
    }

    /// When the next guest will have had its time.
    pub(super) fn patience(&self, now: Instant) -> Duration {
        let first = self.guests.iter().map(|guest| guest.since).min();
        first.map_or(HELLO_LIMIT, |since| (since + HELLO_LIMIT).saturating_duration_since(now))
    }
}

impl Guest {
    /// Its Hello, once it is whole.
    fn listen(
        &mut self,
        protocol: ProtocolId,
        now: Instant,
    ) -> Result<Option<Hello>, HandshakeError> {
        while let lacks @ 1.. = self.arriving.lacks()? {
            match self.arriving.read(&mut self.stream, lacks) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let has_time = now.saturating_duration_since(self.since) < HELLO_LIMIT;
                    return if has_time { Ok(None) } else { Err(self.too_slow(now)) };
                }
                read => read?,
            }
        }
        self.arriving.take(|frame| Hello::of(frame, protocol)).map(Some)
    }

    fn too_slow(&self, now: Instant) -> HandshakeError {
        let had = now.saturating_duration_since(self.since);
        HandshakeError::TimedOut(Duration::from_millis(had.as_millis() as u64))
    }
}
