//! The memory windows that exist, and what they are bound to.
//!
//! ```text
//!             bind                        `Device::try_settle`
//!   free ──────────────> bound ──> ended ──────────────────────> free
//! ```
//!
//! A binding ends at once for requests that begin afterwards. Those that are under way may continue
//! under the old key for a while, as with a region that is deregistered: until they are known to be
//! over, the window has ended and is not yet free, and it is bound to nothing else. An ending says
//! which requests these can be, so that no others are waited for.

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
    /// The last one, unless no access is under way under that key any more.
    ending: Option<BindingEnd>,
}

/// Binding of a memory window to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Binding {
    /// That of the window.
    pub(crate) key: u32,
    /// The index of the region.
    pub(crate) region: u32,
    /// The queue pair, for a window of type 2; 0 otherwise.
    pub(crate) qpn: u32,
    /// That one's peer, if no other queue pair can use the window; 0 otherwise.
    pub(crate) peer: u32,
}

/// The end of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BindingEnd {
    /// No other has it.
    pub(crate) number: u64,
    /// The index of the window, and its domain.
    pub(crate) index: u32,
    pub(crate) pd: u32,
    /// As of the binding.
    pub(crate) qpn: u32,
    pub(crate) peer: u32,
}

/// The memory windows of a device, by the indices of their slots.
#[derive(Debug, Default)]
pub(crate) struct Mws {
    all: BTreeMap<u32, MwState>,
    next_id: u64,
    /// Pairs of a region, or a queue pair, and the window that is bound to it.
    by_region: BTreeSet<(u32, u32)>,
    by_qp: BTreeSet<(u32, u32)>,
    /// Number of bindings that have ended.
    ended: u64,
}

impl Mws {
    /// Adds a window, which is free; returns its `id`.
    pub(crate) fn add(&mut self, index: u32, pd: u32, is_type_2: bool) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.all.insert(index, MwState { id, pd, is_type_2, binding: None, ending: None });
        id
    }

    /// The window is gone, if it is free.
    pub(crate) fn remove(&mut self, index: u32) -> bool {
        let is_free = self.binding(index).is_none() && self.ending(index).is_none();
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
        let (number, Binding { qpn, peer, .. }) = (self.ended, binding);
        state.ending = Some(BindingEnd { number, index, pd: state.pd, qpn, peer });
        self.by_region.remove(&(binding.region, index));
        self.by_qp.remove(&(binding.qpn, index));
        Some(binding)
    }

    /// The ending that a window which is not bound waits for before it is free, if it does.
    pub(crate) fn ending(&self, index: u32) -> Option<BindingEnd> {
        self.all.get(&index)?.ending
    }

    pub(crate) fn is_settled(&self, ending: &BindingEnd) -> bool {
        self.ending(ending.index) != Some(*ending)
    }

    /// Records that no access is under way any more under the key of this ending.
    pub(crate) fn settle(&mut self, ending: &BindingEnd) {
        if let Some(state) = self.all.get_mut(&ending.index) {
            state.ending.take_if(|last| last == ending);
        }
    }

    /// Reports whether windows are bound to a region.
    pub(crate) fn are_bound_to(&self, region: u32) -> bool {
        self.by_region.range((region, 0)..=(region, u32::MAX)).next().is_some()
    }

    /// A window that is bound to a queue pair, if there is one.
    pub(crate) fn any_of_qp(&self, qpn: u32) -> Option<u32> {
        self.by_qp.range((qpn, 0)..=(qpn, u32::MAX)).next().map(|(_, index)| *index)
    }
}

#[cfg(test)]
mod tests;
