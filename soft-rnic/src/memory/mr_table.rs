//! Memory regions by key.
//!
//! A key names a slot of the table (`memory::keys`): one that is no longer valid, or was made up,
//! meets another key there, or none. Slots are reused in the order in which they were freed, as
//! late as possible.
//!
//! Checks take no lock. They happen during an execution, that is, under the lock
//! of some send queue: deregistration first makes the key invalid and then waits
//! for every send queue once ([`Device::quiesce`]). An execution that saw the valid
//! key has finished by then; a later one sees it invalid. Only after that may the slot
//! be filled again, so that a reader that saw its key may read the rest. (The slot of a memory
//! window is filled again by another binding of it: its readers look twice.)
//!
//! [`Device::quiesce`]: crate::objects::state::Device::quiesce

use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use host::sync::OnceLock;
use std::collections::VecDeque;

use host::sync::Mutex;
use rustix::io::Errno;
use verbs_sys::*;

use crate::alloc::{self, OutOfMemory};
use crate::memory::keys::KeyCache;
use crate::memory::mws::Mws;
use crate::memory::null_memory;
use crate::memory::published::{PublishedMw, PublishedRegion};
use crate::memory::span::{Hold, MemSpan};
use crate::{errno, limits};

pub(crate) const CHUNK: usize = 1_024;

pub(crate) const CHUNKS: usize = limits::MAX_KEYS / CHUNK;

/// A freed slot is used again when this number of them are free, or no other one is left.
const RESTING: usize = CHUNK;

/// Access bits with a meaning here; `LOCAL_WRITE` and the three remote ones.
pub(crate) const LOCAL_WRITE: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;

pub(crate) const REMOTE_WRITE: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;

pub(crate) const REMOTE_READ: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;

pub(crate) const REMOTE_ATOMIC: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;

/// Memory that may be gone when it is accessed. A check finds such a region only if it asks
/// for this flag.
pub(crate) const ON_DEMAND: u32 = ibv_access_flags::IBV_ACCESS_ON_DEMAND.0;

/// Memory windows may be bound to the region: then peers may access it, whatever else it permits.
pub(crate) const MW_BIND: u32 = ibv_access_flags::IBV_ACCESS_MW_BIND.0;

/// A region that others may access has one of these: peers, or the program by another region of the
/// same device memory, and by the copies that it has for that.
const SHARED: u32 = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | MW_BIND | DEVICE_MEMORY;

/// A region of device memory.
pub(crate) const DEVICE_MEMORY: u32 = 1 << 29;

/// A memory window. As of a null region, its `pd` is 0, and only peers name it.
pub(crate) const MW: u32 = 1 << 30;

/// A null region. Its `pd` is 0, which is no domain's, so that it is only looked at where no other
/// region was found.
pub(crate) const NULL: u32 = 1 << 31;

/// One registration, as the data path sees it. `key` 0 is "nothing here".
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct MrSlot {
    pub(crate) key: AtomicU32,
    pub(crate) pd: AtomicU32,
    pub(crate) access: AtomicU32,
    /// First address as work requests name it, and the length in bytes.
    pub(crate) iova: AtomicU64,
    pub(crate) length: AtomicU64,
    /// Difference that is added to such an address to get one of this process.
    pub(crate) delta: AtomicU64,
    /// The domain of a null region, or of a memory window.
    pub(crate) owner: AtomicU32,
    /// For a memory window: the only queue pair at which its peer may name the window, or 0 for all
    /// in the domain; and the key of its region.
    pub(crate) qpn: AtomicU32,
    pub(crate) region: AtomicU32,
    /// Times that a memory window was bound here.
    pub(crate) bindings: AtomicU32,
    /// Number of keys that it has had.
    generation: AtomicU32,
}

const _: () = assert!(size_of::<MrSlot>() == 64);

impl MrSlot {
    /// The entry of the region for other processes.
    pub(crate) fn published(&self) -> PublishedRegion {
        let (iova, access) =
            (self.iova.load(Ordering::Relaxed), self.access.load(Ordering::Relaxed));
        PublishedRegion {
            version: 0,
            pd: self.pd.load(Ordering::Relaxed),
            // None of a null region's: it is only read, in place of the sender.
            access: if access & NULL != 0 { 0 } else { access & !(MW | DEVICE_MEMORY) },
            iova,
            length: self.length.load(Ordering::Relaxed),
            addr: iova.wrapping_add(self.delta.load(Ordering::Relaxed)),
            file: None,
            mw: (access & MW != 0).then(|| PublishedMw {
                pd: self.owner.load(Ordering::Relaxed),
                qpn: self.qpn.load(Ordering::Relaxed),
                region: self.region.load(Ordering::Relaxed),
            }),
        }
    }
}

/// A region that may be accessed; the default covers nothing.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct View<'m> {
    iova: u64,
    length: u64,
    delta: u64,
    /// Others may access it.
    is_shared: bool,
    held: PhantomData<&'m ()>,
}

impl<'m> View<'m> {
    /// The memory of this process that `addr .. addr + len` names, if the region covers it.
    #[inline(always)]
    pub(crate) fn at(&self, addr: u64, len: u64) -> Option<MemSpan<'m>> {
        let offset = addr.wrapping_sub(self.iova);
        if offset > self.length || len > self.length - offset {
            return None;
        }
        // Exposed: the region was registered by address.
        let ptr = core::ptr::with_exposed_provenance_mut(addr.wrapping_add(self.delta) as usize);
        let len = len as usize;
        // SAFETY: it lies in the region, whose deregistration waits until `'m` is over.
        Some(unsafe { MemSpan::new(ptr, len, self.is_shared) })
    }
}

/// A region and its key.
pub(crate) struct HeldRegion<'m> {
    hold: Hold<'m>,
    key: u32,
    view: View<'m>,
}

impl<'m> HeldRegion<'m> {
    /// None yet.
    pub(crate) fn new(hold: Hold<'m>) -> HeldRegion<'m> {
        HeldRegion { hold, key: 0, view: View::default() }
    }

    /// A piece of memory that the key permits to access.
    #[inline(always)]
    pub(crate) fn at(
        &mut self,
        mrs: &MrTable,
        pd: u32,
        sge: &ibv_sge,
        len: u32,
        access: u32,
    ) -> Option<MemSpan<'m>> {
        if self.key != sge.lkey {
            self.view = mrs.view(self.hold, sge.lkey, pd, access)?;
            self.key = sge.lkey;
        }
        self.view.at(sge.addr, len.into())
    }
}

/// Regions by key.
pub(crate) struct MrTable {
    pub(crate) chunks: [OnceLock<Box<[MrSlot]>>; CHUNKS],
    pub(crate) free: Mutex<FreeSlots>,
    /// Regions are published to other processes; only changed under the lock of `free`.
    pub(crate) is_published: AtomicBool,
    pub(crate) keys: KeyCache,
}

#[derive(Debug, Default)]
pub(crate) struct FreeSlots {
    freed: VecDeque<u32>,
    pub(crate) never_used: u32,
    pub(crate) mws: Mws,
}

impl Default for MrTable {
    fn default() -> Self {
        MrTable {
            chunks: [const { OnceLock::new() }; CHUNKS],
            free: Mutex::default(),
            is_published: AtomicBool::new(false),
            keys: KeyCache::default(),
        }
    }
}

impl FreeSlots {
    #[cfg(feature = "simulation")]
    fn used(&self) -> usize {
        self.never_used as usize - self.freed.len()
    }
}

impl MrTable {
    /// The slot that a key is of, if it is valid.
    pub(crate) fn slot(&self, key: u32) -> Option<&MrSlot> {
        self.slot_at(self.keys.index(key))
    }

    #[inline(always)]
    pub(crate) fn slot_at(&self, index: u32) -> Option<&MrSlot> {
        let index = index as usize & (limits::MAX_KEYS - 1);
        Some(&self.chunks[index / CHUNK].get()?[index % CHUNK])
    }

    /// Slots in use.
    #[cfg(feature = "simulation")]
    pub(crate) fn used(&self) -> usize {
        self.free.lock().used()
    }

    /// Takes a slot; a new key of it is not valid until it is put there.
    pub(crate) fn take(&self, free: &mut FreeSlots) -> Result<(u32, &MrSlot), Errno> {
        let index = free.next().ok_or(errno::ENOMEM)?;
        let slot = self.place(index)?;
        free.take()?;
        Ok((self.draw(index, slot), slot))
    }

    /// The place of a slot, which is made if it is the first of a chunk. The table's lock is held.
    fn place(&self, index: u32) -> Result<&MrSlot, OutOfMemory> {
        let chunk = &self.chunks[index as usize / CHUNK];
        let chunk = match chunk.get() {
            Some(chunk) => chunk,
            None => {
                let slots = alloc::filled(CHUNK, MrSlot::default)?.into_boxed_slice();
                chunk.get_or_init(|| slots)
            }
        };
        Ok(&chunk[index as usize % CHUNK])
    }

    /// The next key of a slot. The table's lock is held.
    pub(crate) fn draw(&self, index: u32, slot: &MrSlot) -> u32 {
        loop {
            let generation = slot.generation.load(Ordering::Relaxed).wrapping_add(1);
            slot.generation.store(generation, Ordering::Relaxed);
            let key = self.keys.key(index, generation);
            if key != 0 {
                return key;
            }
        }
    }

    /// The memory of this process that `addr .. addr + len` of the region with this key names, if
    /// the region is in the domain, has all of `access` and covers it.
    #[inline]
    pub(crate) fn check<'m>(
        &self,
        hold: Hold<'m>,
        key: u32,
        pd: u32,
        addr: u64,
        len: u64,
        access: u32,
    ) -> Option<MemSpan<'m>> {
        let index = self.keys.known(key);
        match index.and_then(|index| self.view_at(hold, index, key, pd, access)) {
            Some(view) => view.at(addr, len),
            None => self.check_rare(hold, key, pd, addr, len, access),
        }
    }

    /// [`check`](Self::check) of a key that may not be among the latest, or be a null region's.
    /// One call for both, at the end: in the midst of the other it has that keep its registers on
    /// the stack.
    #[cold]
    #[inline(never)]
    fn check_rare<'m>(
        &self,
        hold: Hold<'m>,
        key: u32,
        pd: u32,
        addr: u64,
        len: u64,
        access: u32,
    ) -> Option<MemSpan<'m>> {
        match self.view(hold, key, pd, access) {
            Some(view) => view.at(addr, len),
            None => self.null(hold, key, pd, len, access),
        }
    }

    /// A piece of a null region with this key, if it is in the domain.
    fn null<'m>(
        &self,
        _hold: Hold<'m>,
        key: u32,
        pd: u32,
        len: u64,
        access: u32,
    ) -> Option<MemSpan<'m>> {
        let slot = self.slot(key)?;
        // Acquire: as in `view`.
        let is_valid = key != 0 && slot.key.load(Ordering::Acquire) == key;
        let is_null = slot.access.load(Ordering::Relaxed) & NULL != 0;
        let ours = slot.owner.load(Ordering::Relaxed) == pd;
        if !is_valid || !is_null || !ours || access & !LOCAL_WRITE != 0 {
            return None;
        }
        null_memory::piece(len, access == LOCAL_WRITE)
    }

    /// The region with this key, if it is in the domain and has all of `access`. A region
    /// that is on demand is found only if `access` has [`ON_DEMAND`].
    #[inline]
    pub(crate) fn view<'m>(
        &self,
        hold: Hold<'m>,
        key: u32,
        pd: u32,
        access: u32,
    ) -> Option<View<'m>> {
        self.view_at(hold, self.keys.index(key), key, pd, access)
    }

    #[inline(always)]
    fn view_at<'m>(
        &self,
        _hold: Hold<'m>,
        index: u32,
        key: u32,
        pd: u32,
        access: u32,
    ) -> Option<View<'m>> {
        let slot = self.slot_at(index)?;
        // Acquire: the other fields were written before the key. They do not
        // change while we hold a send queue (see the module).
        if slot.key.load(Ordering::Acquire) != key || key == 0 {
            return None;
        }
        let has = slot.access.load(Ordering::Relaxed);
        let allowed = has & (access | ON_DEMAND) == access;
        let ours = slot.pd.load(Ordering::Relaxed) == pd;
        (allowed && ours).then(|| View {
            iova: slot.iova.load(Ordering::Relaxed),
            length: slot.length.load(Ordering::Relaxed),
            delta: slot.delta.load(Ordering::Relaxed),
            is_shared: has & SHARED != 0,
            held: PhantomData,
        })
    }

    /// The memory of this process that `addr .. addr + len` of the memory window with this key
    /// names, if `qpn` of this domain may name it, and it has all of `access` and covers them; and
    /// whether its region is on demand. No other check finds it.
    #[cold]
    pub(crate) fn check_mw<'m>(
        &self,
        _hold: Hold<'m>,
        key: u32,
        (pd, qpn): (u32, u32),
        (addr, len): (u64, u64),
        access: u32,
    ) -> Option<(MemSpan<'m>, bool)> {
        let slot = self.slot(key)?;
        // A queue pair that may not name the window is not waited for: it can be bound anew
        // meanwhile. Acquire: the key is seen as it was then, or later.
        let binding = slot.bindings.load(Ordering::Acquire);
        // Acquire: as in `view`.
        let is_valid = || key != 0 && slot.key.load(Ordering::Acquire) == key;
        if !is_valid() {
            return None;
        }
        let (has, access) = (slot.access.load(Ordering::Relaxed), access | MW);
        let allowed = has & access == access;
        let bound_to = slot.qpn.load(Ordering::Relaxed);
        let ours = slot.owner.load(Ordering::Relaxed) == pd && (bound_to == 0 || bound_to == qpn);
        let view = View {
            iova: slot.iova.load(Ordering::Relaxed),
            length: slot.length.load(Ordering::Relaxed),
            delta: slot.delta.load(Ordering::Relaxed),
            is_shared: true,
            held: PhantomData,
        };
        // Acquire: the other side of the fence in `MrSlot::fill_mw`.
        fence(Ordering::Acquire);
        let is_it = is_valid() && slot.bindings.load(Ordering::Relaxed) == binding;
        let found = if is_it && allowed && ours { view.at(addr, len) } else { None };
        found.map(|span| (span, has & ON_DEMAND != 0))
    }

    /// Frees the slot of an invalid key, once no thread looks at it any more.
    pub(crate) fn release(&self, key: u32) {
        self.free.lock().give_back(self.keys.index(key));
    }
}

impl FreeSlots {
    /// As [`release`](MrTable::release).
    pub(crate) fn give_back(&mut self, index: u32) {
        self.freed.push_back(index);
    }

    /// The one that is taken next.
    fn next(&self) -> Option<u32> {
        if self.is_fresh_next() { Some(self.never_used) } else { self.freed.front().copied() }
    }

    fn is_fresh_next(&self) -> bool {
        self.freed.len() < RESTING && (self.never_used as usize) < limits::MAX_KEYS
    }

    /// Takes it. Whatever is taken can be given back without an allocation.
    fn take(&mut self) -> Result<(), OutOfMemory> {
        if self.is_fresh_next() {
            let taken = self.never_used as usize + 1 - self.freed.len();
            self.freed.try_reserve(taken).map_err(|_| OutOfMemory)?;
            self.never_used += 1;
        } else {
            self.freed.pop_front();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
