//! Other processes of this machine and user.
//!
//! Each process tells the others of itself in memory files that it alone writes
//! (`mapped`): its queue pairs and regions (`directory`), and for each process that it
//! knows, a ring of requests and one of replies (`ring`). So a word has one writer, no
//! lock is shared, and a process that dies leaves nothing held or half done. They find
//! each other by the numbers of their queue pairs (`lobby`).
//!
//! - **One-sided operations** are carried out by the requester (`one_sided`): it looks up
//!   whether they are permitted, and copies to or from the target's memory, mapped
//!   (`region`) or attached to (`memory`). The target does nothing; it may be stopped.
//! - **What takes a receive request**, and what the requester finds not to be permitted,
//!   goes through the ring, and is executed by the target (`incoming`) as if it came
//!   from a queue pair of its own: whoever polls there does it, or else its one helper
//!   thread (`helper`). A reply comes back. What failed because nobody was ready is
//!   repeated from there on, in order.
//!
//! Everything that is read from another process is checked before it is used; one that
//! does not keep the rules is treated as if it had died.
//!
//! # Measured
//!
//! `cargo bench --bench ratios -- processes` sets two processes beside UCX's shared memory and a
//! pipe; docs/ratios.md has its figures.
//!
//! `SOFT_RNIC_APART=1 cargo run --release -p soft-rnic --example raw_loop` runs both sides
//! in one thread: 133 ns for a message of 16 bytes in lists of 8 with a fence for each
//! list, 95 ns where the one who goes to sleep pays for it (`barrier`), and ring slots are
//! fetched ahead (all before what follows). A helper that works as soon as the program has not polled for 4 ms took
//! half of the rate away where processors were short; it waits for a second look now, and
//! whoever polls while it works gives it the processor.
//!
//! `--example many` counts the instructions of a message of 16 bytes at both ends together,
//! by callgrind, the example's own among them (with an eventfd in the place of the descriptor
//! of a process, which the valgrind at hand did not know: a build for the count alone, so the
//! command by itself does not repeat it there). What was posted went into the send queue, and
//! from there by the way of all requests into the ring; at the other end it went the way of
//! all requests, too. Runs of messages of up to 32 bytes have a way of their own at both ends
//! now (`remote::run`, `incoming::short`), and a poll that finds nothing looks at two words:
//!
//! | | all the same way | now |
//! |---|---|---|
//! | lists of 8, 100 queue pairs that send in turn | 1,530 | 772 |
//! | lists of 8, 1,000 | 1,650 | 1,225 |
//! | one at a time, 100 | 2,180 | 1,507 |
//! | one at a time, 1,000 | 2,140 | 1,460 |
//!
//! In time, half a round trip of a SEND went from 0.24 to 0.20 µs. What is left of the fall
//! with many queue pairs is caches: with 1,000 there are 15 misses of a cache of 2 MiB a
//! message that is sent alone, and 10 in lists of 8; with 100, none. A send queue begins with
//! its first slots again whenever it has emptied: with 256 queue pairs, lists of 8 and windows
//! of 64, that leaves 4.9 misses of a cache of 1 MiB of 6.5.
//!
//! Tried, and of no use: locks without an atomic instruction, and no fence after each poll
//! (half a round trip stayed what it was, with both taken away for the trial).
//!
//! Requests are read and written where they lie. Moved about as a whole, right after their
//! fields had been stored, they waited for all stores before them, those to lines among them
//! that the other process had: a quarter of the sender's time.
//!
//! A thousand connections were set up within 2.5 s of the processor's time at one end and
//! 2.7 s at the other while each registration read the list of all mappings, and 0.4 s and
//! 0.7 s since the kernel is asked for one (`maps`).

mod abroad;
mod away;
mod barrier;
mod directory;
mod errand;
mod forked;
mod full;
mod gather;
mod helper;
mod incoming;
mod lobby;
mod mapped;
mod maps;
mod memory;
mod one_sided;
mod out;
mod pair;
mod patience;
mod region;
mod remote;
mod ring;
mod unmet;

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard, RwLock};
use rustix::io::Errno;
use verbs_sys::*;

use crate::after::After;
use crate::device::Device;
use crate::errno;
use crate::lock::{Lock, Padded};
use crate::qp::{Qp, State, Transport};
use crate::responder::Responder;
use crate::sq::{Sq, Wait};

pub(crate) use away::{Away, Serving};
pub(crate) use directory::{INDEX_BITS, QpEntry, Told, slot_of};
pub(crate) use full::Full;
pub(crate) use helper::{before_waiting, watch_doorbell};
pub use memory::refused_memory;
pub(crate) use memory::{Way, attach};
pub(crate) use remote::{Remote, access_run, send_run};
pub use unmet::unmet_peer;

use directory::Directory;
use incoming::Drain;
use lobby::{Here, Lobby};
use pair::Pair;
use patience::Patience;
use region::Files;

/// Whether this process has met another one. Polls look at it, and at nothing else
/// until then.
static HAS_PAIRS: AtomicBool = AtomicBool::new(false);

/// How long memory is not given back for somebody who is inside and does not go on.
const INSIDE: Duration =
    if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(5) };

/// Pairs of one process that are kept after it was declared dead, as it may be inside our memory.
/// Who meets us again and again and never goes is not waited for by all of them: it keeps its
/// last ones, and what they have mapped, busy, and no more.
const DEPARTED: usize = 4;

/// What `soft0` knows of other processes.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    here: OnceLock<Result<Here, Missing>>,
    lobby: Mutex<Lobby>,
    pairs: RwLock<BTreeMap<u32, Arc<Pair>>>,
    /// Those that were declared dead and live: they may be inside our memory.
    departed: Mutex<Vec<Arc<Pair>>>,
    drain: Padded<Lock<Drain>>,
    /// Somebody wants that it is looked once more.
    look_again: AtomicBool,
    files: Files,
    patience: Mutex<Patience>,
    helper: helper::Helper,
}

#[cfg(test)]
mod tests;

/// What this system does not have.
#[derive(Debug, Clone, Copy)]
struct Missing {
    what: &'static str,
    errno: Errno,
}

/// Why `soft0` reaches queue pairs of this process only, if it does: the system lacks
/// what it takes.
///
/// # Errors
/// A sentence that says what is missing.
///
/// ```
/// if let Err(reason) = soft_rnic::crosses_processes() {
///     eprintln!("soft0 stays in its process: {reason}");
/// }
/// ```
pub fn crosses_processes() -> Result<(), String> {
    let device = crate::device::default_device();
    match device.neighbours.as_ref().map(Neighbours::here) {
        Some(Ok(_)) => Ok(()),
        Some(Err(Missing { what, errno })) => {
            Err(format!("this system does not give it {what} ({errno})"))
        }
        None => Err("it is not soft0".to_owned()),
    }
}

/// Whether requests of a process to itself take the way to another one, too: for tests.
fn is_apart() -> bool {
    static APART: OnceLock<bool> = OnceLock::new();
    *APART.get_or_init(|| std::env::var_os("SOFT_RNIC_APART").is_some_and(|v| v == "1"))
}

impl Neighbours {
    fn here(&self) -> Result<&Here, Missing> {
        let here = self.here.get_or_init(|| {
            let random = RandomState::new();
            let (anywhere, proof) = (random.hash_one(0), random.hash_one(1));
            Here::claim(anywhere, proof).map_err(|(what, errno)| Missing { what, errno })
        });
        here.as_ref().map_err(|missing| *missing)
    }

    /// What this process tells, once it has told anything.
    fn told(&self) -> Option<&Here> {
        self.here.get()?.as_ref().ok()
    }

    /// The first of the numbers that queue pairs here have.
    pub(crate) fn base(&self) -> u32 {
        self.here().map_or(0, |here| here.slot << INDEX_BITS)
    }

    /// Where a queue pair is told of.
    pub(crate) fn entry(&self, qpn: u32) -> Option<&QpEntry> {
        self.told().map(|here| here.directory.qp(qpn))
    }

    /// Makes the place of a queue pair known.
    pub(crate) fn use_entry(&self, qpn: u32) {
        if let Some(here) = self.told() {
            here.directory.use_qp(qpn);
        }
    }

    /// Whether a queue pair is another process's, going by its number.
    pub(crate) fn is_foreign(&self, qpn: u32) -> bool {
        slot_of(qpn) != slot_of(self.base()) || is_apart()
    }

    pub(crate) fn pair(&self, slot: u32) -> Option<Arc<Pair>> {
        self.pairs.read().get(&slot).cloned()
    }

    /// Tells of a region, now that there is somebody to tell.
    pub(crate) fn tell_region(&self, key: u32, region: &Told) {
        if let Some(here) = self.told() {
            let file = self.files.find(region.addr, region.length);
            here.directory.tell(key, &Told { file, ..*region });
        }
    }

    /// Takes a region's key back. Others may be inside its memory still.
    pub(crate) fn untell_region(&self, key: u32) {
        if let Some(here) = self.told() {
            let file = here.directory.find(key).and_then(|told| told.file);
            here.directory.untell(key);
            // Whoever opens it now finds another file there, or none.
            if let Some(file) = file {
                self.files.release(file.inode);
            }
        }
    }

    /// Waits until nobody is inside this process's memory who came before the call;
    /// `EBUSY` if somebody stays.
    pub(crate) fn wait_outside(&self) -> Result<(), c_int> {
        let mut pairs: Vec<_> = self.pairs.read().values().cloned().collect();
        pairs.extend(self.departed().iter().cloned());
        pairs.iter().try_for_each(|pair| {
            let reads = core::iter::once(&*pair.incoming.reads);
            wait_for(pair, pair.theirs.insides().chain(reads))
        })
    }

    /// Processes that were declared dead and have not gone.
    fn departed(&self) -> MutexGuard<'_, Vec<Arc<Pair>>> {
        let mut departed = self.departed.lock();
        departed.retain(|pair| !pair.has_gone());
        departed
    }

    /// Those of a slot, alive or declared dead.
    fn all_in(&self, slot: u32) -> Vec<Arc<Pair>> {
        let mut pairs: Vec<_> = self.pair(slot).into_iter().collect();
        let departed = self.departed();
        pairs.extend(departed.iter().filter(|pair| pair.slot == slot).cloned());
        pairs
    }

    /// Lets a queue pair go that is destroyed.
    pub(crate) fn forget(&self, qpn: u32) {
        self.drain.lock().forget(qpn);
    }

    /// Waits until no thread of this process executes what others have sent.
    pub(crate) fn quiesce(&self) {
        drop(self.drain.lock());
    }
}

/// Keeps a pair among those that were declared dead and live, in the place of the first one of its
/// process if there are many.
fn depart(departed: &mut Vec<Arc<Pair>>, pair: &Arc<Pair>) {
    if departed.iter().any(|known| Arc::ptr_eq(known, pair)) {
        return;
    }
    let is_its = |known: &Arc<Pair>| known.pid == pair.pid;
    if departed.iter().filter(|known| is_its(known)).count() >= DEPARTED
        && let Some(first) = departed.iter().position(is_its)
    {
        departed.remove(first);
    }
    departed.push(Arc::clone(pair));
}

fn wait_for<'a>(
    pair: &Pair,
    words: impl Iterator<Item = &'a core::sync::atomic::AtomicU32>,
) -> Result<(), c_int> {
    let mut since = None;
    // The other side of the barrier in `QpEntry::enter`.
    let is_seen = barrier::heavy();
    for word in words {
        // Acquire: whoever has left, has done what he did.
        let seen = word.load(Ordering::Acquire);
        while seen & 1 == 1 && word.load(Ordering::Acquire) == seen {
            let since = *since.get_or_insert_with(Instant::now);
            if pair.has_gone() {
                return Ok(());
            }
            if since.elapsed() > INSIDE {
                return Err(errno::EBUSY);
            }
            std::thread::yield_now();
        }
    }
    // If not, nobody knows who else is inside.
    if is_seen { Ok(()) } else { Err(errno::EBUSY) }
}

impl Device {
    /// Meets the process of a foreign queue pair; whether it is there and has been met.
    /// No lock of a queue may be held.
    pub(crate) fn meet(self: &Arc<Device>, slot: u32) -> Result<bool, c_int> {
        let Some(neighbours) = &self.neighbours else { return Ok(false) };
        let here = neighbours.here().map_err(|_| errno::EOPNOTSUPP)?;
        if neighbours.pair(slot).is_some_and(|pair| !pair.is_dead()) {
            return Ok(true);
        }
        self.mrs.tell_all(neighbours);
        let is_there = {
            let mut lobby = neighbours.lobby.lock();
            // Another thread may have met it since; pairs are made under this lock.
            if neighbours.pair(slot).is_some_and(|pair| !pair.is_dead()) {
                return Ok(true);
            }
            // It may answer at once.
            self.start_helper().map_err(Errno::raw_os_error)?;
            lobby.introduce(here, slot).map_err(Errno::raw_os_error)?
        };
        if !is_there {
            unmet::note(slot);
            return Ok(false);
        }
        unmet::forget();
        self.take_in();
        Ok(neighbours.pair(slot).is_some_and(|pair| !pair.is_dead()))
    }

    /// [`meet`](Self::meet), and waits for a while for the other's answer.
    fn meet_patiently(self: &Arc<Device>, slot: u32) -> bool {
        let Some(neighbours) = &self.neighbours else { return false };
        let start = Instant::now();
        let mut until = None;
        loop {
            match self.meet(slot) {
                Ok(true) => return true,
                Err(_) => return false,
                Ok(false) => {}
            }
            let Some(pid) = neighbours.lobby.lock().awaits(slot) else { return false };
            let mut patience = neighbours.patience.lock();
            let until = *until.get_or_insert_with(|| patience.until(pid, start));
            let now = Instant::now();
            if now >= until {
                // Who was not waited for has not failed to answer again.
                if until > start {
                    patience.is_over(pid, now);
                }
                return false;
            }
            drop(patience);
            std::thread::yield_now();
        }
    }

    /// Takes in what other processes have said of themselves.
    pub(crate) fn take_in(self: &Arc<Device>) {
        let Some(neighbours) = &self.neighbours else { return };
        let Some(here) = neighbours.told() else { return };
        // Whoever is answered may look at once.
        self.mrs.tell_all(neighbours);
        let mut after = After::default();
        let mut lobby = neighbours.lobby.lock();
        for parts in lobby.take_in(here) {
            let pair = Arc::new(Pair::new(parts));
            if let Some(old) = neighbours.pair(pair.slot) {
                self.hear_out(neighbours, &old, &mut after);
                old.declare_dead();
            }
            neighbours.drain.lock().add(Arc::clone(&pair));
            neighbours.pairs.write().insert(pair.slot, Arc::clone(&pair));
            self.watch(&pair);
            HAS_PAIRS.store(true, Ordering::Release);
        }
        drop(lobby);
        after.run();
    }

    /// Takes what a process has left that has ended: it has acknowledged, and sent,
    /// whatever is in its rings.
    fn hear_out(&self, neighbours: &Neighbours, pair: &Arc<Pair>, after: &mut After) {
        if !pair.is_dead() && pair.has_gone() {
            neighbours.drain.lock().run_out(self, pair, after);
        }
    }

    /// Buries a process that has died: what was on its way to it has failed.
    pub(crate) fn bury(self: &Arc<Device>, pair: &Arc<Pair>) {
        let Some(neighbours) = &self.neighbours else { return };
        let mut after = After::default();
        self.hear_out(neighbours, pair, &mut after);
        pair.declare_dead();
        {
            // Before it leaves the others: whoever looks through both finds it.
            if !pair.has_gone() {
                depart(&mut neighbours.departed(), pair);
            }
            let mut pairs = neighbours.pairs.write();
            if pairs.get(&pair.slot).is_some_and(|known| Arc::ptr_eq(known, pair)) {
                pairs.remove(&pair.slot);
            }
        }
        neighbours.drain.lock().remove(pair);
        for qp in self.qps.all() {
            qp.lose(pair, &mut after);
        }
        pair.forget_windows();
        after.run();
    }
}

/// What a poll of an empty completion queue does first: whatever others have sent.
#[inline]
pub(crate) fn look_around(device: &Arc<Device>) {
    // Relaxed: who misses it looks again.
    if HAS_PAIRS.load(Ordering::Relaxed) {
        device.drain_from_poll();
    }
}

impl Qp {
    /// Takes its place among those that others may find.
    pub(crate) fn tell_birth(&self) {
        let Some(entry) = self.entry() else { return };
        entry.transport.store(self.transport as u32, Ordering::Relaxed);
        entry.pd.store(self.pd.id, Ordering::Relaxed);
        if let Some(neighbours) = &self.pd.context.device.neighbours {
            neighbours.use_entry(self.num);
        }
        self.tell_state();
    }

    /// It is connected anew; both locks are held.
    pub(crate) fn connect(&self, sq: &mut Sq, responder: &mut Responder) {
        responder.generation = responder.generation.wrapping_add(1).max(1);
        responder.number = 0;
        let Some(neighbours) = &self.pd.context.device.neighbours else { return };
        let to = sq.requester.dest_qpn;
        let foreign =
            self.transport != Transport::Ud && sq.requester.reaches_us && neighbours.is_foreign(to);
        sq.remote = foreign.then(|| Box::new(Remote::new(to, responder.generation as u8)));
        if let Some(entry) = self.entry() {
            // Others find it when the state is told.
            entry.psn.store(responder.psn, Ordering::Relaxed);
            entry.generation.store(responder.generation, Ordering::Relaxed);
        }
    }

    /// Tells what others may do with it; both locks are held.
    pub(crate) fn tell_connection(&self, responder: &Responder) {
        let Some(entry) = self.entry() else { return };
        entry.dest_qpn.store(responder.dest_qpn, Ordering::Relaxed);
        entry.access.store(responder.access, Ordering::Relaxed);
        entry.dest_rd_atomic.store(responder.max_dest_rd_atomic.into(), Ordering::Relaxed);
    }

    /// Meets the process that a transition names, if it names one.
    pub(crate) fn meet_for(&self, attr: &ibv_qp_attr, mask: u32) -> Result<(), c_int> {
        let device = &self.pd.context.device;
        let Some(neighbours) = &device.neighbours else { return Ok(()) };
        let to_rtr = mask & ibv_qp_attr_mask::IBV_QP_STATE.0 != 0
            && attr.qp_state == ibv_qp_state::IBV_QPS_RTR;
        if to_rtr && self.transport == Transport::Ud {
            // Anybody may send to it.
            return device.start_helper().map_err(Errno::raw_os_error);
        }
        let named = mask & ibv_qp_attr_mask::IBV_QP_DEST_QPN.0 != 0;
        if named && neighbours.is_foreign(attr.dest_qp_num) && attr.dest_qp_num <= 0x00ff_ffff {
            let slot = slot_of(attr.dest_qp_num);
            // Who has been told of us may not have answered yet.
            if !device.meet(slot)? && neighbours.lobby.lock().awaits(slot).is_none() {
                unmet::note_nobody(slot);
            }
        }
        Ok(())
    }

    /// Tells others of a state, in which they may find this queue pair.
    pub(crate) fn tell_state(&self) {
        let Some(entry) = self.entry() else { return };
        loop {
            let state = self.state();
            entry.state.store(state as u32, Ordering::SeqCst);
            // Another one may have told of an older state since: the last one looks again.
            if self.state() == state {
                return;
            }
        }
    }

    /// Where others look it up.
    pub(crate) fn entry(&self) -> Option<&QpEntry> {
        self.pd.context.device.neighbours.as_ref()?.entry(self.num)
    }

    /// The process that this queue pair's peer is in has been met, or is not there.
    pub(crate) fn met(self: &Arc<Qp>, is_there: bool, after: &mut After) {
        let mut sq = self.sq.lock();
        if !matches!(sq.requester.waits, Some((Wait::Meeting, _))) {
            return;
        }
        sq.requester.waits = None;
        sq.requester.nobody_there = !is_there;
        self.run_pending(&mut sq, after, false);
    }

    /// Meets the process that the head of the send queue is for.
    pub(crate) fn go_and_meet(self: &Arc<Qp>, slot: u32, after: &mut After) {
        let device = &self.pd.context.device;
        let is_there = if self.transport.is_reliable() {
            device.meet(slot) == Ok(true)
        } else {
            device.meet_patiently(slot)
        };
        self.met(is_there, after);
    }
}

/// States as others may find them told.
fn receives(state: u32) -> bool {
    [State::Rtr, State::Rts, State::Sqd, State::Sqe].iter().any(|s| *s as u32 == state)
}

impl Directory {
    /// The queue pair with a number, if it receives now what `from` sends.
    fn receiver(&self, qpn: u32, transport: u32, from: u32) -> Option<&QpEntry> {
        let entry = self.qp(qpn);
        // Acquire: the rest was told before the state.
        let open = receives(entry.state.load(Ordering::Acquire));
        let same = entry.transport.load(Ordering::Relaxed) == transport;
        let ours = entry.dest_qpn.load(Ordering::Relaxed) == from;
        // An unreliable connection takes up with anybody.
        let takes = ours || transport == crate::qp::Transport::Uc as u32;
        (open && same && takes).then_some(entry)
    }
}
