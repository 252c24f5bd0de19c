//! The directory that a process publishes to others: a memory file that only it writes.
//!
//! Its queue pairs and its memory regions are in it, so that a peer can check whether an operation
//! is permitted, and carry it out. Each word has one writer.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::limits;
use crate::lock::Padded;
use crate::memory::keys::PublishedKeys;
use crate::memory::published::{InFile, PublishedMw, PublishedRegion};
use crate::queues::address::GidBytes;
use crate::queues::qp_state::QueuePairState;

use super::barrier::light;
use super::mapped::SharedLayout;

/// A number of a queue pair: which process, and which of its queue pairs.
pub(crate) const INDEX_BITS: u32 = 14;
const QPS: usize = 1 << INDEX_BITS;
/// Processes of a user at the same time.
pub(crate) const SLOTS: u32 = 1 << (24 - INDEX_BITS);

/// "soft-rnc", and the version of all that processes share.
pub(crate) const MAGIC: u64 = 0x736f_6674_2d72_6e63;
pub(crate) const VERSION: u32 = 14;

/// Times that a region is looked at which is published anew meanwhile: what always is does not keep
/// the rules.
const FINDS: u32 = 64;

/// Words of the filter of multicast groups.
const GROUP_WORDS: usize = 64;

/// The bit that stands for a multicast group, and for some others, in the filter of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct GroupBit(u32);

impl GroupBit {
    pub(crate) fn of(gid: &GidBytes) -> GroupBit {
        // Groups differ in their last bytes mostly. The multiplier is of Knuth's hash: the upper
        // bits depend on all.
        let folded = u128::from_be_bytes(*gid);
        let folded = (folded >> 64) as u64 ^ folded as u64;
        let mixed = (folded ^ folded >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        GroupBit((mixed >> (64 - 12)) as u32 % (64 * GROUP_WORDS as u32))
    }

    fn word_and_mask(self) -> (usize, u64) {
        (self.0 as usize / 64, 1 << (self.0 % 64))
    }
}

/// Returns the slot of the process that a queue pair's number belongs to.
#[inline]
pub(crate) fn slot_of(qpn: u32) -> u32 {
    qpn >> INDEX_BITS
}

/// The directory of a process: its queue pairs, its memory regions, and its state.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct ProcessDirectory {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    /// It executes the barriers of others, where it needs them (see `barrier`).
    pub(crate) has_barriers: AtomicU32,
    /// The processor, counted from 1, on which a thread of it has polled without result.
    pub(crate) processor: AtomicU32,
    /// The number of its progress thread, or [`OWNER_DIED`](super::liveness::OWNER_DIED) if that
    /// has ended; 0 is unknown.
    pub(crate) liveness: AtomicU32,
    /// The secrets of its keys.
    pub(crate) keys: PublishedKeys,
    /// Not 0: a process that puts something into a ring for this one rings its doorbell.
    pub(crate) armed: Padded<AtomicU32>,
    /// Queue pairs were never in an entry from this one on.
    used: Padded<AtomicU32>,
    /// The filter of the multicast groups that it has members of.
    groups: Padded<[AtomicU64; GROUP_WORDS]>,
    qps: [QpEntry; QPS],
    srqs: [SrqEntry; limits::MAX_XRC_SRQ],
    regions: [RegionEntry; limits::MAX_KEYS],
}

// SAFETY: atomic integers all.
unsafe impl SharedLayout for ProcessDirectory {}

/// A queue pair, as its peer has to know it.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct QpEntry {
    pub(crate) state: AtomicU32,
    /// Changes whenever it is connected anew.
    pub(crate) generation: AtomicU32,
    /// That of the queue pairs that it hears.
    pub(crate) transport: AtomicU32,
    pub(crate) dest_qpn: AtomicU32,
    /// The PSN that it expected when it was connected.
    pub(crate) psn: AtomicU32,
    pub(crate) access: AtomicU32,
    pub(crate) dest_rd_atomic: AtomicU32,
    pub(crate) pd: AtomicU32,
    /// The XRC domain of an XRC receive queue pair.
    pub(crate) xrcd: AtomicU32,
    /// Odd while this queue pair's process is inside another one's memory for it.
    inside: Padded<AtomicU32>,
}

/// An XRC receive queue. `number` 0 is "nothing here".
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SrqEntry {
    number: AtomicU32,
    xrcd: AtomicU32,
    pd: AtomicU32,
}

/// A memory region. `key` 0 is "nothing here".
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct RegionEntry {
    key: AtomicU32,
    /// Version of the registration: keys are reused some day, a version not soon.
    version: AtomicU32,
    pd: AtomicU32,
    access: AtomicU32,
    iova: AtomicU64,
    length: AtomicU64,
    /// Address of the region in its process.
    addr: AtomicU64,
    /// The descriptor there of the file that it lies in, plus one; 0 is "in none".
    file: AtomicU32,
    inode: AtomicU64,
    /// Offset of its first byte in the file, number of bytes that follow each other there, and
    /// offset of the others.
    offset: AtomicU64,
    split: AtomicU64,
    second: AtomicU64,
    /// A memory window's domain (0 is "none"), queue pair and region.
    mw_pd: AtomicU32,
    mw_qpn: AtomicU32,
    mw_region: AtomicU32,
}

impl ProcessDirectory {
    #[inline]
    pub(crate) fn qp(&self, qpn: u32) -> &QpEntry {
        &self.qps[qpn as usize % QPS]
    }

    fn srq(&self, srqn: u32) -> &SrqEntry {
        &self.srqs[srqn as usize % limits::MAX_XRC_SRQ]
    }

    /// Fills the entry of an XRC receive queue, which is empty.
    pub(crate) fn publish_srq(&self, srqn: u32, xrcd: u32, pd: u32) {
        let entry = self.srq(srqn);
        entry.xrcd.store(xrcd, Ordering::Relaxed);
        entry.pd.store(pd, Ordering::Relaxed);
        // Release: a reader that sees the number sees the rest.
        entry.number.store(srqn, Ordering::Release);
    }

    pub(crate) fn withdraw_srq(&self, srqn: u32) {
        self.srq(srqn).number.store(0, Ordering::SeqCst);
    }

    /// The protection domain of an XRC receive queue, if it is in this XRC domain.
    pub(crate) fn pd_of_srq(&self, srqn: u32, xrcd: u32) -> Option<u32> {
        let entry = self.srq(srqn);
        // Acquire: the rest was written before the number, and is another queue's only if that
        // has changed.
        let is_it = || srqn != 0 && entry.number.load(Ordering::Acquire) == srqn;
        let found = (is_it(), entry.xrcd.load(Ordering::Acquire), entry.pd.load(Ordering::Acquire));
        (found.0 && found.1 == xrcd && is_it()).then_some(found.2)
    }

    /// Makes an entry known to those that look through all.
    pub(crate) fn use_qp(&self, qpn: u32) {
        let index = qpn % QPS as u32;
        self.used.fetch_max(index + 1, Ordering::Release);
    }

    /// Puts a group into the filter, or takes it out. One thread at a time.
    pub(crate) fn publish_group(&self, bit: GroupBit, is_there: bool) {
        let (word, mask) = bit.word_and_mask();
        let word = &self.groups[word];
        let others = word.load(Ordering::Relaxed) & !mask;
        // Relaxed: a sender that was told of the member has seen what it was told of.
        word.store(if is_there { others | mask } else { others }, Ordering::Relaxed);
    }

    /// Reports whether the process may have members of a group.
    pub(crate) fn has_group(&self, bit: GroupBit) -> bool {
        let (word, mask) = bit.word_and_mask();
        self.groups[word].load(Ordering::Relaxed) & mask != 0
    }

    #[inline]
    fn region(&self, key: u32) -> &RegionEntry {
        &self.regions[self.keys.index(key) as usize % limits::MAX_KEYS]
    }

    /// Fills the entry of a key, which is empty; the key is valid from then on.
    pub(crate) fn publish(&self, key: u32, published: &PublishedRegion) {
        let entry = self.region(key);
        // Release, and a fence: a reader that sees the new version sees that the key was not valid,
        // and one that sees a field of the next region sees the new version (`find`).
        entry.version.fetch_add(1, Ordering::Release);
        fence(Ordering::Release);
        entry.pd.store(published.pd, Ordering::Relaxed);
        entry.access.store(published.access, Ordering::Relaxed);
        entry.iova.store(published.iova, Ordering::Relaxed);
        entry.length.store(published.length, Ordering::Relaxed);
        entry.addr.store(published.addr, Ordering::Relaxed);
        entry.file.store(published.file.map_or(0, |file| file.fd + 1), Ordering::Relaxed);
        if let Some(file) = published.file {
            entry.inode.store(file.inode, Ordering::Relaxed);
            entry.offset.store(file.offset, Ordering::Relaxed);
            entry.split.store(file.split, Ordering::Relaxed);
            entry.second.store(file.second, Ordering::Relaxed);
        }
        entry.mw_pd.store(published.mw.map_or(0, |mw| mw.pd), Ordering::Relaxed);
        if let Some(mw) = published.mw {
            entry.mw_qpn.store(mw.qpn, Ordering::Relaxed);
            entry.mw_region.store(mw.region, Ordering::Relaxed);
        }
        host::point();
        // Release: a reader that sees the key sees the rest.
        entry.key.store(key, Ordering::Release);
    }

    /// Makes a key invalid. A process that has seen it may be inside still: see
    /// [`insides`](Self::insides).
    pub(crate) fn withdraw(&self, key: u32) {
        host::point();
        self.region(key).key.store(0, Ordering::SeqCst);
    }

    /// The version of a registration, if the key is valid.
    pub(crate) fn version(&self, key: u32) -> Option<u32> {
        self.version_at(self.keys.index(key), key)
    }

    /// [`version`](Self::version) of a key whose index is known.
    #[inline]
    pub(crate) fn version_at(&self, index: u32, key: u32) -> Option<u32> {
        let entry = &self.regions[index as usize % limits::MAX_KEYS];
        // Acquire: the rest was written before the key.
        let valid = key != 0 && entry.key.load(Ordering::Acquire) == key;
        valid.then(|| entry.version.load(Ordering::Relaxed))
    }

    /// The region with this key, as it was published: a window may be bound anew under the same key
    /// meanwhile.
    pub(crate) fn find(&self, key: u32) -> Option<PublishedRegion> {
        let entry = self.region(key);
        // Acquire: the rest was written before the key.
        let is_valid = || key != 0 && entry.key.load(Ordering::Acquire) == key;
        for _ in 0..FINDS {
            // Acquire: the key is seen as it was then, or later.
            let version = entry.version.load(Ordering::Acquire);
            if !is_valid() {
                return None;
            }
            let found = entry.published(version);
            host::point();
            // Acquire: the other side of the fence in `publish`.
            fence(Ordering::Acquire);
            if is_valid() && entry.version.load(Ordering::Relaxed) == version {
                return Some(found);
            }
        }
        None
    }

    /// The entries in which queue pairs have been.
    pub(crate) fn used_qps(&self) -> &[QpEntry] {
        let used = self.used.load(Ordering::Acquire) as usize;
        &self.qps[..used.min(QPS)]
    }

    /// The words of the queue pairs that may be inside another process's memory.
    pub(crate) fn insides(&self) -> impl Iterator<Item = &AtomicU32> {
        self.used_qps().iter().map(|entry| &*entry.inside)
    }
}

impl RegionEntry {
    /// Reads the entry, which may change meanwhile.
    fn published(&self, version: u32) -> PublishedRegion {
        let file = self.file.load(Ordering::Relaxed).checked_sub(1).map(|fd| InFile {
            fd,
            inode: self.inode.load(Ordering::Relaxed),
            offset: self.offset.load(Ordering::Relaxed),
            split: self.split.load(Ordering::Relaxed),
            second: self.second.load(Ordering::Relaxed),
        });
        let mw_pd = self.mw_pd.load(Ordering::Relaxed);
        let mw = (mw_pd != 0).then(|| PublishedMw {
            pd: mw_pd,
            qpn: self.mw_qpn.load(Ordering::Relaxed),
            region: self.mw_region.load(Ordering::Relaxed),
        });
        PublishedRegion {
            version,
            pd: self.pd.load(Ordering::Relaxed),
            access: self.access.load(Ordering::Relaxed),
            iova: self.iova.load(Ordering::Relaxed),
            length: self.length.load(Ordering::Relaxed),
            addr: self.addr.load(Ordering::Relaxed),
            file,
            mw,
        }
    }
}

impl QpEntry {
    /// The word that says whether it is inside.
    pub(crate) fn inside(&self) -> &AtomicU32 {
        &self.inside
    }

    /// Says that its process is going to access another one's memory; it looks only
    /// afterwards whether it may. One thread at a time: the send queue's lock is held.
    #[inline]
    pub(crate) fn enter(&self, spares_barriers: bool) -> AccessGuard<'_> {
        AccessGuard::enter(&self.inside, spares_barriers)
    }

    /// Reports whether the queue pair may have sent a request of this connection (`incarnation`),
    /// and waits for the reply.
    pub(crate) fn waits_for_reply(&self, incarnation: u8) -> bool {
        // Acquire: the generation was published before the state.
        let state = self.state.load(Ordering::Acquire);
        let sends = [QueuePairState::Rts, QueuePairState::Sqd].iter().any(|s| *s as u32 == state);
        sends && self.generation.load(Ordering::Relaxed) as u8 == incarnation
    }
}

impl<'a> AccessGuard<'a> {
    /// Says so in a word that has this thread as its only writer now.
    #[inline]
    pub(crate) fn enter(inside: &'a AtomicU32, spares_barriers: bool) -> AccessGuard<'a> {
        let word = inside.load(Ordering::Relaxed);
        inside.store(word | 1, Ordering::Relaxed);
        // Either we see that a key or a state is no longer valid, or the process that made
        // it so sees that we are inside, and waits.
        light(spares_barriers);
        host::point();
        AccessGuard(inside)
    }
}

/// While it lives, others wait for us before they take memory away.
#[derive(Debug)]
pub(crate) struct AccessGuard<'a>(&'a AtomicU32);

impl Drop for AccessGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let word = self.0.load(Ordering::Relaxed);
        host::point();
        // Release: our accesses precede it.
        self.0.store(word.wrapping_add(1), Ordering::Release);
    }
}
