//! Where those who connect wait until they have said what they want: all at once, so that
//! nobody waits for one who says nothing.
//!
//! Nothing is taken from a stream here: who is let in says all of it to whoever serves.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rdma_conn::conn_core::handshake::{DecodeError, Frame, MAX_FRAME, Reason, Refusal, decode};
use rdma_conn::conn_core::rc_pingpong;
use rdma_conn::handshake::HELLO_LIMIT;
use rustix::event::{Timespec, epoll};

use crate::session;

/// Guests at most. One more, and the one that has been there longest has to go.
const PLACES: usize = 64;
/// Until it is tried again to accept a connection, where there was nothing left to accept
/// it with, and how often.
const RECOVERY: Duration = Duration::from_millis(200);
const RECOVERIES: u32 = 50;

/// How those who connect begin.
#[derive(Debug, Clone, Copy)]
pub(super) enum Language {
    /// With a Hello.
    Handshake,
    /// With a destination, as `ibv_rc_pingpong` does.
    RcPingpong,
}

/// A listening socket, and those who have connected and not said anything whole, the first
/// one first.
#[derive(Debug)]
pub(super) struct Lobby {
    tcp: TcpListener,
    language: Language,
    /// Wakes us when somebody comes or says more.
    door: OwnedFd,
    guests: Vec<Guest>,
}

#[derive(Debug)]
struct Guest {
    stream: TcpStream,
    from: SocketAddr,
    since: Instant,
}

impl Language {
    /// Whether these bytes tell what there is to tell: a whole beginning, or no such.
    fn is_told(self, bytes: &[u8]) -> bool {
        match self {
            Language::Handshake => !matches!(decode(bytes), Err(DecodeError::Incomplete { .. })),
            Language::RcPingpong => !matches!(
                rc_pingpong::Destination::decode(bytes),
                Err(rc_pingpong::DecodeError::Incomplete)
            ),
        }
    }

    /// Tells somebody why it is refused, in words that it may understand.
    fn refuse(self, mut stream: &TcpStream, text: &str) {
        let Language::Handshake = self else { return };
        let (mut bytes, reason) = ([0; MAX_FRAME], Reason::PROTOCOL);
        if let Ok(length) = Frame::Refuse(Refusal { reason, text }).encode(&mut bytes)
            && let Err(e) = stream.write_all(&bytes[..length])
        {
            tracing::debug!(error = %e, "a refusal was not delivered");
        }
    }
}

impl Lobby {
    /// Listens on `address`, and says where.
    pub(super) fn listen(address: SocketAddr, language: Language) -> Result<Lobby> {
        let tcp = TcpListener::bind(address);
        let tcp = tcp.map_err(|e| session::cannot_listen(address, e.kind(), e.into()))?;
        remark!("listening on {}", tcp.local_addr()?);
        Lobby::new(tcp, language)
    }

    pub(super) fn new(tcp: TcpListener, language: Language) -> Result<Lobby> {
        tcp.set_nonblocking(true)?;
        let door = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let lobby = Lobby { tcp, language, door, guests: Vec::new() };
        lobby.watch(&lobby.tcp, epoll::EventFlags::IN)?;
        Ok(lobby)
    }

    fn watch(&self, source: impl AsFd, events: epoll::EventFlags) -> std::io::Result<()> {
        Ok(epoll::add(&self.door, source, epoll::EventData::new_u64(0), events)?)
    }

    /// The next one who has begun to speak, in whatever language; who says nothing is
    /// refused when its time is over.
    ///
    /// # Errors
    /// The operating system does not let us accept anybody, for long.
    pub(super) fn next(&mut self) -> Result<(TcpStream, SocketAddr)> {
        let mut failures = 0;
        loop {
            match self.let_in() {
                Ok(()) => failures = 0,
                Err(e) if failures == RECOVERIES => {
                    return Err(e).context("nobody can be accepted: too many open files?");
                }
                Err(e) => {
                    tracing::warn!(error = %e, "tries again to accept");
                    failures += 1;
                    std::thread::sleep(RECOVERY);
                }
            }
            if let Some(at) = self.guests.iter().position(|guest| guest.has_told(self.language)) {
                let Guest { stream, from, .. } = self.guests.remove(at);
                epoll::delete(&self.door, &stream)?;
                stream.set_nonblocking(false)?;
                return Ok((stream, from));
            }
            self.see_off(Instant::now());
            self.sleep(Instant::now())?;
        }
    }

    /// Lets in those who wait outside, as far as there are places, and one more.
    fn let_in(&mut self) -> std::io::Result<()> {
        while self.guests.len() <= PLACES {
            match self.tcp.accept() {
                Ok((stream, from)) => self.seat(stream, from),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // It has gone again.
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn seat(&mut self, stream: TcpStream, from: SocketAddr) {
        let ready = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
        // What is left unread must not wake us again: only more of it does.
        let events = epoll::EventFlags::IN | epoll::EventFlags::ET;
        match ready.and_then(|()| self.watch(&stream, events)) {
            Ok(()) => self.guests.push(Guest { stream, from, since: Instant::now() }),
            Err(e) => session::refused(Some(from), &e.to_string()),
        }
    }

    /// Refuses those who have had their time, and the first one where there is one too
    /// many.
    fn see_off(&mut self, now: Instant) {
        let crowded = self.guests.len() > PLACES;
        let language = self.language;
        let mut at = 0;
        self.guests.retain(|guest| {
            let has_place = !(crowded && at == 0);
            at += 1;
            let had = now.saturating_duration_since(guest.since);
            let stays = has_place && had < HELLO_LIMIT;
            if !stays {
                let why = format!("it has not said what it wants in {:.1} s", had.as_secs_f64());
                session::refused(Some(guest.from), &why);
                language.refuse(&guest.stream, &why);
            }
            stays
        });
    }

    /// Sleeps until somebody comes, says more, or has had its time.
    fn sleep(&self, now: Instant) -> Result<()> {
        let first = self.guests.first().map(|guest| guest.since + HELLO_LIMIT);
        let time = first.map(|end| end.saturating_duration_since(now));
        let time = time.map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        });
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1);
        match epoll::wait(&self.door, rustix::buffer::spare_capacity(&mut events), time.as_ref()) {
            // An interrupted sleep is one that ends early.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

impl Guest {
    /// Whether it has said enough, or has gone.
    fn has_told(&self, language: Language) -> bool {
        let mut bytes = [0; MAX_FRAME];
        match self.stream.peek(&mut bytes) {
            Ok(0) => true,
            Ok(length) => language.is_told(&bytes[..length]),
            Err(e) => !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lobby(language: Language) -> (Lobby, SocketAddr) {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        (Lobby::new(tcp, language).unwrap(), address)
    }

    fn dial(address: SocketAddr, says: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(says).unwrap();
        stream
    }

    #[test]
    fn who_speaks_is_served_before_those_who_say_nothing_or_half_of_it() {
        let (mut lobby, address) = lobby(Language::RcPingpong);
        let whole = b"0000:000011:7c5a01:00000000000000000000ffff0a090001\0";
        let _silent = dial(address, b"");
        let mut slow = dial(address, &whole[..20]);
        let told = dial(address, whole);
        assert_eq!(lobby.next().unwrap().1, told.local_addr().unwrap());
        let gone = dial(address, b"");
        let left = gone.local_addr().unwrap();
        drop(gone);
        assert_eq!(lobby.next().unwrap().1, left);
        slow.write_all(&whole[20..]).unwrap();
        let (mut stream, from) = lobby.next().unwrap();
        assert_eq!(from, slow.local_addr().unwrap());
        let mut said = [0; rc_pingpong::MESSAGE_LEN];
        std::io::Read::read_exact(&mut stream, &mut said).unwrap();
        assert_eq!(said, *whole, "nothing was taken from it");
        assert_eq!(lobby.guests.len(), 1);
    }

    #[test]
    fn one_too_many_makes_the_first_one_go() {
        let (mut lobby, address) = lobby(Language::Handshake);
        let silent: Vec<_> = (0..=PLACES).map(|_| dial(address, b"")).collect();
        let junk = dial(address, b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(lobby.next().unwrap().1, junk.local_addr().unwrap());
        assert_eq!(lobby.guests.len(), PLACES);
        let mut told = Vec::new();
        std::io::Read::read_to_end(&mut &silent[0], &mut told).unwrap();
        assert!(matches!(decode(&told).unwrap().frame, Frame::Refuse(_)));
    }

    #[test]
    fn who_has_had_its_time_is_told_so() {
        let (mut lobby, address) = lobby(Language::Handshake);
        let silent = dial(address, b"");
        while lobby.guests.is_empty() {
            lobby.let_in().unwrap();
        }
        let now = Instant::now();
        lobby.see_off(now);
        assert_eq!(lobby.guests.len(), 1);
        lobby.see_off(now + HELLO_LIMIT);
        assert!(lobby.guests.is_empty());
        let mut told = Vec::new();
        std::io::Read::read_to_end(&mut &silent, &mut told).unwrap();
        assert!(matches!(decode(&told).unwrap().frame, Frame::Refuse(_)));
    }
}
