//! Memory windows by key: binding them to regions, and ending that.
//!
//! A window has a slot of the table of regions, and a key of it that is valid while it is bound.
//! Everything here happens under the table's lock, which no other one is taken under; whether
//! accesses are over is looked at without it (`objects::mw_settle`).

use core::sync::atomic::{Ordering, fence};

use rustix::io::Errno;

use crate::errno;
use crate::memory::keys::TAG;
use crate::memory::mr_table::{
    FreeSlots, LOCAL_WRITE, MW, MW_BIND, MrSlot, MrTable, NULL, ON_DEMAND, REMOTE_ATOMIC,
    REMOTE_READ, REMOTE_WRITE,
};
use crate::memory::mws::{Binding, BindingEnd};
use crate::objects::mr::ZERO_BASED;
use crate::objects::state::PeerProcesses;

const REMOTE: u32 = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;

/// A request to bind a window.
pub(crate) struct BindRequest {
    /// Identifies the window.
    pub(crate) id: u64,
    /// Its key from now on, which leads to its slot.
    pub(crate) key: u32,
    /// The key of a region, or 0 for none.
    pub(crate) lkey: u32,
    pub(crate) addr: u64,
    /// 0: the window is not bound any more.
    pub(crate) length: u64,
    pub(crate) access: u32,
}

/// A queue pair that asks, and its domain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker {
    pub(crate) qpn: u32,
    pub(crate) pd: u32,
    /// The only queue pair that it receives from; 0 if there may be others.
    pub(crate) peer: u32,
}

/// A request about a window that cannot be carried out; nothing has changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MwRefused;

/// A new window.
pub(crate) struct NewMw {
    pub(crate) id: u64,
    pub(crate) index: u32,
    pub(crate) key: u32,
}

impl MrTable {
    /// Takes a slot for a window, which is free.
    pub(crate) fn add_mw(&self, pd: u32, is_type_2: bool) -> Result<NewMw, Errno> {
        let mut free = self.free.lock();
        let (key, slot) = self.take(&mut free)?;
        let index = self.keys.index(key);
        let key = if has_tags(key) { key } else { self.draw_mw(index, slot) };
        Ok(NewMw { id: free.mws.add(index, pd, is_type_2), index, key })
    }

    /// Another key of a window.
    pub(crate) fn new_mw_key(&self, index: u32) -> Option<u32> {
        let _free = self.free.lock();
        Some(self.draw_mw(index, self.slot_at(index)?))
    }

    fn draw_mw(&self, index: u32, slot: &MrSlot) -> u32 {
        loop {
            let key = self.draw(index, slot);
            if has_tags(key) {
                return key;
            }
        }
    }

    /// Binds a window; where an ending is returned, it can be bound when that is settled.
    pub(crate) fn bind(
        &self,
        bind: &BindRequest,
        asker: Asker,
        peers: Option<&PeerProcesses>,
    ) -> Result<Option<BindingEnd>, MwRefused> {
        let mut free = self.free.lock();
        let index = self.keys.index(bind.key);
        let state = free.mws.get(index).filter(|it| it.id == bind.id && it.pd == asker.pd);
        let is_type_2 = state.ok_or(MwRefused)?.is_type_2;
        let unbinds = bind.length == 0;
        let is_bound = free.mws.binding(index).is_some();
        let is_refused = match is_type_2 {
            true => unbinds || is_bound,
            false => bind.access & ZERO_BASED != 0,
        };
        if is_refused {
            return Err(MwRefused);
        }
        let (delta, on_demand) =
            if unbinds { (0, 0) } else { self.region_of(bind, asker.pd).ok_or(MwRefused)? };
        self.end_mw(&mut free, index, peers);
        if let Some(ending) = free.mws.ending(index) {
            return Ok(Some(ending));
        }
        if unbinds {
            return Ok(None);
        }
        let Asker { qpn, peer, .. } =
            if is_type_2 { asker } else { Asker { qpn: 0, peer: 0, ..asker } };
        let slot = self.slot_at(index).ok_or(MwRefused)?;
        slot.fill_mw(bind, Asker { qpn, ..asker }, delta, on_demand);
        self.keys.note(bind.key, index);
        self.put(bind.key, slot, peers);
        let region = self.keys.index(bind.lkey);
        free.mws.bind(index, Binding { key: bind.key, region, qpn, peer });
        Ok(None)
    }

    /// The difference that is added to addresses of a region, and its bit for on demand, if a
    /// window may be bound to it so.
    fn region_of(&self, bind: &BindRequest, pd: u32) -> Option<(u64, u32)> {
        const KNOWN: u32 = LOCAL_WRITE | REMOTE | ZERO_BASED;
        let slot = self.slot(bind.lkey)?;
        let load = |field: &core::sync::atomic::AtomicU32| field.load(Ordering::Relaxed);
        let has = load(&slot.access);
        let is_region = bind.lkey != 0 && load(&slot.key) == bind.lkey && has & (MW | NULL) == 0;
        let writes = bind.access & (REMOTE_WRITE | REMOTE_ATOMIC) != 0;
        let permits = has & MW_BIND != 0 && has & ZERO_BASED == 0;
        let permits = permits && (!writes || has & LOCAL_WRITE != 0);
        let offset = bind.addr.wrapping_sub(slot.iova.load(Ordering::Relaxed));
        let length = slot.length.load(Ordering::Relaxed);
        let is_inside = offset <= length && bind.length <= length - offset;
        let is_ours = load(&slot.pd) == pd && bind.access & !KNOWN == 0;
        let may_be = is_region && is_ours && permits && is_inside;
        may_be.then(|| (slot.delta.load(Ordering::Relaxed), has & ON_DEMAND))
    }

    /// Reports whether a window of type 2 with this key is bound to a queue pair.
    pub(crate) fn is_bound_to(&self, key: u32, qpn: u32) -> bool {
        self.index_of_bound(&self.free.lock(), key, qpn).is_some()
    }

    fn index_of_bound(&self, free: &FreeSlots, key: u32, qpn: u32) -> Option<u32> {
        let index = self.keys.index(key);
        let binding = free.mws.binding(index)?;
        (qpn != 0 && binding.qpn == qpn && binding.key == key).then_some(index)
    }

    /// Ends the binding of a window of type 2 with this key to a queue pair; returns what is to be
    /// settled until no access is under way under the key any more.
    pub(crate) fn end_bound(
        &self,
        key: u32,
        qpn: u32,
        peers: Option<&PeerProcesses>,
    ) -> Result<BindingEnd, MwRefused> {
        let mut free = self.free.lock();
        let index = self.index_of_bound(&free, key, qpn).ok_or(MwRefused)?;
        self.end_mw(&mut free, index, peers);
        free.mws.ending(index).ok_or(MwRefused)
    }

    /// Reports whether no access is under way any more under the key of this ending.
    pub(crate) fn is_settled(&self, ending: &BindingEnd) -> bool {
        self.free.lock().mws.is_settled(ending)
    }

    /// Records that no access is under way any more under the key of this ending.
    pub(crate) fn set_settled(&self, ending: &BindingEnd) {
        self.free.lock().mws.settle(ending);
    }

    /// Ends the bindings of all windows to a queue pair, which no message reaches any more;
    /// `is_over` says that no access is under way under their keys either.
    pub(crate) fn end_all_bound(&self, qpn: u32, peers: Option<&PeerProcesses>, is_over: bool) {
        let mut free = self.free.lock();
        while let Some(index) = free.mws.any_of_qp(qpn) {
            self.end_mw(&mut free, index, peers);
            if let Some(ending) = free.mws.ending(index).filter(|_| is_over) {
                free.mws.settle(&ending);
            }
        }
    }

    /// Ends the binding of a window, if it has one; what is to be settled before it is free.
    pub(crate) fn end_any(&self, index: u32, peers: Option<&PeerProcesses>) -> Option<BindingEnd> {
        let mut free = self.free.lock();
        self.end_mw(&mut free, index, peers);
        free.mws.ending(index)
    }

    fn end_mw(&self, free: &mut FreeSlots, index: u32, peers: Option<&PeerProcesses>) {
        if let Some(binding) = free.mws.end(index) {
            self.withdraw(binding.key, peers);
        }
    }

    /// Gives the slot of a free window back; `EBUSY` if it was bound again.
    pub(crate) fn remove_mw(&self, index: u32) -> Result<(), Errno> {
        let mut free = self.free.lock();
        if !free.mws.remove(index) {
            return Err(errno::EBUSY);
        }
        free.give_back(index);
        Ok(())
    }
}

/// Reports whether a key with these upper bits is one, whatever its tag: 0 is none.
fn has_tags(key: u32) -> bool {
    key & !TAG != 0
}

impl MrSlot {
    /// Fills the slot of a free window.
    fn fill_mw(&self, bind: &BindRequest, asker: Asker, delta: u64, on_demand: u32) {
        // Release, and a fence: a reader that sees the new number sees that the key was not valid,
        // and one that sees a field of this binding sees the new number (`check_mw`).
        self.bindings.fetch_add(1, Ordering::Release);
        fence(Ordering::Release);
        let iova = if bind.access & ZERO_BASED != 0 { 0 } else { bind.addr };
        let addr = bind.addr.wrapping_add(delta);
        self.pd.store(0, Ordering::Relaxed);
        self.owner.store(asker.pd, Ordering::Relaxed);
        self.qpn.store(asker.qpn, Ordering::Relaxed);
        self.region.store(bind.lkey, Ordering::Relaxed);
        self.access.store(bind.access & REMOTE | MW | on_demand, Ordering::Relaxed);
        self.iova.store(iova, Ordering::Relaxed);
        self.length.store(bind.length, Ordering::Relaxed);
        self.delta.store(addr.wrapping_sub(iova), Ordering::Relaxed);
    }
}
