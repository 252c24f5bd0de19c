//! Sockets that the processes of an address on the network share: each has a descriptor of every
//! one, so that none is closed while one of them lives.
//!
//! ```text
//!   a process that joins                  any member that lives
//!        │ ── QUESTION ──> the name of its slot ──> progress thread
//!        │ <── the descriptors, in the order of the slots ──┘
//! ```
//!
//! A member that is stopped does not answer: several are asked at once, and the first answer
//! counts. One process joins at a time ([`JoinTurn`]); it holds a name while it does, which goes
//! with it if it dies. One that is stopped meanwhile keeps the others from joining, and from
//! nothing else.

use core::mem::MaybeUninit;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, bind, connect, listen, recvmsg, sendmsg,
};
use rustix::process::Pid;

use super::connection::{credentials, new_socket};
use super::names::SocketNames;

/// Sockets of an address, at most; the kernel sends up to 253 descriptors with a message.
pub(crate) const SHARED: usize = 32;
/// The message of a process that asks for them, with the version of this exchange.
const QUESTION: &[u8] = b"soft-rnic: sockets, 1";
/// Members that are asked at first, and how long they have to answer before twice as many others
/// are asked as well. Not all at once: each answer has all descriptors, and the kernel limits how
/// many of a user's are on their way (as many as a process may have open).
const FIRST_ASKED: usize = 4;
const MORE_AFTER: Duration = Duration::from_millis(10);
/// Time that all of them have to answer.
const ALL_WITHIN: Duration = Duration::from_secs(3);
/// Processes that wait for their turn to join.
const BACKLOG: i32 = 4_096;
/// Between two looks at a name that cannot be waited for.
const LOOK: Duration = Duration::from_millis(1);

/// Descriptors that this process has in common with others.
#[derive(Debug)]
pub(super) struct SharedDescriptors(pub(super) Vec<OwnedFd>);

/// A process that has the address, and does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Silent {
    /// Its number, if it has one here: not in another namespace of process numbers, nor before it
    /// listens.
    pub(crate) pid: Option<i32>,
}

pub(super) fn is_question(bytes: &[u8]) -> bool {
    bytes == QUESTION
}

impl SharedDescriptors {
    /// Answers a process of this user that has asked. One that gets nothing asks another.
    pub(super) fn answer(&self, socket: &OwnedFd) {
        let sockets: Vec<BorrowedFd<'_>> = self.0.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SHARED))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if control.push(SendAncillaryMessage::ScmRights(&sockets)) {
            let _ = sendmsg(socket, &[IoSlice::new(QUESTION)], &mut control, SendFlags::NOSIGNAL);
        }
    }
}

/// A member that was asked.
struct AskedMember {
    pid: i32,
    socket: OwnedFd,
}

/// The descriptors of a living member of these names, besides the process in slot `own`; `None`
/// if there is none that has any.
pub(crate) fn ask(names: &SocketNames, own: u32) -> Result<Option<Vec<OwnedFd>>, Silent> {
    let end = host::time::now() + ALL_WITHIN;
    let mut others = (0..names.slots).filter(|slot| *slot != own).peekable();
    let (mut asked, mut at_once) = (Vec::new(), FIRST_ASKED);
    while others.peek().is_some() {
        asked.extend(others.by_ref().filter_map(|slot| ask_one(names, slot).ok()).take(at_once));
        if let Some(found) = await_answer(&mut asked, MORE_AFTER) {
            return Ok(Some(found));
        }
        at_once *= 2;
    }
    match await_answer(&mut asked, end.saturating_duration_since(host::time::now())) {
        Some(found) => Ok(Some(found)),
        None => asked
            .first()
            .map_or(Ok(None), |AskedMember { pid, .. }| Err(Silent { pid: Some(*pid) })),
    }
}

#[expect(clippy::disallowed_methods, reason = "the socket does not block")]
fn ask_one(names: &SocketNames, slot: u32) -> Result<AskedMember, Errno> {
    let socket = new_socket()?;
    connect(&socket, &names.slot(slot)?)?;
    let pid = Pid::as_raw(Some(credentials(&socket)?));
    let mut none = SendAncillaryBuffer::default();
    sendmsg(&socket, &[IoSlice::new(QUESTION)], &mut none, SendFlags::NOSIGNAL)?;
    Ok(AskedMember { pid, socket })
}

/// Waits for the answer of one of them. Those that have gone, or say anything else, are asked no
/// more.
fn await_answer(asked: &mut Vec<AskedMember>, limit: Duration) -> Option<Vec<OwnedFd>> {
    let end = host::time::now() + limit;
    while !asked.is_empty() {
        let mut polled: Vec<PollFd<'_>> =
            asked.iter().map(|one| PollFd::new(&one.socket, PollFlags::IN)).collect();
        let n = match host::fd::poll(&mut polled, Some(end)) {
            Err(Errno::INTR) => continue,
            n => n.ok()?,
        };
        let mut found = None;
        asked.retain(|one| match answer_of(&one.socket) {
            Err(Errno::AGAIN) => true,
            Err(_) => false,
            Ok(sockets) => {
                found = Some(sockets);
                false
            }
        });
        if found.is_some() || n == 0 {
            return found;
        }
    }
    None
}

#[expect(clippy::disallowed_methods, reason = "the socket does not block")]
fn answer_of(socket: &OwnedFd) -> Result<Vec<OwnedFd>, Errno> {
    let mut bytes = [0; QUESTION.len() + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SHARED))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut sockets = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            sockets.extend(rights);
        }
    }
    if is_question(&bytes[..received.bytes]) && !sockets.is_empty() {
        Ok(sockets)
    } else {
        Err(Errno::PROTO)
    }
}

/// The turn of a process to join, until it is dropped.
#[derive(Debug)]
pub(crate) struct JoinTurn(
    #[expect(dead_code, reason = "its name is what others wait for")] OwnedFd,
);

impl JoinTurn {
    /// Waits until no other process has it; for each that has it, so long.
    pub(crate) fn take(names: &SocketNames, limit: Duration) -> Result<JoinTurn, TurnError> {
        let mut end = host::time::now() + limit;
        loop {
            let (name, socket) = (names.joining()?, new_socket()?);
            match bind(&socket, &name) {
                Ok(()) => {
                    listen(&socket, BACKLOG)?;
                    return Ok(JoinTurn(socket));
                }
                Err(Errno::ADDRINUSE) => {}
                Err(error) => return Err(error.into()),
            }
            match await_holder(&name, end)? {
                Holder::LetGo => end = host::time::now() + limit,
                Holder::Unheard if host::time::now() < end => host::time::sleep(LOOK),
                Holder::Unheard => return Err(Silent { pid: None }.into()),
            }
        }
    }
}

/// The state of the process that had the turn.
enum Holder {
    LetGo,
    /// It has let go, or does not listen yet; or very many wait.
    Unheard,
}

/// Waits until the holder of a name lets go, which cuts off those that wait in its queue.
#[expect(clippy::disallowed_methods, reason = "the socket does not block")]
fn await_holder(name: &SocketAddrUnix, end: Instant) -> Result<Holder, TurnError> {
    let waiting = new_socket()?;
    match connect(&waiting, name) {
        Ok(()) => {}
        Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR) => return Ok(Holder::Unheard),
        Err(error) => return Err(error.into()),
    }
    let pid = match credentials(&waiting) {
        Ok(pid) => Some(Pid::as_raw(Some(pid))),
        // Out of sight.
        Err(Errno::SRCH) => None,
        Err(Errno::ACCESS) => return Err(TurnError::Foreign),
        Err(error) => return Err(error.into()),
    };
    loop {
        match host::fd::poll(&mut [PollFd::new(&waiting, PollFlags::IN)], Some(end)) {
            Ok(0) => return Err(Silent { pid }.into()),
            Ok(_) => return Ok(Holder::LetGo),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The reason that a process has no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnError {
    /// It is another process's, and stays that.
    Taken(Silent),
    /// It is another user's.
    Foreign,
    System(Errno),
}

impl From<Silent> for TurnError {
    fn from(silent: Silent) -> TurnError {
        TurnError::Taken(silent)
    }
}

impl From<Errno> for TurnError {
    fn from(error: Errno) -> TurnError {
        TurnError::System(error)
    }
}

#[cfg(test)]
mod tests;
