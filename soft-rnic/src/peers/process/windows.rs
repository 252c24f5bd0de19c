//! The regions of other processes that are mapped here: how many, and which of them are kept.
//!
//! A process of the same user can register as many regions as it likes and name them all. What
//! it has mapped here is bounded for each process and for all together; beyond that the least
//! recently used go, and are mapped again when they are named again. What finds no slot because all
//! that is mapped is in use is attached to instead.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use host::sync::Mutex;

use super::budget::{BUDGET, BYTES, Share, WINDOWS};
use super::region::MappedWindow;

/// Regions of one process that are kept mapped. A region takes two mappings at most, so that one
/// process takes at most a quarter of those that the kernel grants (`vm.max_map_count`, 65,530).
pub(crate) const WINDOWS_PER_PEER: usize = 8_192;
/// Bytes of one process's regions that are kept mapped: an eighth of the addresses that a process
/// has (128 TiB), so that the bytes of several peers fit.
const BYTES_PER_PEER: u64 = 16 << 40;
/// Regions of a process that are kept mapped, and their bytes, before those are looked for that
/// are registered no more: the system keeps their memory as long as they are mapped.
const SWEEP_WINDOWS: usize = 64;
const SWEEP_BYTES: u64 = 64 << 20;

impl Share {
    /// For a window of `len` bytes: others are unmapped for it if they have to be. None if it is
    /// too long, or if all that is mapped is in use.
    pub(super) fn take(len: u64) -> Option<Share> {
        if len > BYTES_PER_PEER {
            return None;
        }
        while !BUDGET.take(len) {
            if !make_room() {
                return None;
            }
        }
        Some(Share(len))
    }
}

/// The regions of one process that are kept mapped.
#[derive(Debug)]
pub(super) struct Windows {
    by_key: HashMap<u32, CachedWindow>,
    /// Keys, the least recently used first.
    by_use: BTreeMap<u64, u32>,
    /// Counts uses.
    clock: u64,
    /// Bytes of all of them.
    bytes: u64,
    /// Numbers of windows and of bytes at which they are looked through.
    sweep_at: (usize, u64),
}

#[derive(Debug)]
struct CachedWindow {
    window: Arc<MappedWindow>,
    /// Time of its last use, as `clock` counts it.
    used: u64,
}

/// Those of all processes.
static ALL: Mutex<Vec<Weak<Mutex<Windows>>>> = Mutex::new(Vec::new());

impl Windows {
    pub(super) fn new() -> Arc<Mutex<Windows>> {
        let windows = Arc::new(Mutex::new(Windows {
            by_key: HashMap::new(),
            by_use: BTreeMap::new(),
            clock: 0,
            bytes: 0,
            sweep_at: (SWEEP_WINDOWS, SWEEP_BYTES),
        }));
        let mut all = ALL.lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&windows));
        windows
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns its share of all that may be mapped, in slots or in bytes, whichever is more.
    fn weight(&self) -> u64 {
        const BYTES_OF_A_SLOT: u64 = BYTES / WINDOWS as u64;
        self.bytes.max(self.by_key.len() as u64 * BYTES_OF_A_SLOT)
    }

    /// The window of a key, which is the most recently used one from now on.
    pub(super) fn get(&mut self, key: u32) -> Option<&Arc<MappedWindow>> {
        let Windows { by_key, by_use, clock, .. } = self;
        let kept = by_key.get_mut(&key)?;
        by_use.remove(&kept.used);
        *clock += 1;
        kept.used = *clock;
        by_use.insert(*clock, key);
        Some(&kept.window)
    }

    /// Keeps a window, in the place of the least recently used ones if there are too many.
    pub(super) fn insert(&mut self, key: u32, window: Arc<MappedWindow>) {
        self.remove(key);
        self.bytes += window.len;
        self.clock += 1;
        self.by_use.insert(self.clock, key);
        self.by_key.insert(key, CachedWindow { window, used: self.clock });
        while self.by_key.len() > WINDOWS_PER_PEER || self.bytes > BYTES_PER_PEER {
            let Some((_, oldest)) = self.by_use.first_key_value() else { return };
            self.remove(*oldest);
        }
    }

    fn remove(&mut self, key: u32) {
        if let Some(kept) = self.by_key.remove(&key) {
            self.by_use.remove(&kept.used);
            self.bytes -= kept.window.len;
        }
    }

    /// Unmaps those that are not valid, if it is time.
    pub(super) fn sweep(&mut self, is_valid: impl Fn(u32, &MappedWindow) -> bool) {
        if self.by_key.len() < self.sweep_at.0 && self.bytes < self.sweep_at.1 {
            return;
        }
        let gone =
            |(key, kept): (&u32, &CachedWindow)| (!is_valid(*key, &kept.window)).then_some(*key);
        let gone: Vec<u32> = self.by_key.iter().filter_map(gone).collect();
        gone.into_iter().for_each(|key| self.remove(key));
        self.sweep_at = (SWEEP_WINDOWS.max(2 * self.by_key.len()), SWEEP_BYTES.max(2 * self.bytes));
    }

    /// Unmaps the least recently used one that is not in use; returns true if there was one.
    fn evict(&mut self) -> bool {
        let is_idle = |key: &&u32| Arc::strong_count(&self.by_key[key].window) == 1;
        let oldest = self.by_use.values().find(is_idle).copied();
        oldest.map(|key| self.remove(key)).is_some()
    }

    pub(super) fn clear(&mut self) {
        (self.by_key, self.by_use, self.bytes) = (HashMap::new(), BTreeMap::new(), 0);
    }
}

/// Makes room: the process that has most mapped loses its least recently used region, so that
/// none takes the slots of all others. Returns true if one was unmapped.
#[cold]
fn make_room() -> bool {
    let mut all: Vec<_> = ALL.lock().iter().filter_map(Weak::upgrade).collect();
    all.sort_by_cached_key(|windows| core::cmp::Reverse(windows.lock().weight()));
    all.iter().any(|windows| windows.lock().evict())
}
