//! The thread that looks after what others send while the program does not, and after
//! processes that die. And how those who put something into a ring know that somebody
//! has to be woken.
//!
//! A process is *armed* when nobody there looks at the rings by himself: whoever puts
//! something into one then rings its doorbell. While the program polls, it is not, and
//! nothing is rung; the helper looks every few milliseconds whether that is still so. A
//! program that is going to wait for an event arms, too, and the doorbell wakes it
//! directly: it takes what came by itself. The helper leaves it a moment for that, and
//! does it only if nobody has answered the doorbell by then.
//!
//! A thread that waits inside `ibv_get_cq_event` waits for the doorbell besides its
//! channel's events. Whoever made the channel's descriptor `O_NONBLOCK`, to wait for it by
//! other means, finds it readable when the doorbell is rung, and no event then, which is
//! no more than `EAGAIN` promises. A descriptor that blocks is readable for events only.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

use crate::device::Device;

use super::away::Serving;
use super::barrier::{has_failed, heavy};
use super::lobby::Here;
use super::pair::{Pair, answer, ring};
use super::{HAS_PAIRS, Neighbours};

/// Between two looks at whether the program still polls.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 4_000_000 };
/// Looks in a row that find that it does not.
const LOOKS: u32 = 2;
/// What a program that is woken by the doorbell is given to take what came.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Polls without a completion after which a program is believed to go on polling.
const POLLS: u32 = 256;

/// Looks at the rings before a program waits, however much comes.
const ROUNDS: u32 = 64;

const DOORBELL: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
const NUDGE: u64 = u64::MAX - 2;

/// The thread, and what it knows.
#[derive(Debug, Default)]
pub(crate) struct Helper {
    started: Mutex<bool>,
    /// What it waits for; there once it was started.
    epoll: OnceLock<OwnedFd>,
    /// Wakes it, and nobody else as the doorbell does.
    nudge: OnceLock<OwnedFd>,
    /// The program has polled since the last look.
    polled: AtomicBool,
    /// Polls since the process was armed.
    polls: AtomicU32,
    /// The program has armed: it waits for an event, or is going to.
    waits: AtomicBool,
    /// How often the process was armed: each time by a number of its own.
    armings: AtomicU32,
    /// A thread waits for the doorbell inside a call: one of them is enough.
    is_watched: AtomicBool,
    /// The thread takes what has come.
    works: AtomicBool,
    /// The completion channel that the doorbell wakes.
    woken: Mutex<Option<Arc<OwnedFd>>>,
}

impl Helper {
    /// Whether the doorbell makes a descriptor of the program readable.
    fn wakes(&self) -> bool {
        self.woken.lock().is_some()
    }

    fn epoll(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.get().map(AsFd::as_fd)
    }
}

impl Neighbours {
    /// The program polls by itself.
    #[inline]
    pub(crate) fn saw_poll(&self) {
        let helper = &self.helper;
        // Only written when it changes: others read the line.
        if !helper.polled.load(Ordering::Relaxed) {
            helper.polled.store(true, Ordering::Relaxed);
        }
        let Some(here) = self.told() else { return };
        if here.directory.armed.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Who has armed by himself looks around before he sleeps.
        let sleeps = helper.waits.load(Ordering::Relaxed)
            && helper.polls.fetch_add(1, Ordering::Relaxed) < POLLS;
        if !sleeps {
            here.directory.armed.store(0, Ordering::Relaxed);
            // The helper looks from time to time from now on. Other threads that wait need
            // not: who polls takes what comes for all.
            self.poke();
        }
    }

    /// Whether the helper takes what has come: who waits for that gives it the processor.
    #[inline]
    pub(super) fn helper_works(&self) -> bool {
        self.helper.works.load(Ordering::Relaxed)
    }

    /// From now on whoever puts something into a ring wakes this process.
    pub(super) fn arm(&self) {
        let Some(here) = self.told() else { return };
        self.helper.polls.store(0, Ordering::Relaxed);
        let number = self.helper.armings.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        // Either who puts something sees it, or we see what he has put. (Another thread
        // that has just armed looks for us, too.)
        let knew = has_failed();
        if here.directory.armed.swap(number, Ordering::Relaxed) == 0 && !heavy() && !knew {
            // Or neither: then the helper looks from time to time, and has to know that.
            self.poke();
        }
    }

    /// Answers the doorbell for a program that does not. Whether the program was going to,
    /// so that what has come is not left to it any longer.
    pub(super) fn answer(&self, here: &Here) -> bool {
        let waited = self.helper.waits.load(Ordering::Relaxed);
        let hears = || self.helper.is_watched.load(Ordering::Relaxed) || self.helper.wakes();
        if waited && hears() {
            std::thread::sleep(core::time::Duration::from_nanos(MOMENT.tv_nsec as u64));
        }
        // Before it is answered: who has answered it himself and armed again is asleep, and
        // relies on that.
        let armed = here.directory.armed.load(Ordering::Relaxed);
        if !answer(&here.doorbell) {
            return false;
        }
        self.helper.waits.store(false, Ordering::Relaxed);
        let (none, relaxed) = (0, Ordering::Relaxed);
        let _ = here.directory.armed.compare_exchange(armed, none, relaxed, relaxed);
        waited
    }

    /// Lets the helper look at once.
    #[cold]
    pub(super) fn poke(&self) {
        if let Some(nudge) = self.helper.nudge.get() {
            ring(nudge);
        }
    }

    /// Lets the doorbell make the descriptor of a completion channel readable, and of no
    /// other: whoever is woken takes what came for all.
    fn let_wake(&self, here: &Here, set: &Arc<OwnedFd>) {
        let mut woken = self.helper.woken.lock();
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
    fn let_sleep(&self, here: &Here, set: &Arc<OwnedFd>) {
        let mut woken = self.helper.woken.lock();
        if let Some(known) = woken.take_if(|known| Arc::ptr_eq(known, set)) {
            let _ = epoll::delete(&known, &here.doorbell);
        }
    }

    /// A completion channel goes.
    pub(crate) fn waits_no_more(&self, set: &Arc<OwnedFd>) {
        self.helper.woken.lock().take_if(|known| Arc::ptr_eq(known, set));
    }
}

/// The doorbell, for the one thread that waits for it.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    doorbell: &'a OwnedFd,
    is_watched: &'a AtomicBool,
}

impl AsFd for Watch<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.is_watched.store(false, Ordering::Relaxed);
    }
}

/// A program is going to wait for an event, by the descriptor of its channel (`set`), which
/// `blocks` or does not: what comes from others wakes it, and what has come is taken.
#[cold]
pub(crate) fn before_waiting(
    device: &Arc<Device>,
    set: Option<&Arc<OwnedFd>>,
    blocks: impl FnOnce() -> bool,
) {
    if !HAS_PAIRS.load(Ordering::Relaxed) {
        return;
    }
    let Some(neighbours) = &device.neighbours else { return };
    let (Some(here), Some(set)) = (neighbours.told(), set) else { return };
    if blocks() {
        neighbours.let_sleep(here, set);
    } else {
        neighbours.let_wake(here, set);
    }
    // It has rung for what we are going to take.
    answer(&here.doorbell);
    neighbours.helper.waits.store(true, Ordering::Relaxed);
    neighbours.arm();
    for _ in 0..ROUNDS {
        if !device.drain_or_have_drained() {
            return;
        }
    }
    // Others never stop: it need not wait.
    ring(&here.doorbell);
}

/// The doorbell, for a thread that has called [`before_waiting`] and waits now, unless
/// another one has it.
#[cold]
pub(crate) fn watch_doorbell(device: &Device) -> Option<Watch<'_>> {
    if !HAS_PAIRS.load(Ordering::Relaxed) {
        return None;
    }
    let neighbours = device.neighbours.as_ref()?;
    let (here, is_watched) = (neighbours.told()?, &neighbours.helper.is_watched);
    let is_ours = !is_watched.swap(true, Ordering::Relaxed);
    is_ours.then(|| Watch { doorbell: &here.doorbell, is_watched })
}

impl Device {
    /// Starts the helper, unless it was. Without it nobody notices what others do: whoever
    /// needs them fails.
    pub(crate) fn start_helper(self: &Arc<Device>) -> Result<(), Errno> {
        let Some(neighbours) = &self.neighbours else { return Ok(()) };
        let Some(here) = neighbours.told() else { return Ok(()) };
        let mut started = neighbours.helper.started.lock();
        if *started {
            return Ok(());
        }
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let nudge = match neighbours.helper.nudge.get() {
            Some(nudge) => nudge,
            None => {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                let new = eventfd(0, flags)?;
                neighbours.helper.nudge.get_or_init(|| new)
            }
        };
        let watched = [(&here.doorbell, DOORBELL), (&here.listener, LISTENER), (nudge, NUDGE)];
        for (fd, event) in watched {
            let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&set, fd, epoll::EventData::new_u64(event), edge)?;
        }
        let device = Arc::downgrade(self);
        let builder = std::thread::Builder::new().name("soft-rnic-helper".into());
        let spawned = builder.spawn(move || run(&device));
        spawned.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        *started = true;
        // The thread waits for it.
        let _ = neighbours.helper.epoll.set(set);
        Ok(())
    }

    /// Lets the helper watch a process.
    pub(super) fn watch(&self, pair: &Pair) {
        if let Some(set) = self.neighbours.as_ref().and_then(|n| n.helper.epoll()) {
            watch_with(set, pair);
        }
    }

    /// Does what has to be done for the helper's events.
    fn serve(self: &Arc<Device>, neighbours: &Neighbours, event: u64) {
        match event {
            DOORBELL | NUDGE => {}
            LISTENER => self.take_in(),
            slot => {
                if let Some(pair) = neighbours.pair(slot as u32).filter(|p| p.has_left()) {
                    self.bury(&pair);
                }
                // Or one of those has gone.
                drop(neighbours.departed());
            }
        }
    }

    /// Buries those that do not keep the rules, or have died.
    fn bury_the_dead(self: &Arc<Device>, neighbours: &Neighbours) {
        let dead = neighbours.drain.lock().dead();
        for pair in dead {
            self.bury(&pair);
        }
    }
}

/// Watches whether a process ends, closes its connections to us, or says that it takes us
/// for dead; each once: it is buried then, and would be ready for ever.
pub(super) fn watch_with(set: impl AsFd, pair: &Pair) {
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

fn run(device: &Weak<Device>) {
    let _serving = Serving::begin();
    let mut events = Vec::with_capacity(64);
    // It has not seen the program poll yet.
    let mut missed = LOOKS;
    while let Some(device) = device.upgrade() {
        let Some(neighbours) = &device.neighbours else { return };
        // It waits until `start_helper` is done.
        let set = neighbours.helper.epoll.wait();
        let timeout = wait_for(&device, neighbours, &mut missed);
        events.clear();
        // Interrupted, or out of memory: look around and wait again.
        let _ = epoll::wait(set, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
        let was_rung = events.iter().any(|event| event.data.u64() == DOORBELL);
        if was_rung && neighbours.told().is_some_and(|here| neighbours.answer(here)) {
            take(&device, neighbours);
        }
        for event in &events {
            device.serve(neighbours, event.data.u64());
        }
        device.bury_the_dead(neighbours);
    }
}

/// Takes what is there, unless the program does that; for how long to wait then.
fn wait_for(device: &Arc<Device>, neighbours: &Neighbours, missed: &mut u32) -> Option<Timespec> {
    let has_silent = neighbours.lobby.lock().has_silent();
    if has_silent {
        device.take_in();
    }
    if neighbours.helper.polled.swap(false, Ordering::Relaxed) {
        *missed = 0;
        return Some(LOOK);
    }
    // It may only have had no processor for a moment.
    *missed += 1;
    if *missed < LOOKS {
        return Some(LOOK);
    }
    neighbours.arm();
    if take(device, neighbours) {
        return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
    }
    (has_silent || has_failed()).then_some(LOOK)
}

/// Takes what has come, instead of the program; whether there was anything.
fn take(device: &Arc<Device>, neighbours: &Neighbours) -> bool {
    neighbours.helper.works.store(true, Ordering::Relaxed);
    let any = device.drain_or_have_drained();
    neighbours.helper.works.store(false, Ordering::Relaxed);
    any
}

#[cfg(test)]
impl Helper {
    pub(super) fn says_that_it_waits(&self) {
        self.waits.store(true, Ordering::Relaxed);
    }
}
