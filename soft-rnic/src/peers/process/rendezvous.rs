//! Rendezvous: how processes find each other, without a daemon or a file.
//!
//! A process claims a slot by binding an abstract socket of that name: it is exclusive,
//! and gone with the process. The slot is the upper part of the numbers of its queue
//! pairs, so the number of a queue pair leads to its process.
//!
//! A process that is going to talk to another one *introduces* itself there: it connects,
//! and sends one message with the descriptors of what it writes for the other to read. It
//! does not wait for an answer; the other does the same in turn. When both have, they are
//! a pair. So it does not matter which of them connects its queue pair first, nor whether
//! the first one is asleep.

mod introduction;

use core::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, bind, connect, listen};
use rustix::process::{Pid, Resource, geteuid, getrlimit};

use crate::memory::attach as memory;
use crate::memory::attach::Proof;
use crate::memory::keys::Keys;

use super::connection::{credentials, new_socket, who};
use super::directory::{MAGIC, ProcessDirectory, VERSION};
use super::liveness::Liveness;
use super::mapped::Mapped;
use super::marker::Marker;
use super::names::SocketNames;
use super::pair::{PairParts, ProcessPair, has_gone};
use super::ring::Rings;
use super::shared_sockets::SharedDescriptors;
use introduction::{
    Introduction, IntroductionWords, PeerIntroduction, RendezvousMessage, is_event_counter, read,
    send,
};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4_096;
/// Connections that have not introduced themselves yet (pending).
const PENDING: usize = 256;
/// Such connections of one process, at most: it introduces itself right after it has connected, so
/// that more than a few are not meant to say anything.
const PENDING_PER_PROCESS: usize = 16;
/// Slots of one process that are met. It has one for each copy of this library in it.
const SLOTS_PER_PROCESS: usize = 4;
/// Descriptors that a pair takes: of the process, its doorbell, and two connections.
const DESCRIPTORS: u64 = 4;
/// Connections that are accepted before something else is done.
const AT_ONCE: usize = 256;

#[derive(Debug, Default)]
struct PendingPair {
    ours: Option<Introduction>,
    /// With the connection over which it came.
    theirs: Option<(PeerIntroduction, OwnedFd)>,
}

/// The objects that this process publishes to all others.
#[derive(Debug)]
pub(crate) struct LocalProcess {
    pub(crate) slot: u32,
    /// The word in `directory` that tells whether this process lives: it is dropped before that.
    pub(crate) liveness: Liveness,
    pub(crate) directory: Mapped<ProcessDirectory>,
    pub(crate) doorbell: OwnedFd,
    pub(crate) listener: OwnedFd,
    pub(crate) marker: Marker,
    pub(super) names: SocketNames,
    /// The descriptors that the processes of this device share, if it is one on the network.
    pub(super) shared: Option<SharedDescriptors>,
    identity: u64,
    proof: Box<u64>,
}

/// A facility that this system does not have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Missing {
    pub(crate) what: &'static str,
    pub(crate) errno: Errno,
}

/// The rendezvous of processes: those on their way to be pairs.
#[derive(Debug, Default)]
pub(crate) struct ProcessRendezvous {
    known: BTreeMap<u32, PendingPair>,
    /// With the number of the process.
    pending: Vec<(i32, OwnedFd)>,
    /// Some connections were not accepted yet.
    has_unaccepted: bool,
    permitted: Option<i32>,
}

impl LocalProcess {
    /// Claims a slot; the search begins anywhere. The error says what is missing.
    pub(crate) fn claim(
        names: &SocketNames,
        anywhere: u64,
        proof: u64,
    ) -> Result<LocalProcess, (&'static str, Errno)> {
        let directory: Mapped<ProcessDirectory> =
            Mapped::create("soft-rnic").map_err(|e| ("sealed memory files", e))?;
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let doorbell = rustix::event::eventfd(0, flags).map_err(|e| ("event descriptors", e))?;
        if !is_event_counter(&doorbell) {
            return Err(("the directory /proc", Errno::NOENT));
        }
        let [overflow, map] =
            [OVERFLOW_UID, UID_MAP].map(|path| std::fs::read_to_string(path).unwrap_or_default());
        if is_overflow_user(&overflow, &map) {
            let what = "a user id of its own: it runs as the overflow user of a user namespace, run it as another one";
            return Err((what, Errno::ACCESS));
        }
        let claimed = listen_somewhere(names, anywhere).map_err(|e| ("abstract sockets", e))?;
        let (slot, listener, marker) = claimed;
        let has_barriers = u32::from(super::barrier::is_asymmetric());
        directory.has_barriers.store(has_barriers, core::sync::atomic::Ordering::Relaxed);
        directory.keys.publish(&Keys::of_process());
        directory.version.store(VERSION, core::sync::atomic::Ordering::Relaxed);
        directory.magic.store(MAGIC, core::sync::atomic::Ordering::Release);
        let (names, shared) = (names.clone(), None);
        let (identity, proof) = (anywhere, Box::new(proof));
        // SAFETY: `directory` is dropped behind `liveness`, and its mapping does not move.
        let liveness = unsafe { Liveness::new(&directory.liveness) };
        Ok(LocalProcess {
            slot,
            liveness,
            directory,
            doorbell,
            listener,
            marker,
            names,
            shared,
            identity,
            proof,
        })
    }

    /// Gives these to processes that ask from now on.
    pub(crate) fn share(&mut self, sockets: Vec<OwnedFd>) {
        self.shared = Some(SharedDescriptors(sockets));
    }

    pub(crate) fn names(&self) -> &SocketNames {
        &self.names
    }

    fn words(&self) -> IntroductionWords {
        let addr = (&raw const *self.proof).expose_provenance() as u64;
        let proof = Proof { addr, value: *self.proof };
        IntroductionWords { slot: self.slot, identity: self.identity, proof }
    }
}

/// The number that stands for all users that are not mapped in this namespace.
const OVERFLOW_UID: &str = "/proc/sys/kernel/overflowuid";

/// The users that are mapped: their first number here, that in the namespace around it, and how
/// many.
const UID_MAP: &str = "/proc/self/uid_map";

/// Reports whether this user has the number that stands for all unmapped users: then they cannot be
/// told from it. Outside of user namespaces all are mapped.
fn is_overflow_user(overflow: &str, map: &str) -> bool {
    let all_are_mapped = map.split_whitespace().eq(["0", "0", "4294967295"]);
    !all_are_mapped && overflow.trim().parse() == Ok(geteuid().as_raw())
}

/// The first slot from there on of which both names are free: another process, or another user,
/// may have one of them.
fn listen_somewhere(names: &SocketNames, anywhere: u64) -> Result<(u32, OwnedFd, Marker), Errno> {
    for i in 0..names.slots {
        let slot = (anywhere as u32 % names.slots + i) % names.slots;
        let socket = new_socket()?;
        match bind(&socket, &names.slot(slot)?).and_then(|()| Marker::bind(names, slot)) {
            Ok(marker) => {
                listen(&socket, BACKLOG)?;
                return Ok((slot, socket, marker));
            }
            Err(Errno::ADDRINUSE) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::ADDRINUSE)
}

/// Those that have been met, by their slots.
pub(crate) type PairsBySlot = BTreeMap<u32, Arc<ProcessPair>>;

/// The most pairs with processes that the program does not connect to: they take half of the
/// descriptors that it may have. A process that the program connects to is met in any case.
pub(crate) fn most_unasked() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / 2 / DESCRIPTORS).unwrap_or(usize::MAX)
}

impl ProcessRendezvous {
    /// Introduces this process to the one in a slot, unless it has been. False if no
    /// process is there.
    pub(crate) fn introduce(
        &mut self,
        here: &LocalProcess,
        slot: u32,
        pairs: &PairsBySlot,
    ) -> Result<bool, Errno> {
        self.introduce_to(here, slot, |rendezvous, pid| {
            rendezvous.slots_of(pid, slot, pairs) < SLOTS_PER_PROCESS
        })
    }

    /// [`introduce`](Self::introduce), to a process that the program does not connect to; `EMFILE`
    /// if there are so many pairs that no more of those are permitted.
    pub(crate) fn introduce_unasked(
        &mut self,
        here: &LocalProcess,
        slot: u32,
        pairs: &PairsBySlot,
        most: usize,
    ) -> Result<bool, Errno> {
        let is_refused = Cell::new(false);
        let is_there = self.introduce_to(here, slot, |rendezvous, pid| {
            let is_wanted = rendezvous.slots_of(pid, slot, pairs) < SLOTS_PER_PROCESS;
            is_refused.set(is_wanted && rendezvous.pairs_besides(slot, pairs) >= most);
            is_wanted && !is_refused.get()
        })?;
        if is_refused.get() { Err(Errno::MFILE) } else { Ok(is_there) }
    }

    /// [`introduce`](Self::introduce), to a process that is wanted.
    fn introduce_to(
        &mut self,
        here: &LocalProcess,
        slot: u32,
        is_wanted: impl Fn(&ProcessRendezvous, i32) -> bool,
    ) -> Result<bool, Errno> {
        if let Some(known) = self.known.get_mut(&slot) {
            // It has gone since, or has closed the connection of our introduction.
            known.ours.take_if(|ours| ours.is_stale());
        }
        if self.awaits(slot).is_some() {
            return Ok(true);
        }
        let mut permitted = self.permitted;
        let called = call(here, slot, &mut permitted, |pid| is_wanted(self, pid));
        self.permitted = permitted;
        let called = called?;
        let is_there = called.is_some();
        self.known.entry(slot).or_default().ours = called;
        Ok(is_there)
    }

    /// Returns the number of slots of a process besides this one that have been met, or introduced
    /// to.
    fn slots_of(&self, pid: i32, slot: u32, pairs: &PairsBySlot) -> usize {
        let is_met =
            |pair: &&Arc<ProcessPair>| pair.pid == pid && pair.slot != slot && !pair.has_left();
        let is_introduced = |(other, known): &(&u32, &PendingPair)| {
            let is_its = |ours: &Introduction| ours.pid == pid && !ours.is_stale();
            **other != slot && known.ours.as_ref().is_some_and(is_its)
        };
        pairs.values().filter(is_met).count() + self.known.iter().filter(is_introduced).count()
    }

    /// Returns the number of pairs with slots besides this one, and of introductions, each of which
    /// may become a pair when it is answered: it has its place.
    fn pairs_besides(&self, slot: u32, pairs: &PairsBySlot) -> usize {
        let is_introduced = |(other, known): &(&u32, &PendingPair)| {
            let is_new = **other != slot && !pairs.contains_key(other);
            is_new && known.ours.as_ref().is_some_and(|ours| !ours.is_stale())
        };
        let met = pairs.len() - usize::from(pairs.contains_key(&slot));
        met + self.known.iter().filter(is_introduced).count()
    }

    /// Takes in what other processes have said. Those that are not known yet are
    /// answered; the result is the pairs that are complete now.
    pub(crate) fn take_in(&mut self, here: &LocalProcess, pairs: &PairsBySlot) -> Vec<PairParts> {
        self.accept(here);
        let mut complete: Vec<PairParts> = Vec::new();
        for (pid, socket) in core::mem::take(&mut self.pending) {
            match read(&socket) {
                Ok(RendezvousMessage::Asks) => {
                    here.shared.iter().for_each(|shared| shared.answer(&socket))
                }
                Ok(RendezvousMessage::Introduction(intro)) => {
                    let (slot, pid) = (intro.words.slot, intro.pid);
                    let is_its = |parts: &&PairParts| parts.pid == pid && parts.slot != slot;
                    let slots = complete.iter().filter(is_its).count();
                    let slots = slots + self.slots_of(pid, slot, pairs);
                    let is_unasked = self.awaits(slot).is_none() && !pairs.contains_key(&slot);
                    let is_full =
                        || self.pairs_besides(slot, pairs) + complete.len() >= most_unasked();
                    if slots >= SLOTS_PER_PROCESS || (is_unasked && is_full()) {
                        continue;
                    }
                    self.known.entry(slot).or_default().theirs = Some((*intro, socket));
                    // A process that is not reached now introduces itself again when it needs us.
                    // If another process has the slot, that one is not called.
                    let _ = self.introduce_to(here, slot, |_, called| called == pid);
                    complete.extend(self.complete(slot));
                }
                Err(Errno::AGAIN) if self.pending.len() < PENDING => {
                    self.pending.push((pid, socket))
                }
                // A connection that says anything else does not come from this library.
                Err(_) => {}
            }
        }
        self.known.retain(|_, known| known.ours.as_ref().is_some_and(|ours| !ours.is_stale()));
        complete
    }

    /// Accepts connections, so many that other work has its turn.
    #[expect(clippy::disallowed_methods, reason = "the listener does not block")]
    fn accept(&mut self, here: &LocalProcess) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        self.has_unaccepted = true;
        for _ in 0..AT_ONCE {
            match accept_with(&here.listener, flags) {
                Ok(socket) => self.add_pending(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    // Or there are no descriptors, no memory: later.
                    self.has_unaccepted = error != Errno::AGAIN;
                    return;
                }
            }
        }
    }

    /// Listens to a connection, but not to another user's, nor to many of one process.
    fn add_pending(&mut self, socket: OwnedFd) {
        let Ok(pid) = credentials(&socket).map(|pid| Pid::as_raw(Some(pid))) else { return };
        let pending = self.pending.iter().filter(|(known, _)| *known == pid).count();
        if pending < PENDING_PER_PROCESS {
            self.pending.push((pid, socket));
        }
    }

    /// A pair, if both processes have introduced themselves.
    fn complete(&mut self, slot: u32) -> Option<PairParts> {
        let known = self.known.get_mut(&slot)?;
        let introduced_to = known.ours.as_ref()?.pid;
        // An introduction that claims the slot of another process is ignored.
        let (intro, accepted) =
            known.theirs.take().filter(|(intro, _)| intro.pid == introduced_to)?;
        let ours = known.ours.take()?;
        self.known.remove(&slot);
        // It has ended since, or runs another program: there is no process to meet.
        if has_gone(&intro.pidfd, [&ours.socket, &accepted]) {
            return None;
        }
        Some(PairParts {
            slot,
            pid: intro.pid,
            pidfd: intro.pidfd,
            theirs: intro.theirs,
            incoming: intro.incoming,
            outgoing: ours.outgoing,
            doorbell: intro.doorbell,
            socket: ours.socket,
            accepted,
            proof: intro.words.proof,
        })
    }

    /// Reports whether there is a connection that was not heard yet.
    pub(crate) fn has_pending(&self) -> bool {
        self.has_unaccepted || !self.pending.is_empty()
    }

    /// The process in a slot that this one has introduced itself to, and that has not answered.
    pub(crate) fn awaits(&self, slot: u32) -> Option<i32> {
        self.known.get(&slot)?.ours.as_ref().map(|ours| ours.pid)
    }
}

/// Introduces this process to the one in a slot; `None` if no process is there that would hear
/// it, or if that one is not wanted.
#[expect(clippy::disallowed_methods, reason = "the socket does not block")]
fn call(
    here: &LocalProcess,
    slot: u32,
    permitted: &mut Option<i32>,
    is_wanted: impl Fn(i32) -> bool,
) -> Result<Option<Introduction>, Errno> {
    let socket = new_socket()?;
    // No process has the slot; or the process that has it is another user's, has ended, or has
    // more to do than it gets done.
    let absent = |error| match error {
        Errno::CONNREFUSED | Errno::AGAIN | Errno::ACCESS | Errno::SRCH => Ok(None),
        error => Err(error),
    };
    let (pid, pidfd) = match connect(&socket, &here.names.slot(slot)?).and_then(|()| who(&socket)) {
        Ok(who) => who,
        Err(error) => return absent(error),
    };
    if !is_wanted(pid) {
        return Ok(None);
    }
    let first = *permitted.get_or_insert(pid);
    memory::permit(pid, first == pid);
    let mut outgoing: Mapped<Rings> = Mapped::create("soft-rnic-rings")?;
    outgoing.sign();
    let files = [here.directory.file(), outgoing.file()];
    let [Some(directory), Some(rings)] = files else { return Err(Errno::INVAL) };
    match send(&socket, &here.words().to_bytes(), &[directory, rings, here.doorbell.as_fd()]) {
        Ok(()) => {
            // It has a descriptor of its own now.
            outgoing.close_file();
            Ok(Some(Introduction { socket, pid, pidfd, outgoing }))
        }
        // It has gone in between.
        Err(Errno::PIPE | Errno::CONNRESET) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
