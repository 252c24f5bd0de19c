//! Operations on another process's memory, carried out by the requester.
//!
//! It looks up whether the target permits them, and says meanwhile that it is inside: who
//! takes a region, a permission or a queue pair away waits until it has left. What is
//! not permitted it leaves to the target to judge, so that there is one place from which
//! statuses and events come.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use verbs_sys::*;

use crate::memory::{Copying, Span, copy_spans, land};
use crate::mr::{REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::qp::Qp;
use crate::requester::{Line, Outcome, SqParts};
use crate::responder::{LONG, Reply};
use crate::sq::{self, Op};

use super::away::serves;
use super::directory::{QpEntry, Told};
use super::memory::{Way, attach, note_refusal};
use super::out::Out;
use super::pair::Pair;
use super::region::Window;
use super::remote::Remote;

/// A peer's region, and where it is mapped (`W`) if it is.
#[derive(Debug)]
struct Region<W> {
    key: u32,
    told: Told,
    window: Option<W>,
}

impl<W> Region<W> {
    #[inline]
    fn is(&self, key: u32, version: u32) -> bool {
        self.key == key && self.told.version == version
    }
}

/// The regions that a queue pair has named. The last two are at hand: data go to one, and what
/// tells of them to another, and neither touches a count that others do. Those before them are
/// known, so that a peer that offers many buffers in turn has them all looked up once; what it
/// takes away is not kept mapped for that.
#[derive(Debug, Default)]
pub(super) struct Regions {
    at_hand: [Option<Region<Arc<Window>>>; 2],
    known: Known,
}

impl Regions {
    /// The region of a key in this version, if the peer has it.
    #[inline]
    fn get(&mut self, pair: &Pair, key: u32, version: u32) -> Option<&Region<Arc<Window>>> {
        let is_it = |place: &Option<Region<_>>| {
            place.as_ref().is_some_and(|region| region.is(key, version))
        };
        let at = match &self.at_hand {
            [first, _] if is_it(first) => 0,
            [_, second] if is_it(second) => 1,
            _ => self.recall(pair, key, version)?,
        };
        self.at_hand[at].as_ref()
    }

    /// Brings a region to hand; where it is.
    #[inline(never)]
    fn recall(&mut self, pair: &Pair, key: u32, version: u32) -> Option<usize> {
        if self.known.get(key, version).is_none() {
            let told = pair.theirs.find(key)?;
            let window = pair.window(key, &told).map(|window| Arc::downgrade(&window));
            let is_valid =
                |other: &Region<_>| pair.theirs.version(other.key) == Some(other.told.version);
            self.known.put(Region { key, told, window }, is_valid);
        }
        let known = self.known.get(key, version)?;
        let window = match &known.window {
            // The pair keeps it as long as it is valid.
            Some(window) => Some(window.upgrade()?),
            None => None,
        };
        let region = Region { key, told: known.told, window };
        self.at_hand.rotate_right(1);
        self.at_hand[0] = Some(region);
        Some(0)
    }

    /// Forgets them all.
    pub(super) fn clear(&mut self) {
        *self = Regions::default();
    }
}

/// Regions each in the place that its key has. There are as many places as that takes, up to a
/// limit.
#[derive(Debug, Default)]
struct Known(Vec<Option<Region<Weak<Window>>>>);

impl Known {
    const FIRST: usize = 4;
    const MOST: usize = 64;

    /// The region of a key, if it is known in this version.
    fn get(&self, key: u32, version: u32) -> Option<&Region<Weak<Window>>> {
        let at = key as usize & self.0.len().wrapping_sub(1);
        self.0.get(at)?.as_ref().filter(|region| region.is(key, version))
    }

    /// Adds a region, in the place of another one only if there can be no more of them.
    #[cold]
    fn put(
        &mut self,
        region: Region<Weak<Window>>,
        is_valid: impl Fn(&Region<Weak<Window>>) -> bool,
    ) {
        if self.0.is_empty() {
            self.0.resize_with(Self::FIRST, || None);
        }
        loop {
            let at = region.key as usize & (self.0.len() - 1);
            let other = self.0[at].as_ref().filter(|other| other.key != region.key);
            if self.0.len() == Self::MOST || !other.is_some_and(&is_valid) {
                self.0[at] = Some(region);
                return;
            }
            self.grow();
        }
    }

    /// Twice the places. Whatever had one of its own has one of its own.
    fn grow(&mut self) {
        let more = 2 * self.0.len();
        let regions = std::mem::take(&mut self.0);
        self.0.resize_with(more, || None);
        for region in regions.into_iter().flatten() {
            let at = region.key as usize & (more - 1);
            self.0[at] = Some(region);
        }
    }
}

/// How an operation on memory ended.
pub(super) enum Access {
    Done,
    /// The target has to say what is wrong.
    Judge,
    /// Not by this thread: others rely on it, and the memory is attached to.
    Later,
    Ended(Outcome),
}

/// Whether a queue pair permits an operation, as far as it tells.
fn permits(entry: &QpEntry, op: Op) -> bool {
    let access = entry.access.load(Ordering::Relaxed);
    let reads = entry.dest_rd_atomic.load(Ordering::Relaxed) > 0;
    match op {
        Op::Read => access & REMOTE_READ != 0 && reads,
        Op::CompareSwap | Op::FetchAdd => access & REMOTE_ATOMIC != 0 && reads,
        _ => access & REMOTE_WRITE != 0,
    }
}

/// # Safety
/// `at` and `local` are valid memory for the request; programs access it atomically
/// only.
unsafe fn access(at: *mut u8, local: &[Span], request: &sq::Request<'_>) -> Access {
    let wqe = request.wqe;
    let there = [Span { ptr: at, len: request.len() as usize }];
    if wqe.op.is_atomic() {
        if !at.addr().is_multiple_of(8) || !wqe.remote_addr.is_multiple_of(8) {
            return Access::Judge;
        }
        // SAFETY: aligned, and the caller's promise.
        let word = unsafe { AtomicU64::from_ptr(at.cast()) };
        // AcqRel: an atomic is a synchronisation between whoever uses the word.
        let mut old = match wqe.op {
            Op::FetchAdd => word.fetch_add(wqe.compare_add, Ordering::AcqRel),
            _ => word
                .compare_exchange(wqe.compare_add, wqe.swap, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|seen| seen),
        };
        let old = Span { ptr: (&raw mut old).cast(), len: 8 };
        // SAFETY: the caller's promise.
        unsafe { copy_spans(local, &[old], Copying::Shared) };
        return Access::Done;
    }
    // SAFETY: the caller's promise.
    unsafe {
        match wqe.op {
            Op::Read => copy_spans(local, &there, Copying::Shared),
            _ => copy_spans(&there, local, Copying::Shared),
        }
    }
    Access::Done
}

impl Qp {
    /// Carries an operation on the peer's memory out, if it is permitted.
    pub(super) fn one_sided(
        &self,
        parts: &mut SqParts<'_>,
        remote: &mut Remote,
        out: &mut Out<'_>,
        line: &mut Line<'_>,
        request: &sq::Request<'_>,
    ) -> Access {
        // Others of this process may send while we copy.
        out.release();
        parts.requester.started = true;
        let pair = out.pair;
        let Some(own) = self.entry() else { return Access::Judge };
        let _inside = own.enter(pair.spares_barriers);
        let to = parts.requester.dest_qpn;
        let Some(entry) = pair.theirs.receiver(to, self.transport as u32, self.num) else {
            return self.unheard(parts, remote, request);
        };
        let is_it = entry.generation.load(Ordering::Relaxed) == remote.generation;
        if self.transport.is_reliable() && !is_it {
            return self.unheard(parts, remote, request);
        }
        if !permits(entry, request.wqe.op) {
            return Access::Judge;
        }
        let len = request.len();
        if len == 0 {
            return Access::Done;
        }
        let Some((region, offset)) = remote.region(pair, entry, request, len) else {
            return Access::Judge;
        };
        if len >= LONG as u64 {
            // Others may complete, and arm, while we copy.
            line.writer.release();
        }
        let (local, on_demand) = (parts.scratch.local.as_slice(), parts.scratch.local.on_demand);
        let gone = Access::Ended(Outcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR));
        if let Some(at) = region.window.as_ref().and_then(|window| window.at(offset, len)) {
            if on_demand {
                // SAFETY: as below.
                let landed = unsafe { land(local, Span { ptr: at, len: len as usize }) };
                return landed.map_or(gone, |()| Access::Done);
            }
            // SAFETY: both were checked, and their owner waits until we have left;
            // programs access them atomically only.
            return unsafe { access(at, local, request) };
        }
        if request.wqe.op.is_atomic() {
            return Access::Judge;
        }
        let way = if request.wqe.op == Op::Read { Way::From } else { Way::Into };
        if serves() {
            return Access::Later;
        }
        line.writer.release();
        let _gone = self.go_away();
        if !pair.attaches() || pair.has_gone() {
            return Access::Ended(self.unattached(parts, pair, len));
        }
        let there = region.told.addr.wrapping_add(offset);
        // SAFETY: as above.
        match unsafe { attach(pair.pid, way, local, there, len as usize) } {
            Ok(()) => Access::Done,
            // It is dying, or runs another program: its memory goes before the kernel says so.
            Err(Errno::SRCH) => Access::Ended(self.lost(parts, len)),
            Err(Errno::FAULT) if !pair.has_its_memory() => Access::Ended(self.lost(parts, len)),
            Err(Errno::FAULT) if on_demand => gone,
            Err(error) => {
                note_refusal(pair.pid, error);
                Access::Ended(self.unattached(parts, pair, len))
            }
        }
    }

    /// The peer does not receive what this queue pair sends, or was connected anew.
    #[cold]
    fn unheard(
        &self,
        parts: &mut SqParts<'_>,
        remote: &mut Remote,
        request: &sq::Request<'_>,
    ) -> Access {
        // If nothing was done for this connection yet, the peer may be the right one now.
        remote.generation = 0;
        Access::Ended(self.judge(parts.requester, Reply::Silence, request.len()))
    }

    /// Memory that is neither mapped nor attached to.
    #[cold]
    fn unattached(&self, parts: &mut SqParts<'_>, pair: &Pair, len: u64) -> Outcome {
        if pair.is_dead() || pair.has_gone() || !self.transport.is_reliable() {
            return self.lost(parts, len);
        }
        Outcome::Failed(ibv_wc_status::IBV_WC_REM_OP_ERR)
    }
}

impl Remote {
    /// The region that a request names and the offset in it, if it may be accessed so.
    fn region(
        &mut self,
        pair: &Pair,
        entry: &QpEntry,
        request: &sq::Request<'_>,
        len: u64,
    ) -> Option<(&Region<Arc<Window>>, u64)> {
        let wqe = request.wqe;
        let version = pair.theirs.version(wqe.rkey)?;
        let region = self.regions.get(pair, wqe.rkey, version)?;
        let access = match wqe.op {
            Op::Read => REMOTE_READ,
            Op::CompareSwap | Op::FetchAdd => REMOTE_ATOMIC,
            _ => REMOTE_WRITE,
        };
        let allowed = region.told.access & access == access;
        let same_domain = region.told.pd == entry.pd.load(Ordering::Relaxed);
        if !allowed || !same_domain {
            return None;
        }
        region.told.offset(wqe.remote_addr, len).map(|offset| (region, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(key: u32, version: u32) -> Region<Weak<Window>> {
        Region { key, told: Told { version, ..Told::default() }, window: None }
    }

    #[test]
    fn regions_in_turn_are_all_known_up_to_the_limit() {
        let mut regions = Known::default();
        assert!(regions.get(0, 0).is_none());
        let most = Known::MOST as u32;
        // As keys are: an index below a part that varies.
        let keys: Vec<u32> = (0..most).map(|index| index | (index * 7919) << 18).collect();
        keys.iter().for_each(|key| regions.put(region(*key, 1), |_| true));
        assert!(keys.iter().all(|key| regions.get(*key, 1).is_some()));
        assert!(keys.iter().all(|key| regions.get(*key, 2).is_none()), "another registration");
        regions.put(region(keys[0] + most, 1), |_| true);
        assert!(regions.get(keys[0], 1).is_none(), "it has given its place");
        assert!(keys[1..].iter().all(|key| regions.get(*key, 1).is_some()));
        assert_eq!(regions.0.len(), Known::MOST);
    }

    #[test]
    fn what_is_registered_anew_takes_no_more_places() {
        let mut regions = Known::default();
        for key in 0..1000 {
            regions.put(region(key, 1), |_| false);
            assert!(regions.get(key, 1).is_some());
        }
        regions.put(region(999, 2), |_| true);
        assert!(regions.get(999, 1).is_none() && regions.get(999, 2).is_some());
        assert_eq!(regions.0.len(), Known::FIRST);
    }
}
