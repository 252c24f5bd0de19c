//! The regions of a peer that a queue pair has named.

use std::sync::{Arc, Weak};

use crate::memory::published::PublishedRegion;
use crate::peers::process::pair::ProcessPair;
use crate::peers::process::region::MappedWindow;

/// A peer's region, and where it is mapped (`W`) if it is.
#[derive(Debug)]
pub(crate) struct PeerRegion<W> {
    key: u32,
    /// The index of its key.
    index: u32,
    pub(crate) published: PublishedRegion,
    pub(crate) window: Option<W>,
}

impl<W> PeerRegion<W> {
    #[inline]
    fn is(&self, key: u32, version: u32) -> bool {
        self.key == key && self.published.version == version
    }
}

impl PeerRegion<Weak<MappedWindow>> {
    /// The region to be accessed, unless it was unmapped.
    fn recalled(&self) -> Option<PeerRegion<Arc<MappedWindow>>> {
        let window = match &self.window {
            Some(window) => Some(window.upgrade()?),
            None => None,
        };
        Some(PeerRegion { key: self.key, index: self.index, published: self.published, window })
    }
}

/// The regions that a queue pair has named. The last two are at hand: data go to one, and what
/// tells of them to another, and neither touches a count that others do. Those before them are
/// known, so that a peer that offers many buffers in turn has them all looked up once; what it
/// takes away is not kept mapped for that.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    at_hand: [Option<PeerRegion<Arc<MappedWindow>>>; 2],
    known: KnownRegions,
}

impl Regions {
    /// The index of a key.
    #[inline]
    pub(crate) fn index(&self, pair: &ProcessPair, key: u32) -> u32 {
        match &self.at_hand {
            [Some(first), _] if first.key == key => first.index,
            [_, Some(second)] if second.key == key => second.index,
            _ => pair.theirs.keys.index(key),
        }
    }

    /// The region of a key, which has this index, in this version, if the peer has it.
    #[inline]
    pub(crate) fn get(
        &mut self,
        pair: &ProcessPair,
        (index, key): (u32, u32),
        version: u32,
    ) -> Option<&PeerRegion<Arc<MappedWindow>>> {
        let at = self.find(pair, (index, key), version)?;
        self.at(at)
    }

    /// [`get`](Self::get): which of those at hand it is.
    #[inline(always)]
    pub(crate) fn find(
        &mut self,
        pair: &ProcessPair,
        (index, key): (u32, u32),
        version: u32,
    ) -> Option<usize> {
        let is_it = |slot: &Option<PeerRegion<_>>| {
            slot.as_ref().is_some_and(|region| region.is(key, version))
        };
        match &self.at_hand {
            [first, _] if is_it(first) => Some(0),
            [_, second] if is_it(second) => Some(1),
            _ => self.recall(pair, (index, key), version),
        }
    }

    /// One of those at hand.
    #[inline(always)]
    pub(crate) fn at(&self, at: usize) -> Option<&PeerRegion<Arc<MappedWindow>>> {
        self.at_hand[at].as_ref()
    }

    /// Brings a region to hand; where it is.
    #[inline(never)]
    fn recall(
        &mut self,
        pair: &ProcessPair,
        (index, key): (u32, u32),
        version: u32,
    ) -> Option<usize> {
        let region = match self.known.get(index, key, version).and_then(PeerRegion::recalled) {
            Some(region) => region,
            None => self.look_up(pair, index, key).filter(|region| region.is(key, version))?,
        };
        self.at_hand.rotate_right(1);
        self.at_hand[0] = Some(region);
        Some(0)
    }

    /// Looks a region up that is not known, or was unmapped in favour of others since.
    #[cold]
    fn look_up(
        &mut self,
        pair: &ProcessPair,
        index: u32,
        key: u32,
    ) -> Option<PeerRegion<Arc<MappedWindow>>> {
        let published = pair.theirs.find(key)?;
        let window = pair.window(key, &published);
        let weak = window.as_ref().map(Arc::downgrade);
        let known = PeerRegion { key, index, published, window: weak };
        let is_valid =
            |other: &PeerRegion<_>| pair.theirs.version(other.key) == Some(other.published.version);
        self.known.put(known, is_valid);
        Some(PeerRegion { key, index, published, window })
    }

    /// Forgets them all.
    pub(crate) fn clear(&mut self) {
        *self = Regions::default();
    }
}

/// Regions, each in the slot that its index has. There are as many slots as that takes, up to a
/// limit.
#[derive(Debug, Default)]
pub(crate) struct KnownRegions(Vec<Option<PeerRegion<Weak<MappedWindow>>>>);

impl KnownRegions {
    const FIRST: usize = 4;
    const MOST: usize = 64;

    /// The region of a key, if it is known in this version.
    fn get(&self, index: u32, key: u32, version: u32) -> Option<&PeerRegion<Weak<MappedWindow>>> {
        let at = index as usize & self.0.len().wrapping_sub(1);
        self.0.get(at)?.as_ref().filter(|region| region.is(key, version))
    }

    /// Adds a region, instead of another one only if there can be no more of them.
    #[cold]
    fn put(
        &mut self,
        region: PeerRegion<Weak<MappedWindow>>,
        is_valid: impl Fn(&PeerRegion<Weak<MappedWindow>>) -> bool,
    ) {
        if self.0.is_empty() {
            self.0.resize_with(Self::FIRST, || None);
        }
        loop {
            let at = region.index as usize & (self.0.len() - 1);
            let other = self.0[at].as_ref().filter(|other| other.key != region.key);
            if self.0.len() == Self::MOST || !other.is_some_and(&is_valid) {
                self.0[at] = Some(region);
                return;
            }
            self.grow();
        }
    }

    /// Twice the slots. Whatever had one of its own has one of its own.
    fn grow(&mut self) {
        let more = 2 * self.0.len();
        let regions = std::mem::take(&mut self.0);
        // Bounded: `MOST` slots.
        self.0.resize_with(more, || None);
        for region in regions.into_iter().flatten() {
            let at = region.index as usize & (more - 1);
            self.0[at] = Some(region);
        }
    }
}

#[cfg(test)]
impl Regions {
    /// Reports whether a region is found, and mapped.
    pub(crate) fn is_mapped(&mut self, pair: &ProcessPair, key: u32, version: u32) -> bool {
        let index = self.index(pair, key);
        self.get(pair, (index, key), version).is_some_and(|region| region.window.is_some())
    }
}

#[cfg(test)]
mod tests;
