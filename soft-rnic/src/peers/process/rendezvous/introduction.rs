//! The message with which a process introduces itself: words, and descriptors of what it writes.

use core::mem::MaybeUninit;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::super::connection::who;
use super::super::directory::{MAGIC, ProcessDirectory, SLOTS, VERSION};
use super::super::mapped::Mapped;
use super::super::pair::has_gone;
use super::super::ring::Rings;
use super::super::shared_sockets::is_question;
use crate::memory::attach::Proof;

/// The words with which a process introduces itself, besides descriptors.
#[derive(Debug, Clone, Copy)]
pub(super) struct IntroductionWords {
    pub(super) slot: u32,
    pub(super) identity: u64,
    pub(super) proof: Proof,
}

const WORDS: usize = 7;

impl IntroductionWords {
    pub(super) fn to_bytes(self) -> [u8; 8 * WORDS] {
        let layout = size_of::<ProcessDirectory>() as u64 ^ (size_of::<Rings>() as u64) << 32;
        let words = [
            MAGIC,
            VERSION.into(),
            layout,
            self.slot.into(),
            self.identity,
            self.proof.addr,
            self.proof.value,
        ];
        let mut bytes = [0; 8 * WORDS];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// `None` for what a process of another version says.
    fn parse(bytes: &[u8]) -> Option<IntroductionWords> {
        let mut words = [0; WORDS];
        if bytes.len() != 8 * WORDS {
            return None;
        }
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().ok()?);
        }
        let slot = u32::try_from(words[3]).ok().filter(|slot| *slot < SLOTS)?;
        let proof = Proof { addr: words[5], value: words[6] };
        let said = IntroductionWords { slot, identity: words[4], proof };
        (said.to_bytes() == bytes).then_some(said)
    }
}

/// The introduction of another process.
#[derive(Debug)]
pub(super) struct PeerIntroduction {
    pub(super) words: IntroductionWords,
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    pub(super) theirs: Mapped<ProcessDirectory>,
    pub(super) incoming: Mapped<Rings>,
    pub(super) doorbell: OwnedFd,
}

/// Our introduction to another process.
#[derive(Debug)]
pub(super) struct Introduction {
    pub(super) socket: OwnedFd,
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    pub(super) outgoing: Mapped<Rings>,
}

impl Introduction {
    pub(super) fn is_stale(&self) -> bool {
        has_gone(&self.pidfd, [&self.socket; 2])
    }
}

/// Reports whether a descriptor is an event counter, as the system says.
pub(super) fn is_event_counter(fd: &OwnedFd) -> bool {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    std::fs::read_link(path).is_ok_and(|to| to.as_os_str() == "anon_inode:[eventfd]")
}

pub(super) fn send(socket: &OwnedFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(files));
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// The message that came over a connection.
#[derive(Debug)]
pub(super) enum RendezvousMessage {
    Introduction(Box<PeerIntroduction>),
    /// A process that is about to share the address asks for the sockets.
    Asks,
}

/// Reads the message of a connection; `EAGAIN` if there is none yet.
#[expect(clippy::disallowed_methods, reason = "the socket does not block")]
pub(super) fn read(socket: &OwnedFd) -> Result<RendezvousMessage, Errno> {
    let mut bytes = [0; 8 * WORDS + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut files: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    if is_question(&bytes[..received.bytes]) {
        return Ok(RendezvousMessage::Asks);
    }
    let words = IntroductionWords::parse(&bytes[..received.bytes]).ok_or(Errno::PROTO)?;
    let [directory, rings, doorbell] = <[OwnedFd; 3]>::try_from(files).map_err(|_| Errno::PROTO)?;
    // Eight bytes are written to it: elsewhere they could do harm, or wake no process.
    if !is_event_counter(&doorbell) {
        return Err(Errno::PROTO);
    }
    let (pid, pidfd) = who(socket)?;
    let theirs: Mapped<ProcessDirectory> = Mapped::open(&directory)?;
    let incoming: Mapped<Rings> = Mapped::open(&rings)?;
    let intro = PeerIntroduction { words, pid, pidfd, theirs, incoming, doorbell };
    Ok(RendezvousMessage::Introduction(Box::new(intro)))
}
