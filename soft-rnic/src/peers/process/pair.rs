//! One other process, and what lies between it and this one.
//!
//! Two connections stay open for as long as both processes have to do with each other:
//! that over which this one has introduced itself (`socket`), and the other's (`accepted`).
//! They say what the process's number does not: that it runs another program now, or has
//! let go of us; and, as long as it lives, that it takes us for dead.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use host::sync::OnceLock;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use host::sync::Mutex;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use crate::clock;
use crate::lock::{Lock, Padded};
use crate::memory::attach::{Proof, note_refusal};
use crate::memory::published::PublishedRegion;
use crate::queues::requester::RingProgress;
use crate::reason::WcReason;

use super::barrier::{is_asymmetric, light};
use super::budget::Share;
use super::directory::ProcessDirectory;
use super::liveness::OWNER_DIED;
use super::mapped::Mapped;
use super::region::MappedWindow;
use super::ring::{RequestWriter, Rings};
use super::windows::Windows;

/// Another process that this one exchanges requests with.
#[derive(Debug)]
pub(crate) struct ProcessPair {
    pub(crate) slot: u32,
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) theirs: Mapped<ProcessDirectory>,
    pub(crate) incoming: Mapped<Rings>,
    pub(crate) outgoing: Mapped<Rings>,
    pub(crate) doorbell: OwnedFd,
    /// The connection over which we have introduced ourselves, and that over which it has.
    pub(crate) socket: OwnedFd,
    pub(crate) accepted: OwnedFd,
    /// True if its memory can be reached by cross-memory attach; empty until that was tried.
    attaches: OnceLock<bool>,
    /// The system has refused that.
    refused: AtomicBool,
    /// Time at which it was last seen not to have gone, before an access to its memory.
    seen: AtomicU64,
    proof: Proof,
    /// It executes our barriers, where it needs them.
    pub(crate) spares_barriers: bool,
    /// It has ended, or does not keep the rules.
    dead: AtomicBool,
    /// The process that has met it.
    ours: u32,
    pub(crate) requests: Padded<Lock<RequestWriter>>,
    windows: Arc<Mutex<Windows>>,
    /// Queue pairs whose requests wait for room.
    blocked: Mutex<BlockedQps>,
    has_blocked: AtomicBool,
    /// Its progress in our ring of requests when it was given up, for messages to queue pairs and
    /// to groups: they may be dropped, and do not wait for room there.
    given_up: Mutex<[Option<RingProgress>; 2]>,
}

/// Queue pairs that wait for room, and which one had its turn last.
#[derive(Debug, Default)]
struct BlockedQps {
    numbers: BTreeSet<u32>,
    last: u32,
}

/// The parts that a pair is made of.
#[derive(Debug)]
pub(crate) struct PairParts {
    pub(crate) slot: u32,
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) theirs: Mapped<ProcessDirectory>,
    pub(crate) incoming: Mapped<Rings>,
    pub(crate) outgoing: Mapped<Rings>,
    pub(crate) doorbell: OwnedFd,
    pub(crate) socket: OwnedFd,
    pub(crate) accepted: OwnedFd,
    pub(crate) proof: Proof,
}

impl ProcessPair {
    pub(crate) fn new(parts: PairParts) -> ProcessPair {
        let PairParts { slot, pid, pidfd, theirs, incoming, outgoing, .. } = parts;
        let PairParts { doorbell, socket, accepted, proof, .. } = parts;
        let spares_barriers = is_asymmetric() && theirs.has_barriers.load(Ordering::Relaxed) == 1;
        ProcessPair {
            slot,
            pid,
            pidfd,
            theirs,
            incoming,
            outgoing,
            doorbell,
            socket,
            accepted,
            attaches: OnceLock::new(),
            refused: AtomicBool::new(false),
            seen: AtomicU64::new(0),
            proof,
            spares_barriers,
            dead: AtomicBool::new(false),
            ours: std::process::id(),
            requests: Padded::default(),
            windows: Windows::new(),
            blocked: Mutex::default(),
            has_blocked: AtomicBool::new(false),
            given_up: Mutex::default(),
        }
    }

    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        // Relaxed: a thread that misses it finds out later.
        self.dead.load(Ordering::Relaxed)
    }

    /// It has ended, or does not keep the rules. The shutdown of the connections notifies it,
    /// if it lives, and the progress thread, which buries it. Returns true if this call was the
    /// first.
    pub(crate) fn declare_dead(&self) -> bool {
        let is_news = !self.dead.swap(true, Ordering::AcqRel);
        // A child of fork that thinks so does not speak for its parent.
        if is_news && std::process::id() == self.ours {
            // They fail if it has gone: then no process has to be notified.
            let _ = shutdown(&self.socket, Shutdown::Write);
            let _ = shutdown(&self.accepted, Shutdown::Read);
        }
        is_news
    }

    /// Reports whether the process has gone: it has ended, runs another program, or has let go of
    /// us. It does not access our memory any more, nor write into its rings.
    pub(crate) fn has_gone(&self) -> bool {
        has_gone(&self.pidfd, [&self.socket, &self.accepted])
    }

    /// True once the process has died, also where it was not declared dead yet: its memory may
    /// still be mapped here, but no program reads it any more.
    #[inline]
    pub(crate) fn has_died(&self) -> bool {
        // Relaxed: the kernel stores it before it lets others know of the death.
        match self.theirs.liveness.load(Ordering::Relaxed) {
            0 => !self.is_reached(),
            word => word & OWNER_DIED != 0,
        }
    }

    /// Reports whether an access to its memory, by its number, would reach it: it has not gone, as
    /// far as was looked within [`SEEN_NS`].
    pub(crate) fn is_reached(&self) -> bool {
        let now = clock::now();
        if now.wrapping_sub(self.seen.load(Ordering::Relaxed)) < SEEN_NS {
            return true;
        }
        if self.has_gone() {
            return false;
        }
        self.seen.store(now, Ordering::Relaxed);
        true
    }

    /// Reports whether a thread of it has polled without result on a processor, counted from 1, and
    /// not on another one since.
    pub(crate) fn polls_on(&self, processor: u32) -> bool {
        self.theirs.processor.load(Ordering::Relaxed) == processor
    }

    /// Reports whether its memory can be reached by cross-memory attach. The first thread that
    /// needs to know finds out, and not the one that meets it: the check reads in that memory,
    /// which takes as long as the process likes (a page may be its own to fill), and others are
    /// waiting to be met.
    pub(crate) fn attaches(&self) -> bool {
        *self.attaches.get_or_init(|| match self.proof.check(self.pid) {
            Ok(()) => true,
            // It has ended since, or runs another program.
            Err(Errno::FAULT | Errno::SRCH) => {
                self.declare_dead();
                false
            }
            Err(error) => {
                self.refuse(error);
                false
            }
        })
    }

    /// Notes that the system does not permit access to its memory.
    #[cold]
    pub(crate) fn refuse(&self, error: Errno) {
        self.refused.store(true, Ordering::Relaxed);
        note_refusal(self.pid, error);
    }

    /// The reason why a message could not be read in its memory.
    pub(crate) fn unreadable(&self) -> WcReason {
        let is_refused = self.refused.load(Ordering::Relaxed);
        if is_refused { WcReason::LocalUnattached } else { WcReason::LocalGone }
    }

    /// Reports whether its memory is still the one that it introduced, as far as it can be reached:
    /// a process that runs another program loses it before anything else.
    pub(crate) fn has_its_memory(&self) -> bool {
        self.proof.holds(self.pid)
    }

    /// Reports whether it exchanges nothing with us any more, even if it lives.
    pub(crate) fn has_left(&self) -> bool {
        let mut fds = [PollFd::new(&self.accepted, PollFlags::RDHUP)];
        self.is_dead() || host::fd::poll_at_once(&mut fds).is_ok_and(|n| n > 0) || self.has_gone()
    }

    /// Wakes the process, if no thread there is looking.
    #[inline]
    pub(crate) fn wake(&self) {
        // Either we see that it is going to sleep, or it sees what we have put.
        light(self.spares_barriers);
        host::point();
        if self.theirs.armed.load(Ordering::Relaxed) != 0 {
            ring(&self.doorbell);
        }
    }

    /// A region of the process, mapped here; `None` if it cannot be.
    pub(crate) fn window(
        &self,
        key: u32,
        published: &PublishedRegion,
    ) -> Option<Arc<MappedWindow>> {
        let in_file = published.file?;
        if let Some(window) = self.kept_window(key, published) {
            return Some(window);
        }
        let share = Share::take(published.length)?;
        let is_still_it = || !self.has_gone();
        let window = MappedWindow::open(self.pid, published, &in_file, share, is_still_it).ok()?;
        let mut windows = self.windows.lock();
        windows.sweep(|key, window| self.theirs.version(key) == Some(window.version));
        let window = Arc::new(window);
        windows.insert(key, Arc::clone(&window));
        Some(window)
    }

    fn kept_window(&self, key: u32, published: &PublishedRegion) -> Option<Arc<MappedWindow>> {
        let mut windows = self.windows.lock();
        windows.get(key).filter(|window| window.is_of(published)).cloned()
    }

    /// Returns the number of its regions that are kept mapped.
    #[cfg(test)]
    pub(crate) fn windows(&self) -> usize {
        self.windows.lock().len()
    }

    /// Nothing of it is mapped any more, but for what is in use.
    pub(crate) fn forget_windows(&self) {
        self.windows.lock().clear();
    }

    /// A queue pair waits for room in the ring of requests.
    pub(crate) fn block(&self, qpn: u32) {
        let mut blocked = self.blocked.lock();
        blocked.numbers.insert(qpn);
        self.has_blocked.store(true, Ordering::Relaxed);
        self.outgoing.wants_room.store(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn has_blocked(&self) -> bool {
        self.has_blocked.load(Ordering::Relaxed)
    }

    /// Returns the index up to which it says that it has read our ring of requests.
    pub(crate) fn has_read(&self) -> RingProgress {
        // Relaxed: the thread that uses the room looks again.
        RingProgress::Read(self.incoming.requests_read.load(Ordering::Relaxed))
    }

    /// Returns the number of times that it has drained our ring of requests.
    pub(crate) fn has_drained(&self) -> RingProgress {
        RingProgress::Drained(self.requests.lock().drained())
    }

    /// Reports whether it has done no more than this.
    pub(crate) fn stands_at(&self, done: RingProgress) -> bool {
        let now = match done {
            RingProgress::Read(_) => self.has_read(),
            RingProgress::Drained(_) => self.has_drained(),
        };
        now == done
    }

    /// Messages that may be dropped do not wait for it any more, until it has done more than this.
    pub(crate) fn give_up(&self, done: RingProgress) {
        let kind = usize::from(matches!(done, RingProgress::Drained(_)));
        self.given_up.lock()[kind] = Some(done);
    }

    /// Reports whether it was given up, and has done nothing since.
    pub(crate) fn was_given_up(&self, done: RingProgress) -> bool {
        self.given_up.lock().contains(&Some(done))
    }

    /// A queue pair that waits for room, if there is some; each has its turn.
    pub(crate) fn take_blocked(&self) -> Option<u32> {
        let free = self.requests.lock().free(&self.incoming.requests_read);
        if !free.unwrap_or_else(|_broken| self.declare_dead()) {
            return None;
        }
        let mut blocked = self.blocked.lock();
        let BlockedQps { numbers, last } = &mut *blocked;
        let next = numbers.range(*last + 1..).next().or_else(|| numbers.first()).copied();
        if let Some(number) = next {
            numbers.remove(&number);
            *last = number;
        }
        if numbers.is_empty() {
            self.has_blocked.store(false, Ordering::Relaxed);
            self.outgoing.wants_room.store(0, Ordering::Relaxed);
        }
        next
    }
}

/// Time in nanoseconds for which a process counts as running after it was seen to: the system call
/// that tells takes half as long as an access to a few bytes. A number is not given to another
/// process, and another program's memory is not there, within a time that is shorter than to start
/// either; an access to memory that is gone fails, and is looked at then.
const SEEN_NS: u64 = 50_000;

/// Reports whether the process behind a descriptor has ended, or has closed one of the connections
/// to it: with `close`, or by running another program.
pub(crate) fn has_gone(pidfd: &OwnedFd, [one, other]: [&OwnedFd; 2]) -> bool {
    let hangs_up = PollFlags::empty();
    let mut fds = [
        PollFd::new(pidfd, PollFlags::IN),
        PollFd::new(one, hangs_up),
        PollFd::new(other, hangs_up),
    ];
    host::fd::poll_at_once(&mut fds).is_ok_and(|n| n > 0)
}

/// Rings a doorbell. It never waits: the owner shares the descriptor's flags, and may have
/// made it blocking, and have filled it.
#[cold]
pub(crate) fn ring(doorbell: &impl AsFd) {
    let mut fds = [PollFd::new(doorbell, PollFlags::OUT)];
    // One that has no room rings already.
    if host::fd::poll_at_once(&mut fds).is_ok_and(|n| n > 0) {
        let _ = rustix::io::write(doorbell, &1_u64.to_ne_bytes());
    }
}

/// Answers a doorbell of our own; returns true if it has rung.
pub(crate) fn answer(doorbell: &OwnedFd) -> bool {
    rustix::io::read(doorbell, &mut [0; 8]).is_ok()
}

#[cfg(test)]
mod tests;
