//! Which memory windows there are, and what they are bound to.
//!
//! ```text
//!             bind                        the wait of `Device::settle`
//!   free ──────────────> bound ──> ended ──────────────────────────────> free
//! ```
//!
//! A binding ends at once for requests that begin afterwards. Those that are under way may go on
//! under the old key for a while, as with a region that is deregistered: until they are known to be
//! over, the window has ended and is not yet free, and nothing else is bound to it. Endings are
//! counted, and a wait settles all of those before it.

use std::collections::{BTreeMap, BTreeSet};

/// A memory window.
#[derive(Debug)]
pub(crate) struct MwState {
    /// Never reused: what names a window that is gone names none.
    pub(crate) id: u64,
    pub(crate) pd: u32,
    /// It is bound to a queue pair, whose peer alone may name it, and the consumer chooses the tag
    /// of its key.
    pub(crate) is_type_2: bool,
    binding: Option<Binding>,
    /// Which ending was its last one.
    ended: u64,
}

/// What a memory window is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Binding {
    /// That of the window.
    pub(crate) key: u32,
    /// The index of the region.
    pub(crate) region: u32,
    /// Of type 2, the queue pair; 0 otherwise.
    pub(crate) qpn: u32,
}

/// The memory windows of a device, by the indices of their slots.
#[derive(Debug, Default)]
pub(crate) struct Mws {
    all: BTreeMap<u32, MwState>,
    next_id: u64,
    /// Pairs of a region, or a queue pair, and the window that is bound to it.
    by_region: BTreeSet<(u32, u32)>,
    by_qp: BTreeSet<(u32, u32)>,
    /// Bindings that have ended, and those of them under which nothing goes on any more:
    /// `settled <= ended`.
    ended: u64,
    settled: u64,
}

impl Mws {
    /// A new window, which is free; its `id`.
    pub(crate) fn add(&mut self, index: u32, pd: u32, is_type_2: bool) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.all.insert(index, MwState { id, pd, is_type_2, binding: None, ended: 0 });
        id
    }

    /// The window is gone, unless it is bound.
    pub(crate) fn remove(&mut self, index: u32) -> bool {
        let is_free = self.binding(index).is_none();
        is_free && self.all.remove(&index).is_some()
    }

    pub(crate) fn get(&self, index: u32) -> Option<&MwState> {
        self.all.get(&index)
    }

    pub(crate) fn binding(&self, index: u32) -> Option<Binding> {
        self.all.get(&index)?.binding
    }

    /// Binds a free window.
    pub(crate) fn bind(&mut self, index: u32, binding: Binding) {
        let Some(state) = self.all.get_mut(&index) else { return };
        state.binding = Some(binding);
        self.by_region.insert((binding.region, index));
        if binding.qpn != 0 {
            self.by_qp.insert((binding.qpn, index));
        }
    }

    /// The binding of a window ends; which one it was.
    pub(crate) fn end(&mut self, index: u32) -> Option<Binding> {
        let state = self.all.get_mut(&index)?;
        let binding = state.binding.take()?;
        self.ended += 1;
        state.ended = self.ended;
        self.by_region.remove(&(binding.region, index));
        self.by_qp.remove(&(binding.qpn, index));
        Some(binding)
    }

    /// What a window that is not bound waits for before it is free, if it does.
    pub(crate) fn unsettled(&self, index: u32) -> Option<u64> {
        let ended = self.all.get(&index)?.ended;
        (!self.is_settled(ended)).then_some(ended)
    }

    pub(crate) fn is_settled(&self, ended: u64) -> bool {
        ended <= self.settled
    }

    /// How many bindings have ended: a wait that begins now settles them.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// A wait for these is over.
    pub(crate) fn settle(&mut self, ended: u64) {
        self.settled = self.settled.max(ended);
    }

    /// Whether windows are bound to a region.
    pub(crate) fn are_bound_to(&self, region: u32) -> bool {
        self.by_region.range((region, 0)..=(region, u32::MAX)).next().is_some()
    }

    /// A window that is bound to a queue pair, if there is one.
    pub(crate) fn any_of_qp(&self, qpn: u32) -> Option<u32> {
        self.by_qp.range((qpn, 0)..=(qpn, u32::MAX)).next().map(|(_, index)| *index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_settles_what_had_ended_when_it_began() {
        let mut mws = Mws::default();
        let binding = Binding { key: 1, region: 2, qpn: 3 };
        for index in [7, 8] {
            mws.add(index, 1, true);
            mws.bind(index, binding);
        }
        assert!(mws.are_bound_to(2) && !mws.are_bound_to(1) && !mws.are_bound_to(3));
        assert_eq!((mws.any_of_qp(3), mws.any_of_qp(2)), (Some(7), None));
        assert!(!mws.remove(7), "it is bound");
        assert_eq!((mws.end(7), mws.end(7)), (Some(binding), None));
        let before = mws.ended();
        assert!(mws.end(8).is_some() && !mws.are_bound_to(2));
        mws.settle(before);
        assert_eq!((mws.unsettled(7), mws.unsettled(8)), (None, Some(2)));
        mws.settle(mws.ended());
        // A wait that began earlier, and is over later, takes nothing back.
        mws.settle(before);
        assert_eq!(mws.unsettled(8), None);
        assert!(mws.remove(8) && !mws.remove(8));
    }
}
