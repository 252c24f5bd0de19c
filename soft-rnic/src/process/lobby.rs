//! How processes find each other: no daemon, no file.
//!
//! A process claims a slot by binding an abstract socket of that name: it is exclusive,
//! and gone with the process. The slot is the upper part of the numbers of its queue
//! pairs, so a number that somebody was told leads to the process.
//!
//! Who is going to talk to a process *introduces* itself there: it connects, and sends
//! one message with the descriptors of what it writes for the other to read. Nobody
//! waits for an answer; the other does the same in turn. When both have, they are a
//! pair. So it does not matter who connects its queue pair first, nor whether the first
//! one is asleep.

use core::mem::MaybeUninit;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with,
};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

use super::directory::{Directory, MAGIC, SLOTS, VERSION};
use super::mapped::Mapped;
use super::memory::{self, Proof};
use super::pair::{Parts, has_gone};
use super::ring::Rings;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4_096;
/// Connections that have not said anything yet.
const SILENT: usize = 256;
/// Connections that are accepted before something else is done.
const AT_ONCE: usize = 256;

/// What a process says of itself, besides descriptors.
#[derive(Debug, Clone, Copy)]
struct Words {
    slot: u32,
    identity: u64,
    proof: Proof,
}

const WORDS: usize = 7;

impl Words {
    fn to_bytes(self) -> [u8; 8 * WORDS] {
        let layout = size_of::<Directory>() as u64 ^ (size_of::<Rings>() as u64) << 32;
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
    fn parse(bytes: &[u8]) -> Option<Words> {
        let mut words = [0; WORDS];
        if bytes.len() != 8 * WORDS {
            return None;
        }
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().ok()?);
        }
        let slot = u32::try_from(words[3]).ok().filter(|slot| *slot < SLOTS)?;
        let proof = Proof { addr: words[5], value: words[6] };
        let said = Words { slot, identity: words[4], proof };
        (said.to_bytes() == bytes).then_some(said)
    }
}

/// What another process has told.
#[derive(Debug)]
struct Told {
    words: Words,
    pid: i32,
    pidfd: OwnedFd,
    theirs: Mapped<Directory>,
    incoming: Mapped<Rings>,
    doorbell: OwnedFd,
}

/// What we have told another process.
#[derive(Debug)]
struct Introduction {
    socket: OwnedFd,
    pid: i32,
    pidfd: OwnedFd,
    outgoing: Mapped<Rings>,
}

impl Introduction {
    fn is_stale(&self) -> bool {
        has_gone(&self.pidfd, [&self.socket; 2])
    }
}

#[derive(Debug, Default)]
struct Acquaintance {
    ours: Option<Introduction>,
    /// With the connection over which it was told.
    theirs: Option<(Told, OwnedFd)>,
}

/// What this process tells all others.
#[derive(Debug)]
pub(crate) struct Here {
    pub(crate) slot: u32,
    pub(crate) directory: Mapped<Directory>,
    pub(crate) doorbell: OwnedFd,
    pub(crate) listener: OwnedFd,
    identity: u64,
    proof: Box<u64>,
}

/// Processes on their way to be pairs.
#[derive(Debug, Default)]
pub(crate) struct Lobby {
    known: BTreeMap<u32, Acquaintance>,
    silent: Vec<OwnedFd>,
    /// Not all who have connected were accepted.
    unheard: bool,
    permitted: Option<i32>,
}

fn name(slot: u32) -> Result<SocketAddrUnix, Errno> {
    let name = format!("soft-rnic-{}-{slot}", geteuid().as_raw());
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

impl Here {
    /// Claims a slot; the search begins anywhere. The error says what is missing.
    pub(crate) fn claim(anywhere: u64, proof: u64) -> Result<Here, (&'static str, Errno)> {
        let directory: Mapped<Directory> =
            Mapped::create("soft-rnic").map_err(|e| ("sealed memory files", e))?;
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let doorbell = rustix::event::eventfd(0, flags).map_err(|e| ("event descriptors", e))?;
        if !is_event_counter(&doorbell) {
            return Err(("the directory /proc", Errno::NOENT));
        }
        if is_nobody(&std::fs::read_to_string(OVERFLOW_UID).unwrap_or_default()) {
            return Err(("a user that can be told from others: this one is nobody", Errno::ACCESS));
        }
        let (slot, listener) = listen_somewhere(anywhere).map_err(|e| ("abstract sockets", e))?;
        let has_barriers = u32::from(super::barrier::is_asymmetric());
        directory.has_barriers.store(has_barriers, core::sync::atomic::Ordering::Relaxed);
        directory.version.store(VERSION, core::sync::atomic::Ordering::Relaxed);
        directory.magic.store(MAGIC, core::sync::atomic::Ordering::Release);
        let identity = anywhere;
        Ok(Here { slot, directory, doorbell, listener, identity, proof: Box::new(proof) })
    }

    fn words(&self) -> Words {
        let addr = (&raw const *self.proof).expose_provenance() as u64;
        let proof = Proof { addr, value: *self.proof };
        Words { slot: self.slot, identity: self.identity, proof }
    }
}

/// The number that users have here who have none in this namespace.
const OVERFLOW_UID: &str = "/proc/sys/kernel/overflowuid";

/// Whether this user is the one that those look like who have no number here: then others
/// cannot be told from it.
fn is_nobody(overflow: &str) -> bool {
    overflow.trim().parse() == Ok(geteuid().as_raw())
}

fn listen_somewhere(anywhere: u64) -> Result<(u32, OwnedFd), Errno> {
    for i in 0..SLOTS {
        let slot = (anywhere as u32).wrapping_add(i) % SLOTS;
        let socket = new_socket()?;
        match bind(&socket, &name(slot)?) {
            Ok(()) => {
                listen(&socket, BACKLOG)?;
                return Ok((slot, socket));
            }
            Err(Errno::ADDRINUSE) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::ADDRINUSE)
}

impl Lobby {
    /// Introduces this process to the one in a slot, unless it has been. False if
    /// nobody is there.
    pub(crate) fn introduce(&mut self, here: &Here, slot: u32) -> Result<bool, Errno> {
        let known = self.known.entry(slot).or_default();
        // Whom we have told of us has gone since, or did not want to hear of it.
        known.ours.take_if(|ours| ours.is_stale());
        if known.ours.is_none() {
            known.ours = call(here, slot, &mut self.permitted)?;
        }
        Ok(known.ours.is_some())
    }

    /// Takes in what other processes have said. Those that are not known yet are
    /// answered; the result is who is complete now.
    pub(crate) fn take_in(&mut self, here: &Here) -> Vec<Parts> {
        self.accept(here);
        let mut complete = Vec::new();
        for socket in core::mem::take(&mut self.silent) {
            match read(&socket) {
                Ok(told) => {
                    let slot = told.words.slot;
                    self.known.entry(slot).or_default().theirs = Some((told, socket));
                    // Who cannot be told now tells of itself again when it needs us.
                    let _ = self.introduce(here, slot);
                    complete.extend(self.complete(slot));
                }
                Err(Errno::AGAIN) if self.silent.len() < SILENT => self.silent.push(socket),
                // Whoever says something else is not one of ours.
                Err(_) => {}
            }
        }
        self.known.retain(|_, known| known.ours.as_ref().is_some_and(|ours| !ours.is_stale()));
        complete
    }

    /// Accepts those who have connected, so many that others have their turn.
    fn accept(&mut self, here: &Here) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        self.unheard = true;
        for _ in 0..AT_ONCE {
            match accept_with(&here.listener, flags) {
                // Who is not this user's is not listened to.
                Ok(socket) if credentials(&socket).is_ok() => self.silent.push(socket),
                Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    // Or there are no descriptors, no memory: later.
                    self.unheard = error != Errno::AGAIN;
                    return;
                }
            }
        }
    }

    /// A pair, if both have told.
    fn complete(&mut self, slot: u32) -> Option<Parts> {
        let known = self.known.get_mut(&slot)?;
        let told_to = known.ours.as_ref()?.pid;
        // Whoever says that it has a slot which is another's is not listened to.
        let (told, accepted) = known.theirs.take().filter(|(told, _)| told.pid == told_to)?;
        let ours = known.ours.take()?;
        self.known.remove(&slot);
        // It has ended since, or runs another program: there is nobody to meet.
        if has_gone(&told.pidfd, [&ours.socket, &accepted]) {
            return None;
        }
        Some(Parts {
            slot,
            pid: told.pid,
            pidfd: told.pidfd,
            theirs: told.theirs,
            incoming: told.incoming,
            outgoing: ours.outgoing,
            doorbell: told.doorbell,
            socket: ours.socket,
            accepted,
            proof: told.words.proof,
        })
    }

    /// Whether somebody has connected and was not heard yet.
    pub(crate) fn has_silent(&self) -> bool {
        self.unheard || !self.silent.is_empty()
    }

    /// The process in a slot that has been told of this one, and has not answered.
    pub(crate) fn awaits(&self, slot: u32) -> Option<i32> {
        self.known.get(&slot)?.ours.as_ref().map(|ours| ours.pid)
    }
}

/// Tells the process in a slot of this one; none if nobody is there who would hear it.
fn call(
    here: &Here,
    slot: u32,
    permitted: &mut Option<i32>,
) -> Result<Option<Introduction>, Errno> {
    let socket = new_socket()?;
    // The slot is nobody's, or of somebody who is not to be talked to, has ended, or has
    // more to do than it gets done.
    let nobody = |error| match error {
        Errno::CONNREFUSED | Errno::AGAIN | Errno::ACCESS | Errno::SRCH => Ok(None),
        error => Err(error),
    };
    let (pid, pidfd) = match connect(&socket, &name(slot)?).and_then(|()| who(&socket)) {
        Ok(who) => who,
        Err(error) => return nobody(error),
    };
    let first = *permitted.get_or_insert(pid);
    memory::permit(pid, first == pid);
    let outgoing: Mapped<Rings> = Mapped::create("soft-rnic-rings")?;
    outgoing.sign();
    let files = [here.directory.file(), outgoing.file()];
    let [Some(directory), Some(rings)] = files else { return Err(Errno::INVAL) };
    match send(&socket, &here.words().to_bytes(), &[directory, rings, here.doorbell.as_fd()]) {
        Ok(()) => Ok(Some(Introduction { socket, pid, pidfd, outgoing })),
        // It has gone in between.
        Err(Errno::PIPE | Errno::CONNRESET) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The process at the other end of a connection, which has to be this user's.
fn who(socket: &OwnedFd) -> Result<(i32, OwnedFd), Errno> {
    let pid = credentials(socket)?;
    Ok((Pid::as_raw(Some(pid)), pidfd_open(pid, PidfdFlags::empty())?))
}

/// The number of the process at the other end: `EACCES` if it is another user's, `ESRCH`
/// if it is out of sight (in another namespace it has no number here).
fn credentials(socket: &OwnedFd) -> Result<Pid, Errno> {
    let mut seen = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: a place for credentials, and its size.
    let result = unsafe {
        let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut seen).cast(), &raw mut len)
    };
    if result != 0 || len as usize != size_of::<libc::ucred>() {
        return Err(Errno::INVAL);
    }
    if seen.uid != geteuid().as_raw() {
        return Err(Errno::ACCESS);
    }
    Pid::from_raw(seen.pid).ok_or(Errno::SRCH)
}

/// Whether a descriptor is an event counter, as the system says.
fn is_event_counter(fd: &OwnedFd) -> bool {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    std::fs::read_link(path).is_ok_and(|to| to.as_os_str() == "anon_inode:[eventfd]")
}

fn send(socket: &OwnedFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(files));
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// What a connection says; `EAGAIN` if nothing yet.
fn read(socket: &OwnedFd) -> Result<Told, Errno> {
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
    let words = Words::parse(&bytes[..received.bytes]).ok_or(Errno::PROTO)?;
    let [directory, rings, doorbell] = <[OwnedFd; 3]>::try_from(files).map_err(|_| Errno::PROTO)?;
    // Eight bytes are written to it: elsewhere they could do harm, or find nobody.
    if !is_event_counter(&doorbell) {
        return Err(Errno::PROTO);
    }
    let (pid, pidfd) = who(socket)?;
    let theirs: Mapped<Directory> = Mapped::open(&directory)?;
    let incoming: Mapped<Rings> = Mapped::open(&rings)?;
    Ok(Told { words, pid, pidfd, theirs, incoming, doorbell })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::pair::Pair;
    use crate::process::tests::unfilled::Unfilled;

    fn here() -> Here {
        Here::claim(1, 2).unwrap()
    }

    fn accepted(here: &Here) -> OwnedFd {
        loop {
            match accept_with(&here.listener, SocketFlags::CLOEXEC) {
                Ok(socket) => return socket,
                Err(error) => assert_eq!(error, Errno::AGAIN),
            }
        }
    }

    #[test]
    fn a_doorbell_that_is_none_is_not_rung() {
        let here = here();
        let rings: Mapped<Rings> = Mapped::create("test").unwrap();
        let (_read, pipe) = rustix::pipe::pipe().unwrap();
        let files = [here.directory.file().unwrap(), rings.file().unwrap()];
        for (doorbell, is_one) in [(here.doorbell.as_fd(), true), (pipe.as_fd(), false)] {
            let socket = new_socket().unwrap();
            connect(&socket, &name(here.slot).unwrap()).unwrap();
            let said = [files[0], files[1], doorbell];
            send(&socket, &here.words().to_bytes(), &said).unwrap();
            let heard = read(&accepted(&here));
            assert_eq!(heard.err(), (!is_one).then_some(Errno::PROTO));
        }
    }

    #[test]
    fn who_says_that_it_has_anothers_slot_is_not_taken_in() {
        let (here, mut lobby) = (here(), Lobby::default());
        // This process has introduced itself to somebody else in that slot.
        let mut other =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&other);
        let (socket, _other_end) = connection();
        let introduction = Introduction {
            socket,
            pid: pid.as_raw_pid(),
            pidfd: pidfd_open(pid, PidfdFlags::empty()).unwrap(),
            outgoing: Mapped::create("test").unwrap(),
        };
        lobby.known.entry(here.slot).or_default().ours = Some(introduction);
        let told = call(&here, here.slot, &mut None).unwrap().unwrap();
        assert!(lobby.take_in(&here).is_empty());
        assert!(lobby.awaits(here.slot).is_some());
        // It is told so (once no process has a copy that another test has just forked).
        while !has_gone(&told.pidfd, [&told.socket; 2]) {
            std::thread::yield_now();
        }
        other.kill().unwrap();
        other.wait().unwrap();
        // The other has ended: who says it now is believed.
        let _told = call(&here, here.slot, &mut None).unwrap().unwrap();
        let complete = lobby.take_in(&here);
        assert_eq!(complete.iter().map(|parts| parts.slot).collect::<Vec<_>>(), [here.slot]);
    }

    /// Who is met when somebody in this process tells of itself with such a proof.
    fn met(proof: impl Fn(Proof) -> Proof) -> (Here, Pair) {
        let (here, mut lobby) = (here(), Lobby::default());
        let words = here.words();
        let told = Words { proof: proof(words.proof), ..words };
        let rings: Mapped<Rings> = Mapped::create("test").unwrap();
        let socket = new_socket().unwrap();
        connect(&socket, &name(here.slot).unwrap()).unwrap();
        let files = [here.directory.file().unwrap(), rings.file().unwrap()];
        let said = [files[0], files[1], here.doorbell.as_fd()];
        send(&socket, &told.to_bytes(), &said).unwrap();
        let [parts] = <[Parts; 1]>::try_from(lobby.take_in(&here)).unwrap();
        (here, Pair::new(parts))
    }

    #[test]
    fn who_runs_another_program_since_is_not_attached_to() {
        let (_here, it) = met(|proof| proof);
        assert!(it.attaches() && !it.is_dead());
        // Another program has something else there, or nothing.
        let others = [
            met(|proof| Proof { value: !proof.value, ..proof }),
            met(|proof| Proof { addr: 8, ..proof }),
        ];
        assert!(others.iter().all(|(_here, other)| !other.attaches() && other.is_dead()));
        assert_eq!(memory::refused_memory(), None);
    }

    /// What it says may be a page that it does not fill until it likes.
    #[test]
    fn nobody_waits_in_the_lobby_for_what_another_process_has_in_its_memory() {
        let Some(page) = Unfilled::new() else { return };
        let addr = page.addr();
        let (done, met_it) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let (_here, pair) = met(|proof| Proof { addr, ..proof });
            let _ = done.send(pair.is_dead());
        });
        let is_dead = met_it.recv_timeout(std::time::Duration::from_secs(60));
        page.fill();
        assert_eq!(is_dead, Ok(false));
    }

    fn connection() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    #[test]
    fn a_flood_of_connections_is_accepted_bit_by_bit() {
        let (here, mut lobby) = (here(), Lobby::default());
        let many = AT_ONCE + 1;
        let connect = |_| {
            let socket = new_socket().unwrap();
            connect(&socket, &name(here.slot).unwrap()).unwrap();
            socket
        };
        let sockets: Vec<_> = (0..many).map(connect).collect();
        lobby.take_in(&here);
        assert!(lobby.unheard);
        for socket in sockets {
            rustix::net::shutdown(socket, rustix::net::Shutdown::Both).unwrap();
        }
        lobby.take_in(&here);
        assert!(!lobby.unheard);
        lobby.take_in(&here);
        assert!(!lobby.has_silent());
    }

    #[test]
    fn a_user_whom_others_look_like_is_not_told_from_them() {
        let own = geteuid().as_raw();
        assert!(is_nobody(&format!("{own}\n")));
        assert!(!is_nobody(&format!("{}\n", own + 1)) && !is_nobody(""));
    }
}
