//! The thread that takes what others send while the program does not, and notices
//! processes that die. And how a process that puts something into a ring knows that it
//! has to wake the receiver.
//!
//! A process is *armed* when no thread there looks at the rings: a process that puts
//! something into one of them then rings its doorbell. While the program polls, it is not
//! armed, and nothing is rung; the progress thread looks every few milliseconds whether that is
//! still so. A program that is going to wait for an event arms, too, and the doorbell
//! wakes it directly: it takes what arrived. The progress thread leaves it a moment for
//! that, and does it only if no thread has answered the doorbell by then.
//!
//! A thread that waits inside `ibv_get_cq_event` waits for the doorbell besides its
//! channel's events. An application that made the channel's descriptor `O_NONBLOCK`, to
//! wait for it by other means, finds it readable when the doorbell is rung, and no event
//! then, which is no more than `EAGAIN` promises. A descriptor that blocks is readable for
//! events only.

use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::objects::state::{Device, PeerProcesses};
use crate::peers::process::barrier::{has_failed, heavy};
use crate::peers::process::pair::{ProcessPair, answer, ring};
use crate::peers::process::progress_thread::ProgressThread;
use crate::peers::process::rendezvous::LocalProcess;
use crate::peers::process::serving::Serving;

use super::peer_processes::has_pairs;

/// Between two looks at whether the program still polls.
const LOOK: Duration = Duration::from_millis(4);
/// Looks in a row that find that it does not.
const LOOKS: u32 = 2;
/// Time that a program that is woken by the doorbell has to take what arrived.
const MOMENT: Duration = Duration::from_millis(1);
/// Time that the progress thread looks on when nothing arrives after what it has taken: about what
/// the next wake-up would take.
const LINGER: Duration = Duration::from_micros(50);
/// Longest time that it takes messages before it looks after everything else.
const LONGEST: Duration = Duration::from_millis(4);
/// Polls without a completion after which a program is believed to keep polling.
const POLLS: u32 = 256;

/// Looks at the rings before a program waits, however much arrives.
const ROUNDS: u32 = 64;

const DOORBELL: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
const WAKEUP: u64 = u64::MAX - 2;

impl ProgressThread {
    /// Reports whether the doorbell makes a descriptor of the program readable.
    fn wakes(&self) -> bool {
        self.woken.lock().is_some()
    }

    fn epoll(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.get().map(|set| set.as_fd())
    }
}

impl PeerProcesses {
    /// The device goes: its progress thread and its workers end.
    pub(crate) fn end_threads(&self) {
        self.wake_progress_thread();
        self.workers.end();
    }

    /// Records that the program polls.
    #[inline]
    pub(crate) fn saw_poll(&self) {
        let thread = &self.progress_thread;
        // Only written when it changes: others read the line.
        if !thread.polled.load(Ordering::Relaxed) {
            thread.polled.store(true, Ordering::Relaxed);
        }
        let Some(here) = self.claimed() else { return };
        if here.directory.armed.load(Ordering::Relaxed) == 0 {
            return;
        }
        // A thread that has armed polls before it sleeps: up to `POLLS` polls do not disarm.
        let sleeps = thread.waits.load(Ordering::Relaxed)
            && thread.polls.fetch_add(1, Ordering::Relaxed) < POLLS;
        if !sleeps {
            host::point();
            here.directory.armed.store(0, Ordering::Relaxed);
            // The progress thread looks from time to time from now on. Other threads that wait need
            // not: a thread that polls takes the messages for all.
            self.wake_progress_thread();
        }
    }

    /// Reports whether a thread waits for an event.
    #[inline]
    pub(super) fn is_waited(&self) -> bool {
        // Relaxed: a thread that begins to wait now looks around itself before it sleeps.
        self.progress_thread.waits.load(Ordering::Relaxed)
    }

    /// The progress thread, or a worker, takes received messages, or has done so. (Of two, the one
    /// that has done it takes the other's hint away.)
    pub(super) fn says_that_it_works(&self, works: bool) {
        self.progress_thread.works.store(works, Ordering::Relaxed);
    }

    /// Reports whether a thread of the device takes received messages: one that waits for that
    /// yields to it.
    #[inline]
    pub(super) fn progress_thread_works(&self) -> bool {
        self.progress_thread.works.load(Ordering::Relaxed)
    }

    /// From now on a process that puts something into a ring wakes this one.
    /// Returns the number of this arming.
    pub(super) fn arm(&self) -> u32 {
        let number =
            self.progress_thread.armings.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        let Some(here) = self.claimed() else { return number };
        self.progress_thread.polls.store(0, Ordering::Relaxed);
        // Either the sender of a message sees that we are armed, or we see the message.
        // (Another thread that has just armed looks for us, too.)
        let knew = has_failed();
        host::point();
        // Release and Acquire: a thread that arms sees that the one before it waits.
        if here.directory.armed.swap(number, Ordering::AcqRel) == 0 && !heavy() && !knew {
            // Or neither: then the progress thread looks from time to time, and has to know that.
            self.wake_progress_thread();
        }
        number
    }

    /// Takes back an arming of the progress thread, which keeps looking; not that of a thread
    /// that waits, which relies on it.
    fn disarm(&self, number: u32) {
        if let (Some(here), false) = (self.claimed(), self.is_waited()) {
            let (none, relaxed) = (0, Ordering::Relaxed);
            host::point();
            let _ = here.directory.armed.compare_exchange(number, none, relaxed, relaxed);
        }
    }

    /// Answers the doorbell for a program that does not. Returns true if the program was going to,
    /// so that received messages are not left to it any longer.
    pub(super) fn answer(&self, here: &LocalProcess) -> bool {
        let waited = self.progress_thread.waits.load(Ordering::Relaxed);
        let hears = || {
            self.progress_thread.is_watched.load(Ordering::Relaxed) || self.progress_thread.wakes()
        };
        if waited && hears() {
            host::time::sleep(MOMENT);
        }
        // Read before the doorbell is answered: a thread that has answered it itself and armed
        // again is asleep, and relies on its arming.
        let armed = here.directory.armed.load(Ordering::Relaxed);
        host::point();
        if !answer(&here.doorbell) {
            return false;
        }
        host::point();
        self.progress_thread.waits.store(false, Ordering::Relaxed);
        let (none, relaxed) = (0, Ordering::Relaxed);
        let _ = here.directory.armed.compare_exchange(armed, none, relaxed, relaxed);
        waited
    }

    /// Lets the progress thread look at once.
    #[cold]
    pub(super) fn wake_progress_thread(&self) {
        if let Some(wakeup) = self.progress_thread.wakeup.get() {
            ring(wakeup);
        }
    }

    /// Lets the doorbell make the descriptor of this completion channel readable, and of no
    /// other: the thread that is woken takes the messages for all.
    fn let_wake(&self, here: &LocalProcess, set: &Arc<OwnedFd>) {
        let mut woken = self.progress_thread.woken.lock();
        if woken.as_ref().is_some_and(|known| Arc::ptr_eq(known, set)) {
            return;
        }
        if let Some(known) = woken.take() {
            let _ = epoll::delete(&known, &here.doorbell);
        }
        let data = epoll::EventData::new_u64(0);
        if epoll::add(set, &here.doorbell, data, epoll::EventFlags::IN).is_ok() {
            *woken = Some(Arc::clone(set));
        }
    }

    /// The doorbell does not make this descriptor readable any more.
    fn let_sleep(&self, here: &LocalProcess, set: &Arc<OwnedFd>) {
        let mut woken = self.progress_thread.woken.lock();
        if let Some(known) = woken.take_if(|known| Arc::ptr_eq(known, set)) {
            let _ = epoll::delete(&known, &here.doorbell);
        }
    }

    /// A completion channel goes.
    pub(crate) fn waits_no_more(&self, set: &Arc<OwnedFd>) {
        self.progress_thread.woken.lock().take_if(|known| Arc::ptr_eq(known, set));
    }
}

/// The doorbell, for the one thread that waits for it.
#[derive(Debug)]
pub(crate) struct DoorbellWatch<'a> {
    doorbell: &'a OwnedFd,
    is_watched: &'a AtomicBool,
}

impl AsFd for DoorbellWatch<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}

impl Drop for DoorbellWatch<'_> {
    fn drop(&mut self) {
        self.is_watched.store(false, Ordering::Relaxed);
    }
}

/// A program is going to wait for an event, by the descriptor of its channel (`set`), which
/// `blocks` or does not: a message of another process wakes it, and those that have arrived are
/// taken.
#[cold]
pub(crate) fn before_waiting(
    device: &Arc<Device>,
    set: Option<&Arc<OwnedFd>>,
    blocks: impl FnOnce() -> bool,
) {
    if !has_pairs(device) {
        return;
    }
    let Some(peers) = &device.peers else { return };
    let (Some(here), Some(set)) = (peers.claimed(), set) else { return };
    if blocks() {
        peers.let_sleep(here, set);
    } else {
        peers.let_wake(here, set);
    }
    // It has rung for what we are going to take.
    answer(&here.doorbell);
    host::point();
    peers.progress_thread.waits.store(true, Ordering::Relaxed);
    peers.arm();
    for _ in 0..ROUNDS {
        if !device.progress_or_ask_again() {
            return;
        }
    }
    // Others never stop: it need not wait.
    ring(&here.doorbell);
}

/// The doorbell, for a thread that has called [`before_waiting`] and waits now, unless
/// another one has it.
#[cold]
pub(crate) fn watch_doorbell(device: &Device) -> Option<DoorbellWatch<'_>> {
    if !has_pairs(device) {
        return None;
    }
    let peers = device.peers.as_ref()?;
    let (here, is_watched) = (peers.claimed()?, &peers.progress_thread.is_watched);
    let is_ours = !is_watched.swap(true, Ordering::Relaxed);
    is_ours.then(|| DoorbellWatch { doorbell: &here.doorbell, is_watched })
}

impl Device {
    /// Starts the progress thread, unless it was. Without it this process does not notice what
    /// others do: a caller that needs them fails.
    pub(crate) fn start_progress_thread(self: &Arc<Device>) -> Result<(), Errno> {
        let Some(peers) = &self.peers else { return Ok(()) };
        let Some(here) = peers.claimed() else { return Ok(()) };
        let mut started = peers.progress_thread.started.lock();
        if *started {
            return Ok(());
        }
        let set = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let wakeup = match peers.progress_thread.wakeup.get() {
            Some(wakeup) => wakeup,
            None => {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                let new = Arc::new(eventfd(0, flags)?);
                peers.progress_thread.wakeup.get_or_init(|| new)
            }
        };
        let watched = [(&here.doorbell, DOORBELL), (&here.listener, LISTENER), (wakeup, WAKEUP)];
        for (fd, event) in watched {
            let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&set, fd, epoll::EventData::new_u64(event), edge)?;
        }
        let (device, waits_for, wakeup) =
            (Arc::downgrade(self), Arc::clone(&set), Arc::clone(wakeup));
        let run = move || run(&device, &waits_for, &wakeup);
        let spawned = host::thread::spawn("soft-rnic-progress", run);
        spawned.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        *started = true;
        let _ = peers.progress_thread.epoll.set(set);
        Ok(())
    }

    /// Lets the progress thread watch a process.
    pub(super) fn watch(&self, pair: &ProcessPair) {
        if let Some(set) = self.peers.as_ref().and_then(|p| p.progress_thread.epoll()) {
            watch_with(set, pair);
        }
    }

    /// Does what has to be done for the progress thread's events.
    fn serve(self: &Arc<Device>, peers: &PeerProcesses, event: u64) {
        match event {
            DOORBELL | WAKEUP => {}
            LISTENER => self.take_in(),
            slot => {
                if let Some(pair) = peers.pair(slot as u32).filter(|p| p.has_left()) {
                    self.bury(&pair);
                }
                // Or one of those has gone.
                drop(peers.departed());
            }
        }
    }

    /// Buries those that do not keep the rules, or have died.
    fn bury_the_dead(self: &Arc<Device>, peers: &PeerProcesses) {
        let dead = peers.progress.lock().dead();
        for pair in dead {
            self.bury(&pair);
        }
    }
}

/// Watches whether a process ends, closes its connections to us, or says that it takes us
/// for dead; each once: it is buried then, and would be ready for ever.
pub(super) fn watch_with(set: impl AsFd, pair: &ProcessPair) {
    let slot = epoll::EventData::new_u64(pair.slot.into());
    let watched = [
        (&pair.pidfd, epoll::EventFlags::IN),
        (&pair.socket, epoll::EventFlags::empty()),
        (&pair.accepted, epoll::EventFlags::RDHUP),
    ];
    for (fd, flags) in watched {
        // One that cannot be watched is found dead when it is talked to.
        let _ = epoll::add(&set, fd, slot, flags | epoll::EventFlags::ONESHOT);
    }
}

/// The thread. It ends with the device, which it does not keep while it waits: the end of that
/// rings `_wakeup`.
fn run(device: &Weak<Device>, set: &OwnedFd, _wakeup: &OwnedFd) {
    let _serving = Serving::begin();
    let begin = |peers: &PeerProcesses| peers.claimed().map(|here| here.liveness.begin());
    let _ = device.upgrade().and_then(|device| device.peers.as_ref().and_then(begin));
    let mut events = Vec::with_capacity(64);
    // It has not seen the program poll yet.
    let mut missed = LOOKS;
    let mut timeout = Some(Duration::ZERO);
    loop {
        events.clear();
        // Interrupted, or out of memory: look around and wait again.
        let _ = host::fd::epoll_wait(set, &mut events, timeout);
        let Some(device) = device.upgrade() else { return };
        let Some(peers) = &device.peers else { return };
        let was_rung = events.iter().any(|event| event.data.u64() == DOORBELL);
        if was_rung && peers.claimed().is_some_and(|here| peers.answer(here)) {
            take(&device, peers);
        }
        for event in &events {
            device.serve(peers, event.data.u64());
        }
        device.bury_the_dead(peers);
        timeout = wait_for(&device, peers, &mut missed);
    }
}

/// Takes received messages, unless the program does that; returns how long to wait then.
fn wait_for(device: &Arc<Device>, peers: &PeerProcesses, missed: &mut u32) -> Option<Duration> {
    let has_pending = peers.rendezvous.lock().has_pending();
    if has_pending {
        device.take_in();
    }
    if peers.progress_thread.polled.swap(false, Ordering::Relaxed) {
        *missed = 0;
        return Some(LOOK);
    }
    // It may only have had no processor for a moment.
    *missed += 1;
    if *missed < LOOKS {
        return Some(LOOK);
    }
    let arming = peers.arm();
    if take(device, peers) {
        peers.disarm(arming);
        take_more(device, peers);
        return Some(Duration::ZERO);
    }
    (has_pending || has_failed()).then_some(LOOK)
}

/// Takes messages that arrive after those that were taken: a peer that waits for each answer need
/// not wake this thread for each request.
fn take_more(device: &Arc<Device>, peers: &PeerProcesses) {
    let began = host::time::now();
    let mut quiet_since = began;
    while host::time::since(quiet_since) < LINGER
        && !peers.progress_thread.polled.load(Ordering::Relaxed)
    {
        if take(device, peers) {
            quiet_since = host::time::now();
            // A peer that never stops keeps it from nothing else: others may have died.
            if quiet_since.duration_since(began) >= LONGEST {
                return;
            }
        } else {
            // On a shared processor, what arrives is another thread's work.
            host::thread::yield_now();
        }
    }
}

/// Takes received messages, instead of the program; returns true if there were any.
pub(super) fn take(device: &Arc<Device>, peers: &PeerProcesses) -> bool {
    peers.says_that_it_works(true);
    let any = device.progress_or_ask_again();
    peers.says_that_it_works(false);
    any
}

#[cfg(test)]
impl ProgressThread {
    pub(super) fn says_that_it_waits(&self) {
        self.waits.store(true, Ordering::Relaxed);
    }
}
