//! Objects that requests refer to besides slots: address handles and regions.
//!
//! A device may use an address handle, or the memory of a region, until the request that refers to
//! it has completed. So the queue pair itself keeps both, and the user's handles may be dropped, or
//! forgotten, at any time. A send queue has a [`Directory`] of each, from which requests take plain
//! values, without counting references. The queue pair releases a removed entry when no request can
//! refer to it any more.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use host::sync::Mutex;

use crate::object::ah::AhInner;
use crate::region::registration::Registration;

/// An object that is kept.
#[derive(Clone)]
pub(crate) enum Item {
    Address(Arc<AhInner>),
    Region(Arc<Registration>),
}

impl Item {
    fn is_same(&self, other: &Item) -> bool {
        match (self, other) {
            (Item::Address(a), Item::Address(b)) => Arc::ptr_eq(a, b),
            (Item::Region(a), Item::Region(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// Objects that a queue pair keeps until it has been destroyed, or releases before. The lock is
/// taken when something is attached or released, never to stage or post.
#[derive(Default)]
pub(crate) struct PinnedRefs(Mutex<Vec<Item>>);

impl PinnedRefs {
    pub(crate) fn keep(&self, item: Item) {
        self.0.lock().push(item);
    }

    /// Gives up one of the references to `item`.
    fn release(&self, item: &Item) {
        let mut items = self.0.lock();
        let found = items.iter().position(|kept| kept.is_same(item));
        let released = found.map(|i| items.swap_remove(i));
        // Destroying enters the kernel, so it is done without the lock.
        drop(items);
        drop(released);
    }
}

/// Names an entry of one directory for its lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    index: u32,
    /// A number that no other entry of this process has.
    serial: u64,
}

impl Entry {
    /// Its place in the directory, which is another one's when it was removed.
    pub(crate) fn index(self) -> usize {
        self.index as usize
    }
}

/// Entries of a directory, at most.
pub(crate) const MAX_ENTRIES: u32 = 1 << 24;

/// Entries of one kind, of one send queue. Each has the values for requests (`T`), and the last
/// request that uses it.
pub(crate) struct Directory<T> {
    places: Vec<EntryPlace<T>>,
    free: Vec<u32>,
    /// Serials that are this directory's to give.
    serials: Range<u64>,
}

pub(crate) struct EntryPlace<T> {
    /// The serial of its entry; 0 if it is free.
    serial: u64,
    /// The count of the last request that refers to it.
    pub(crate) last_used: u64,
    pub(crate) value: T,
    /// `None` if it is free, or not kept by the queue pair.
    item: Option<Item>,
}

impl<T> Directory<T> {
    pub(crate) fn new() -> Directory<T> {
        Directory { places: Vec::new(), free: Vec::new(), serials: 0..0 }
    }

    /// Adds an entry, and has `pinned` keep its item; `None` if there are too many.
    pub(crate) fn add(&mut self, pinned: &PinnedRefs, item: Item, value: T) -> Option<Entry> {
        let entry = self.put(Some(item.clone()), value)?;
        pinned.keep(item);
        Some(entry)
    }

    /// Adds an entry for an object that the caller keeps until no request can refer to it any more.
    pub(crate) fn lend(&mut self, value: T) -> Option<Entry> {
        self.put(None, value)
    }

    fn put(&mut self, item: Option<Item>, value: T) -> Option<Entry> {
        let serial = self.serials.next().unwrap_or_else(|| {
            self.serials = next_serials();
            self.serials.next().expect("a block is not empty")
        });
        let place = EntryPlace { serial, last_used: 0, value, item };
        let index = match self.free.pop() {
            Some(index) => {
                self.places[index as usize] = place;
                index
            }
            None => {
                let index = u32::try_from(self.places.len()).ok().filter(|n| *n < MAX_ENTRIES)?;
                self.places.push(place);
                index
            }
        };
        Some(Entry { index, serial })
    }

    /// The place of an entry; `None` if it was removed, or is another directory's.
    #[inline]
    pub(crate) fn get(&mut self, entry: Entry) -> Option<&mut EntryPlace<T>> {
        self.places.get_mut(entry.index as usize).filter(|place| place.serial == entry.serial)
    }

    /// Removes an entry: its item, and the request until which it is needed.
    fn remove(&mut self, entry: Entry) -> Option<(u64, Item)> {
        let place = self.get(entry)?;
        let removed = (place.last_used, place.item.take()?);
        place.serial = 0;
        self.free.push(entry.index);
        Some(removed)
    }

    /// Removes a lent entry, unless a request after `retired` refers to it; returns true if the
    /// entry is gone.
    pub(crate) fn give_back(&mut self, entry: Entry, retired: u64) -> bool {
        match self.get(entry) {
            Some(place) if place.item.is_none() && place.last_used <= retired => {
                place.serial = 0;
                self.free.push(entry.index);
                true
            }
            _ => false,
        }
    }
}

/// A block of serials for one directory, so that directories that change all the time do
/// not contend for the cache line of the count.
fn next_serials() -> Range<u64> {
    const BLOCK: u64 = 1 << 16;
    static LAST: AtomicU64 = AtomicU64::new(1);
    // Relaxed: only the count itself matters. It does not wrap around in a lifetime.
    let first = LAST.fetch_add(BLOCK, Ordering::Relaxed);
    first..first + BLOCK
}

/// Objects that were removed, and may still be in use.
pub(crate) struct Leaving {
    items: Vec<(u64, Item)>,
    /// The first request that releases an object when it is retired; `u64::MAX` if none does.
    pub(crate) next: u64,
}

impl Leaving {
    pub(crate) fn new() -> Leaving {
        Leaving { items: Vec::new(), next: u64::MAX }
    }

    /// Removes an entry of `directory`; returns true if there was one. Its item leaves at
    /// once if the requests that refer to it are retired.
    pub(crate) fn remove<T>(
        &mut self,
        directory: &mut Directory<T>,
        entry: Entry,
        pinned: &PinnedRefs,
        retired: u64,
    ) -> bool {
        let Some((last_used, item)) = directory.remove(entry) else { return false };
        if last_used > retired {
            self.next = self.next.min(last_used);
            self.items.push((last_used, item));
        } else {
            pinned.release(&item);
        }
        true
    }

    /// Lets go of all that no request after `retired` refers to.
    #[cold]
    pub(crate) fn let_go(&mut self, pinned: &PinnedRefs, retired: u64) {
        for (_, item) in self.items.extract_if(.., |(last_used, _)| *last_used <= retired) {
            pinned.release(&item);
        }
        self.next = self.items.iter().map(|(count, _)| *count).min().unwrap_or(u64::MAX);
    }
}
