//! Memory regions by key.
//!
//! A key is the index of a table slot (18 bits) and a variable part (14 bits)
//! drawn from a keyed hash whose key is the process's own: a key that is no
//! longer valid, or was made up, meets another variable part. Slots are reused in
//! the order in which they were freed, as late as possible.
//!
//! Checks take no lock. They happen during an execution, that is, under the lock
//! of some send queue: deregistration first makes the key invalid and then waits
//! for every send queue once ([`Device::quiesce`]). An execution that saw the valid
//! key has finished by then; a later one sees it invalid. Only after that may the slot
//! be filled again, so that a reader that saw its key may read the rest.
//!
//! [`Device::quiesce`]: crate::objects::state::Device::quiesce

use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use parking_lot::Mutex;
use verbs_sys::*;

use crate::fabric::process::directory::PublishedRegion;
use crate::limits;
use crate::objects::span::{Hold, Span};

pub(crate) const INDEX_BITS: u32 = limits::MAX_MR.trailing_zeros();

pub(crate) const CHUNK: usize = 1_024;

pub(crate) const CHUNKS: usize = limits::MAX_MR / CHUNK;

/// Access bits with a meaning here; `LOCAL_WRITE` and the three remote ones.
pub(crate) const LOCAL_WRITE: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;

pub(crate) const REMOTE_WRITE: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;

pub(crate) const REMOTE_READ: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;

pub(crate) const REMOTE_ATOMIC: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;

/// Memory that may be gone when it is accessed. A check finds such a region only if it asks
/// for this flag.
pub(crate) const ON_DEMAND: u32 = ibv_access_flags::IBV_ACCESS_ON_DEMAND.0;

/// One registration, as the data path sees it. `key` 0 is "nothing here".
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Slot {
    pub(crate) key: AtomicU32,
    pub(crate) pd: AtomicU32,
    pub(crate) access: AtomicU32,
    /// First address as work requests name it, and the length in bytes.
    pub(crate) iova: AtomicU64,
    pub(crate) length: AtomicU64,
    /// What is added to such an address to get one of this process.
    pub(crate) delta: AtomicU64,
    /// The key that was valid before `key`.
    pub(crate) previous: AtomicU32,
}

impl Slot {
    /// The region, as it is published to other processes.
    pub(crate) fn published(&self) -> PublishedRegion {
        let iova = self.iova.load(Ordering::Relaxed);
        PublishedRegion {
            version: 0,
            pd: self.pd.load(Ordering::Relaxed),
            access: self.access.load(Ordering::Relaxed),
            iova,
            length: self.length.load(Ordering::Relaxed),
            addr: iova.wrapping_add(self.delta.load(Ordering::Relaxed)),
            file: None,
        }
    }
}

/// A region that may be accessed; the default covers nothing.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct View<'m> {
    iova: u64,
    length: u64,
    delta: u64,
    /// Peers may access it.
    is_shared: bool,
    held: PhantomData<&'m ()>,
}

impl<'m> View<'m> {
    /// Where `addr .. addr + len` is in this process, if the region covers them.
    #[inline(always)]
    pub(crate) fn at(&self, addr: u64, len: u64) -> Option<Span<'m>> {
        let offset = addr.wrapping_sub(self.iova);
        if offset > self.length || len > self.length - offset {
            return None;
        }
        // Exposed: the region was registered by address.
        let ptr = core::ptr::with_exposed_provenance_mut(addr.wrapping_add(self.delta) as usize);
        let len = len as usize;
        // SAFETY: it lies in the region, whose deregistration waits until `'m` is over.
        Some(unsafe { Span::new(ptr, len, self.is_shared) })
    }
}

/// A region and its key.
pub(crate) struct Held<'m> {
    hold: Hold<'m>,
    key: u32,
    view: View<'m>,
}

impl<'m> Held<'m> {
    /// None yet.
    pub(crate) fn new(hold: Hold<'m>) -> Held<'m> {
        Held { hold, key: 0, view: View::default() }
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
    ) -> Option<Span<'m>> {
        if self.key != sge.lkey {
            self.view = mrs.view(self.hold, sge.lkey, pd, access)?;
            self.key = sge.lkey;
        }
        self.view.at(sge.addr, len.into())
    }
}

/// Regions by key.
pub(crate) struct MrTable {
    pub(crate) chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    pub(crate) free: Mutex<FreeSlots>,
    /// Regions are published to other processes; only changed under the lock of `free`.
    pub(crate) is_published: AtomicBool,
    random: RandomState,
}

#[derive(Debug, Default)]
pub(crate) struct FreeSlots {
    pub(crate) freed: VecDeque<u32>,
    pub(crate) never_used: u32,
    drawn: u64,
}

impl Default for MrTable {
    fn default() -> Self {
        MrTable {
            chunks: [const { OnceLock::new() }; CHUNKS],
            free: Mutex::default(),
            is_published: AtomicBool::new(false),
            random: RandomState::new(),
        }
    }
}

impl MrTable {
    #[inline]
    pub(crate) fn slot(&self, key: u32) -> Option<&Slot> {
        let index = key as usize & (limits::MAX_MR - 1);
        Some(&self.chunks[index / CHUNK].get()?[index % CHUNK])
    }

    /// Where `addr .. addr + len` of the region with this key is in this process, if the
    /// region is in the domain, has all of `access` and covers them.
    #[inline]
    pub(crate) fn check<'m>(
        &self,
        hold: Hold<'m>,
        key: u32,
        pd: u32,
        addr: u64,
        len: u64,
        access: u32,
    ) -> Option<Span<'m>> {
        self.view(hold, key, pd, access)?.at(addr, len)
    }

    /// The region with this key, if it is in the domain and has all of `access`. A region
    /// that is on demand is found only if `access` has [`ON_DEMAND`].
    #[inline]
    pub(crate) fn view<'m>(
        &self,
        _hold: Hold<'m>,
        key: u32,
        pd: u32,
        access: u32,
    ) -> Option<View<'m>> {
        let slot = self.slot(key)?;
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
            is_shared: has & (REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC) != 0,
            held: PhantomData,
        })
    }

    /// A key for the slot: not 0, and not the one it had before.
    pub(crate) fn draw(&self, free: &mut FreeSlots, index: u32) -> u32 {
        loop {
            free.drawn += 1;
            let variable = self.random.hash_one(free.drawn) as u32;
            let key = variable << INDEX_BITS | index;
            let previous = self.slot(index).map_or(0, |s| s.previous.load(Ordering::Relaxed));
            if key != 0 && key != previous {
                return key;
            }
        }
    }

    /// Frees the slot of an invalid key, once no thread looks at it any more.
    pub(crate) fn release(&self, key: u32) {
        self.free.lock().freed.push_back(key & (limits::MAX_MR as u32 - 1));
    }
}
