//! The processes that a device knows: how it meets them, and how it parts with them.

mod queue_pairs;

use core::sync::atomic::{AtomicBool, Ordering};
use host::sync::OnceLock;
use std::sync::Arc;

use host::sync::MutexGuard;
use rustix::io::Errno;

use crate::errno;
use crate::memory::mr_table::ON_DEMAND;
use crate::memory::published::PublishedRegion;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Device, PeerProcesses};
use crate::peers::process::rendezvous::Missing;

use crate::peers::process::directory::{GroupBit, INDEX_BITS, QpEntry, slot_of};
#[cfg(feature = "simulation")]
use crate::peers::process::names::SocketNames;
use crate::peers::process::outside::{Insiders, look, wait_for};
use crate::peers::process::pair::ProcessPair;
use crate::peers::process::peer_not_found;
use crate::peers::process::rendezvous::{
    LocalProcess, PairsBySlot, ProcessRendezvous, most_unasked,
};

/// Pairs of one process that are kept after it was declared dead, as it may be inside our memory.
/// For a process that meets us again and again and never goes, only the last ones are kept, with
/// what they have mapped; the others are not waited for.
pub(super) const DEPARTED: usize = 4;
/// Those of all processes: 256 descriptors, a quarter of what a program may have by default. The
/// first ones make room.
pub(super) const ALL_DEPARTED: usize = 64;

/// Checks that `soft0` reaches queue pairs of other processes. If the system lacks what that takes,
/// it reaches those of this process only.
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
    let device = crate::objects::device::default_device();
    match device.peers.as_ref().map(PeerProcesses::here) {
        Some(Ok(_)) => Ok(()),
        Some(Err(Missing { what, errno })) => {
            Err(format!("this system does not give it {what} ({errno})"))
        }
        None => Err("it is not soft0".to_owned()),
    }
}

/// Reports whether requests of a process to itself take the way to another one, too: for tests.
fn is_apart() -> bool {
    static APART: OnceLock<bool> = OnceLock::new();
    let is_asked = || std::env::var_os("SOFT_RNIC_APART").is_some_and(|v| v == "1");
    // What happens in a world follows from its seed alone.
    *APART.get_or_init(is_asked) && !host::is_in_world()
}

/// Numbers that no other process knows.
pub(crate) fn random() -> [u64; 2] {
    [0, 1].map(|_| host::random::entropy())
}

impl PeerProcesses {
    /// Those of a device that has these names.
    #[cfg(feature = "simulation")]
    pub(crate) fn named(names: SocketNames) -> PeerProcesses {
        PeerProcesses { names, ..PeerProcesses::default() }
    }

    /// Those of a device of which this process has claimed a slot.
    pub(crate) fn with_own(here: LocalProcess) -> PeerProcesses {
        let names = here.names().clone();
        PeerProcesses { names, here: OnceLock::from(Ok(here)), ..PeerProcesses::default() }
    }

    pub(super) fn here(&self) -> Result<&LocalProcess, Missing> {
        let here = self.here.get_or_init(|| {
            let [anywhere, proof] = random();
            let claimed = LocalProcess::claim(&self.names, anywhere, proof);
            claimed.map_err(|(what, errno)| Missing { what, errno })
        });
        here.as_ref().map_err(|missing| *missing)
    }

    /// True if other processes reach this one.
    pub(crate) fn is_here(&self) -> bool {
        self.here().is_ok()
    }

    /// Returns what this process publishes, once it has claimed a slot.
    pub(crate) fn claimed(&self) -> Option<&LocalProcess> {
        self.here.get()?.as_ref().ok()
    }

    /// Says on which processor this thread polls in vain; its number, counted from 1.
    pub(super) fn publish_processor(&self) -> u32 {
        let processor = host::thread::processor() + 1;
        if let Some(here) = self.claimed()
            // Only written when it changes: others read the line.
            && here.directory.processor.load(Ordering::Relaxed) != processor
        {
            here.directory.processor.store(processor, Ordering::Relaxed);
        }
        processor
    }

    /// The first of the numbers that queue pairs here have.
    pub(crate) fn base(&self) -> u32 {
        self.here().map_or(0, |here| here.slot << INDEX_BITS)
    }

    /// The published entry of a queue pair.
    pub(crate) fn entry(&self, qpn: u32) -> Option<&QpEntry> {
        self.claimed().map(|here| here.directory.qp(qpn))
    }

    /// Makes the entry of a queue pair known.
    pub(crate) fn use_entry(&self, qpn: u32) {
        if let Some(here) = self.claimed() {
            here.directory.use_qp(qpn);
        }
    }

    /// Reports whether a queue pair is another process's, going by its number.
    pub(crate) fn is_foreign(&self, qpn: u32) -> bool {
        slot_of(qpn) != slot_of(self.base()) || is_apart()
    }

    pub(crate) fn pair(&self, slot: u32) -> Option<Arc<ProcessPair>> {
        self.pairs.read().get(&slot).cloned()
    }

    /// Publishes a region, now that there is a process to read it.
    pub(crate) fn publish_region(&self, key: u32, region: &PublishedRegion) {
        if let Some(here) = self.claimed() {
            // Others attach to an on-demand region: what they have mapped may be gone here.
            let may_be_mapped = region.mw.is_none() && region.access & ON_DEMAND == 0;
            let file = may_be_mapped.then(|| self.files.find(region.addr, region.length)).flatten();
            here.directory.publish(key, &PublishedRegion { file, ..*region });
        }
    }

    /// Reports whether others can map the region with this key.
    pub(crate) fn may_be_mapped(&self, key: u32) -> bool {
        let published = self.claimed().and_then(|here| here.directory.find(key));
        published.is_some_and(|published| published.file.is_some())
    }

    /// Takes a region's key back. Others may be inside its memory still.
    pub(crate) fn withdraw_region(&self, key: u32) {
        if let Some(here) = self.claimed() {
            let file = here.directory.find(key).and_then(|published| published.file);
            here.directory.withdraw(key);
            // A process that opens it now finds another file there, or none.
            if let Some(file) = file {
                self.files.release(file.inode);
            }
        }
    }

    /// Publishes an XRC receive queue.
    pub(crate) fn publish_srq(&self, srqn: u32, xrcd: u32, pd: u32) {
        if let Ok(here) = self.here() {
            here.directory.publish_srq(srqn, xrcd, pd);
        }
    }

    pub(crate) fn withdraw_srq(&self, srqn: u32) {
        if let Some(here) = self.claimed() {
            here.directory.withdraw_srq(srqn);
        }
    }

    /// Publishes whether there are members of a multicast group here.
    pub(crate) fn publish_group(&self, bit: GroupBit, is_there: bool) {
        if let Some(here) = self.claimed() {
            here.directory.publish_group(bit, is_there);
        }
    }

    /// Waits until every process that was inside this one's memory before the call has left;
    /// `EBUSY` if one stays.
    pub(crate) fn wait_outside(&self) -> Result<(), Errno> {
        self.all_pairs().iter().try_for_each(|pair| {
            let reads = core::iter::once(&*pair.incoming.reads);
            wait_for(pair, pair.theirs.insides().chain(reads))
        })
    }

    /// Those that live, as far as is known, and those that were declared dead and have not gone.
    pub(super) fn all_pairs(&self) -> Vec<Arc<ProcessPair>> {
        let mut pairs: Vec<_> = self.pairs.read().values().cloned().collect();
        pairs.extend(self.departed().iter().cloned());
        pairs
    }

    /// The queue pair with this number, if it is inside this process's memory.
    pub(crate) fn insiders_for(&self, qpn: u32) -> Insiders {
        look(&self.all_in(slot_of(qpn)), |_| core::iter::once(qpn))
    }

    /// Queue pairs of all processes that are inside this one's memory, and are connected to one
    /// here that `is_asked`.
    pub(crate) fn all_insiders(&self, is_asked: impl Fn(u32) -> bool) -> Insiders {
        let is_asked = &is_asked;
        look(&self.all_pairs(), |pair| {
            let of = move |entry: &QpEntry| {
                // Acquire: where it is inside, it has been connected before.
                let is_inside = entry.inside().load(Ordering::Acquire) & 1 == 1;
                is_inside && is_asked(entry.dest_qpn.load(Ordering::Relaxed))
            };
            let entries = pair.theirs.used_qps().iter().zip(0..);
            entries.filter(move |(entry, _)| of(entry)).map(|(_, index)| index)
        })
    }

    /// Processes that were declared dead and have not gone.
    pub(crate) fn departed(&self) -> MutexGuard<'_, Vec<Arc<ProcessPair>>> {
        let mut departed = self.departed.lock();
        departed.retain(|pair| !pair.has_gone());
        departed
    }

    /// Those of a slot, alive or declared dead.
    pub(crate) fn all_in(&self, slot: u32) -> Vec<Arc<ProcessPair>> {
        let mut pairs: Vec<_> = self.pair(slot).into_iter().collect();
        let departed = self.departed();
        pairs.extend(departed.iter().filter(|pair| pair.slot == slot).cloned());
        pairs
    }

    /// Releases a queue pair that is destroyed.
    pub(crate) fn forget(&self, qpn: u32) {
        self.progress.lock().forget(qpn);
    }

    /// Waits until no thread of this process executes what others have sent.
    pub(crate) fn quiesce(&self) {
        drop(self.progress.lock());
    }
}

/// Keeps a pair among those that were declared dead and live, in the place of the first one of its
/// process if there are many.
pub(super) fn depart(departed: &mut Vec<Arc<ProcessPair>>, pair: &Arc<ProcessPair>) {
    if departed.iter().any(|known| Arc::ptr_eq(known, pair)) {
        return;
    }
    let is_its = |known: &Arc<ProcessPair>| known.pid == pair.pid;
    if departed.iter().filter(|known| is_its(known)).count() >= DEPARTED
        && let Some(first) = departed.iter().position(is_its)
    {
        departed.remove(first);
    }
    departed.push(Arc::clone(pair));
    if departed.len() > ALL_DEPARTED {
        departed.remove(0);
    }
}

impl Device {
    /// Meets the process of a foreign queue pair; whether it is there and has been met.
    /// No lock of a queue may be held.
    pub(crate) fn meet(self: &Arc<Device>, slot: u32) -> Result<bool, Errno> {
        let is_met = self.meet_by(slot, ProcessRendezvous::introduce)?;
        if is_met.is_none()
            && let Some(peers) = &self.peers
        {
            peer_not_found::note(&peers.looked, &peers.names, slot);
        }
        Ok(is_met == Some(true))
    }

    /// [`meet`](Self::meet), of a process that the program does not connect to; `EMFILE` if those
    /// have as many descriptors as they may.
    pub(super) fn meet_unasked(self: &Arc<Device>, slot: u32) -> Result<bool, Errno> {
        let is_met = self.meet_by(slot, |rendezvous, here, slot, pairs| {
            rendezvous.introduce_unasked(here, slot, pairs, most_unasked())
        })?;
        Ok(is_met == Some(true))
    }

    /// Introduces this process to the one in a slot, and returns whether they have met; `None` if
    /// no process is there.
    fn meet_by(
        self: &Arc<Device>,
        slot: u32,
        introduce: impl FnOnce(
            &mut ProcessRendezvous,
            &LocalProcess,
            u32,
            &PairsBySlot,
        ) -> Result<bool, Errno>,
    ) -> Result<Option<bool>, Errno> {
        let Some(peers) = &self.peers else { return Ok(Some(false)) };
        let here = peers.here().map_err(|_| errno::EOPNOTSUPP)?;
        #[cfg(feature = "simulation")]
        if peers.is_killed() {
            return Ok(None);
        }
        if peers.pair(slot).is_some_and(|pair| !pair.is_dead()) {
            return Ok(Some(true));
        }
        self.mrs.publish_all(peers);
        let is_there = {
            let mut rendezvous = peers.rendezvous.lock();
            // Another thread may have met it since; pairs are made under this lock.
            if peers.pair(slot).is_some_and(|pair| !pair.is_dead()) {
                return Ok(Some(true));
            }
            // It may answer at once.
            self.start_progress_thread()?;
            let introduced = introduce(&mut rendezvous, here, slot, &peers.pairs.read());
            introduced?
        };
        if !is_there {
            return Ok(None);
        }
        peer_not_found::forget();
        self.take_in();
        Ok(Some(peers.pair(slot).is_some_and(|pair| !pair.is_dead())))
    }

    /// [`meet`](Self::meet), and waits for a while for the other's answer.
    fn meet_with_backoff(self: &Arc<Device>, slot: u32) -> bool {
        let Some(peers) = &self.peers else { return false };
        let start = host::time::now();
        let mut until = None;
        loop {
            match self.meet(slot) {
                Ok(true) => return true,
                Err(_) => return false,
                Ok(false) => {}
            }
            let Some(pid) = peers.rendezvous.lock().awaits(slot) else { return false };
            let mut backoff = peers.backoff.lock();
            let until = *until.get_or_insert_with(|| backoff.until(pid, start));
            let now = host::time::now();
            if now >= until {
                // A process that was not waited for has not failed to answer again.
                if until > start {
                    backoff.timed_out(pid, now);
                }
                return false;
            }
            drop(backoff);
            host::thread::yield_now();
        }
    }

    /// Takes in what other processes have said of themselves.
    pub(crate) fn take_in(self: &Arc<Device>) {
        let Some(peers) = &self.peers else { return };
        let Some(here) = peers.claimed() else { return };
        #[cfg(feature = "simulation")]
        if peers.is_killed() {
            return;
        }
        // A process that is answered may look at once.
        self.mrs.publish_all(peers);
        let mut deferred = DeferredWork::default();
        let mut rendezvous = peers.rendezvous.lock();
        // Release: a process that is answered from here on is found among the pairs, or this is
        // seen.
        peers.participation.is_taking_in.store(true, Ordering::Release);
        let complete = rendezvous.take_in(here, &peers.pairs.read());
        for parts in complete {
            let pair = Arc::new(ProcessPair::new(parts));
            if let Some(old) = peers.pair(pair.slot) {
                self.hear_out(peers, &old, &mut deferred);
                old.declare_dead();
            }
            peers.progress.lock().add(Arc::clone(&pair));
            peers.pairs.write().insert(pair.slot, Arc::clone(&pair));
            self.watch(&pair);
            peers.has_pairs.store(true, Ordering::Release);
            HAS_PAIRS.store(true, Ordering::Release);
        }
        // Release: the pairs are there.
        peers.participation.is_taking_in.store(false, Ordering::Release);
        drop(rendezvous);
        deferred.run();
    }

    /// Takes what a process that has ended has left: it has acknowledged, and sent,
    /// whatever is in its rings.
    fn hear_out(
        &self,
        peers: &PeerProcesses,
        pair: &Arc<ProcessPair>,
        deferred: &mut DeferredWork,
    ) {
        if !pair.is_dead() && pair.has_gone() {
            peers.progress.lock().run_out(self, pair, deferred);
        }
    }

    /// Buries a process that has died: what was on its way to it has failed.
    pub(crate) fn bury(self: &Arc<Device>, pair: &Arc<ProcessPair>) {
        let Some(peers) = &self.peers else { return };
        let mut deferred = DeferredWork::default();
        self.hear_out(peers, pair, &mut deferred);
        pair.declare_dead();
        {
            // Before it leaves the others: a thread that looks through both finds it.
            if !pair.has_gone() {
                depart(&mut peers.departed(), pair);
            }
            let mut pairs = peers.pairs.write();
            if pairs.get(&pair.slot).is_some_and(|known| Arc::ptr_eq(known, pair)) {
                pairs.remove(&pair.slot);
            }
        }
        peers.progress.lock().remove(pair);
        for qp in self.qps.all() {
            qp.lose(pair, &mut deferred);
        }
        pair.forget_windows();
        deferred.run();
    }
}

/// True if this process has met another one, by any of its devices.
static HAS_PAIRS: AtomicBool = AtomicBool::new(false);

/// Reports whether a device may have met another process. Polls look at this, and at nothing else
/// until then. (In a world it has not met one because a device of the world before has.)
#[inline]
pub(super) fn has_pairs(device: &Device) -> bool {
    // Relaxed: a poll that misses it is followed by another.
    let has_met =
        || device.peers.as_ref().is_some_and(|peers| peers.has_pairs.load(Ordering::Relaxed));
    HAS_PAIRS.load(Ordering::Relaxed) && (!host::is_in_world() || has_met())
}

/// Takes what other processes have sent: the first step of a poll of an empty completion queue.
#[inline]
pub(crate) fn look_around(device: &Arc<Device>) {
    if has_pairs(device) {
        device.progress_from_poll();
    }
}
