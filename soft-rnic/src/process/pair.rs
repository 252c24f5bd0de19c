//! One other process, and what lies between it and this one.
//!
//! Two connections stay open for as long as both processes have to do with each other:
//! that over which this one has introduced itself (`socket`), and the other's (`accepted`).
//! They say what the process's number does not: that it runs another program now, or has
//! let go of us; and, as long as it lives, that it takes us for dead.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use crate::lock::{Lock, Padded};

use super::barrier::{is_asymmetric, light};
use super::directory::{Directory, Told};
use super::mapped::Mapped;
use super::memory::{Proof, note_refusal};
use super::region::Window;
use super::ring::{Requests, Rings};

/// Regions of a process that are kept mapped, and their bytes, before those are looked for that
/// are registered no more: the system keeps their memory as long as they are mapped.
const WINDOWS: usize = 64;
const WINDOW_BYTES: u64 = 64 << 20;

/// Another process that this one exchanges requests with.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) slot: u32,
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) theirs: Mapped<Directory>,
    pub(crate) incoming: Mapped<Rings>,
    pub(crate) outgoing: Mapped<Rings>,
    pub(crate) doorbell: OwnedFd,
    /// The connection over which we have told it of us, and that over which it has.
    pub(crate) socket: OwnedFd,
    pub(crate) accepted: OwnedFd,
    /// Whether its memory can be reached by cross-memory attach, as far as it was tried.
    attaches: OnceLock<bool>,
    proof: Proof,
    /// It executes our barriers, where it needs them.
    pub(crate) spares_barriers: bool,
    /// It has ended, or does not keep the rules.
    dead: AtomicBool,
    /// The process that has met it.
    ours: u32,
    pub(crate) requests: Padded<Lock<Requests>>,
    windows: Mutex<Windows>,
    /// Queue pairs whose requests wait for room.
    blocked: Mutex<Blocked>,
    has_blocked: AtomicBool,
    /// How far it had read in our ring of requests when it was given up, by those who drop
    /// what finds no room there.
    given_up: Mutex<Option<u32>>,
}

/// Queue pairs that wait for room, and which one had its turn last.
#[derive(Debug, Default)]
struct Blocked {
    numbers: BTreeSet<u32>,
    last: u32,
}

#[derive(Debug)]
struct Windows {
    by_key: HashMap<u32, Arc<Window>>,
    /// Of all of them.
    bytes: u64,
    /// How many, or how many bytes, there are when they are looked through.
    sweep_at: (usize, u64),
}

impl Windows {
    /// Gives those back that are not valid, if it is time.
    fn sweep(&mut self, is_valid: impl Fn(u32, &Window) -> bool) {
        let Windows { by_key, bytes, sweep_at } = self;
        if by_key.len() >= sweep_at.0 || *bytes >= sweep_at.1 {
            by_key.retain(|key, window| is_valid(*key, window));
            *bytes = by_key.values().map(|window| window.len).sum();
            *sweep_at = (WINDOWS.max(2 * by_key.len()), WINDOW_BYTES.max(2 * *bytes));
        }
    }

    fn insert(&mut self, key: u32, window: Arc<Window>) {
        self.bytes += window.len;
        if let Some(old) = self.by_key.insert(key, window) {
            self.bytes -= old.len;
        }
    }
}

/// What a pair is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) slot: u32,
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) theirs: Mapped<Directory>,
    pub(crate) incoming: Mapped<Rings>,
    pub(crate) outgoing: Mapped<Rings>,
    pub(crate) doorbell: OwnedFd,
    pub(crate) socket: OwnedFd,
    pub(crate) accepted: OwnedFd,
    pub(crate) proof: Proof,
}

impl Pair {
    pub(crate) fn new(parts: Parts) -> Pair {
        let Parts { slot, pid, pidfd, theirs, incoming, outgoing, .. } = parts;
        let Parts { doorbell, socket, accepted, proof, .. } = parts;
        let spares_barriers = is_asymmetric() && theirs.has_barriers.load(Ordering::Relaxed) == 1;
        let sweep_at = (WINDOWS, WINDOW_BYTES);
        let windows = Windows { by_key: HashMap::new(), bytes: 0, sweep_at };
        Pair {
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
            proof,
            spares_barriers,
            dead: AtomicBool::new(false),
            ours: std::process::id(),
            requests: Padded::default(),
            windows: Mutex::new(windows),
            blocked: Mutex::default(),
            has_blocked: AtomicBool::new(false),
            given_up: Mutex::new(None),
        }
    }

    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        // Relaxed: who misses it finds out later.
        self.dead.load(Ordering::Relaxed)
    }

    /// It has ended, or does not keep the rules. It is told so, if it lives, and so is the
    /// helper, which buries it. Whether this call was the one that did it.
    pub(crate) fn declare_dead(&self) -> bool {
        let is_news = !self.dead.swap(true, Ordering::AcqRel);
        // A child of fork that thinks so does not speak for its parent.
        if is_news && std::process::id() == self.ours {
            // They fail if it has gone: then nobody has to be told.
            let _ = shutdown(&self.socket, Shutdown::Write);
            let _ = shutdown(&self.accepted, Shutdown::Read);
        }
        is_news
    }

    /// Whether the process has gone: it has ended, runs another program, or has let go of
    /// us. It does not access our memory any more, nor write into its rings.
    pub(crate) fn has_gone(&self) -> bool {
        has_gone(&self.pidfd, [&self.socket, &self.accepted])
    }

    /// Whether its memory can be reached by cross-memory attach. That is found out by whoever
    /// wants to, and not when it is met: it reads in that memory, which takes as long as the
    /// process likes (a page may be its own to fill), and others are waiting to be met.
    pub(crate) fn attaches(&self) -> bool {
        *self.attaches.get_or_init(|| match self.proof.check(self.pid) {
            Ok(()) => true,
            // It has ended since, or runs another program.
            Err(Errno::FAULT | Errno::SRCH) => {
                self.declare_dead();
                false
            }
            Err(error) => {
                note_refusal(self.pid, error);
                false
            }
        })
    }

    /// Whether its memory is still that which it has told of, as far as it can be reached:
    /// what runs another program has lost it before anything else.
    pub(crate) fn has_its_memory(&self) -> bool {
        self.proof.holds(self.pid)
    }

    /// Whether it exchanges nothing with us any more, even if it lives.
    pub(crate) fn has_left(&self) -> bool {
        let mut fds = [PollFd::new(&self.accepted, PollFlags::RDHUP)];
        self.is_dead() || poll(&mut fds, Some(&NOW)).is_ok_and(|n| n > 0) || self.has_gone()
    }

    /// Wakes the process, if nobody there is looking.
    #[inline]
    pub(crate) fn wake(&self) {
        // Either we see that it is going to sleep, or it sees what we have put.
        light(self.spares_barriers);
        if self.theirs.armed.load(Ordering::Relaxed) != 0 {
            ring(&self.doorbell);
        }
    }

    /// A region of the process, mapped here; `None` if it cannot be.
    pub(crate) fn window(&self, key: u32, told: &Told) -> Option<Arc<Window>> {
        let place = told.file?;
        let mut windows = self.windows.lock();
        if let Some(window) = windows.by_key.get(&key)
            && window.version == told.version
            && window.len == told.length
        {
            return Some(Arc::clone(window));
        }
        windows.sweep(|key, window| self.theirs.version(key) == Some(window.version));
        let window = Arc::new(Window::open(self.pid, told, &place, || !self.has_gone()).ok()?);
        windows.insert(key, Arc::clone(&window));
        Some(window)
    }

    /// Nothing of it is mapped any more, but for what is in use.
    pub(crate) fn forget_windows(&self) {
        self.windows.lock().by_key.clear();
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

    /// How far it says that it has read in our ring of requests.
    pub(super) fn has_read(&self) -> u32 {
        // Relaxed: who makes use of the room looks again.
        self.incoming.requests_read.load(Ordering::Relaxed)
    }

    /// Nobody waits for it any more that drops what finds no room, until it reads on from
    /// here.
    pub(super) fn give_up(&self, read: u32) {
        *self.given_up.lock() = Some(read);
    }

    /// Whether it was given up, and has read nothing since.
    pub(super) fn was_given_up(&self, read: u32) -> bool {
        *self.given_up.lock() == Some(read)
    }

    /// A queue pair that waits for room, if there is some; each has its turn.
    pub(crate) fn take_blocked(&self) -> Option<u32> {
        let free = self.requests.lock().free(&self.incoming.requests_read);
        if !free.unwrap_or_else(|_broken| self.declare_dead()) {
            return None;
        }
        let mut blocked = self.blocked.lock();
        let Blocked { numbers, last } = &mut *blocked;
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

/// For a look without waiting.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Whether the process behind a descriptor has ended, or has closed one of the connections
/// to it: by itself, or by running another program.
pub(crate) fn has_gone(pidfd: &OwnedFd, [one, other]: [&OwnedFd; 2]) -> bool {
    let hangs_up = PollFlags::empty();
    let mut fds = [
        PollFd::new(pidfd, PollFlags::IN),
        PollFd::new(one, hangs_up),
        PollFd::new(other, hangs_up),
    ];
    poll(&mut fds, Some(&NOW)).is_ok_and(|n| n > 0)
}

/// Rings a doorbell. It never waits: its owner, who shares its flags, may have made it
/// blocking, and have filled it.
#[cold]
pub(crate) fn ring(doorbell: &impl AsFd) {
    let mut fds = [PollFd::new(doorbell, PollFlags::OUT)];
    // One that has no room rings already.
    if poll(&mut fds, Some(&NOW)).is_ok_and(|n| n > 0) {
        let _ = rustix::io::write(doorbell, &1_u64.to_ne_bytes());
    }
}

/// Answers a doorbell of our own; whether it has rung.
pub(crate) fn answer(doorbell: &OwnedFd) -> bool {
    rustix::io::read(doorbell, &mut [0; 8]).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn a_full_doorbell_that_blocks_holds_nobody_up() {
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&doorbell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        ring(&doorbell);
    }
}
