//! Reasons why a key does not permit an access.
//!
//! Looked at once a check has failed, which does not say: the reason is that of now, which another thread may
//! have changed since.

use core::fmt;
use core::sync::atomic::Ordering;

use verbs_sys::ibv_sge;

use crate::check::report::number;
use crate::memory::mr_table::{
    LOCAL_WRITE, MW, MrTable, NULL, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE,
};
use crate::reason::WcReason;

/// A reason why an access is not permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    /// No region or window has the key.
    Key,
    /// It was that of a window that is no longer bound.
    Ended,
    /// The region or window is in another domain.
    Domain,
    /// The window is bound to another queue pair.
    QueuePair,
    Range,
    /// These rights are missing.
    Rights(u32),
    /// Nothing, but the memory is not there.
    Gone,
}

impl Denial {
    /// The reason of the requester whose own memory it is, or of a receive request.
    pub(crate) fn local(self) -> WcReason {
        match self {
            Denial::Key | Denial::Ended | Denial::QueuePair => WcReason::LocalKey,
            Denial::Domain => WcReason::LocalDomain,
            Denial::Range => WcReason::LocalRange,
            Denial::Rights(_) => WcReason::LocalRight,
            Denial::Gone => WcReason::LocalGone,
        }
    }

    /// The reason of a requester that has asked for it.
    pub(crate) fn remote(self) -> WcReason {
        match self {
            Denial::Key => WcReason::PeerKey,
            Denial::Ended | Denial::QueuePair => WcReason::PeerWindow,
            Denial::Domain => WcReason::PeerDomain,
            Denial::Range => WcReason::PeerRange,
            Denial::Rights(_) => WcReason::PeerRight,
            Denial::Gone => WcReason::PeerGone,
        }
    }
}

/// A region or window, as reports show it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Registered {
    pub(crate) key: u32,
    first: u64,
    length: u64,
    access: u32,
}

impl fmt::Display for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Registered { key, first, length, access } = *self;
        write!(f, "key {key:#x} ({} at {first:#x}, {})", number(length, "byte"), rights(access))
    }
}

/// Names of access rights.
pub(crate) fn rights(access: u32) -> String {
    let names = [
        (LOCAL_WRITE, "LOCAL_WRITE"),
        (REMOTE_WRITE, "REMOTE_WRITE"),
        (REMOTE_READ, "REMOTE_READ"),
        (REMOTE_ATOMIC, "REMOTE_ATOMIC"),
    ];
    let names = names.into_iter().filter(|(right, _)| access & right != 0).map(|(_, name)| name);
    let names: Vec<_> = names.collect();
    if names.is_empty() { "no right to write".into() } else { names.join("|") }
}

impl MrTable {
    /// Finds the reason for an access by a key, for a queue pair of a domain.
    #[cold]
    pub(crate) fn denial(
        &self,
        key: u32,
        (pd, qpn): (u32, u32),
        (addr, len): (u64, u64),
        access: u32,
    ) -> Denial {
        let Some(slot) = self.slot(key).filter(|_| key != 0) else { return Denial::Key };
        // Acquire: as in `view`.
        let is_valid = slot.key.load(Ordering::Acquire) == key;
        let has = slot.access.load(Ordering::Relaxed);
        if !is_valid {
            return if has & MW != 0 { Denial::Ended } else { Denial::Key };
        }
        let owner = if has & (MW | NULL) != 0 { &slot.owner } else { &slot.pd };
        let bound_to = slot.qpn.load(Ordering::Relaxed);
        let offset = addr.wrapping_sub(slot.iova.load(Ordering::Relaxed));
        let length = slot.length.load(Ordering::Relaxed);
        let missing = access & !has & (LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC);
        let is_null = has & NULL != 0;
        match () {
            () if owner.load(Ordering::Relaxed) != pd => Denial::Domain,
            () if has & MW != 0 && bound_to != 0 && bound_to != qpn => Denial::QueuePair,
            () if !is_null && missing != 0 => Denial::Rights(missing),
            () if !is_null && (offset > length || len > length - offset) => Denial::Range,
            () => Denial::Gone,
        }
    }

    /// Finds the reason for the first `len` bytes of a list, and the entry.
    #[cold]
    pub(crate) fn denial_of(
        &self,
        pd: u32,
        sges: &[ibv_sge],
        len: u64,
        access: u32,
    ) -> (Option<ibv_sge>, Denial) {
        let mut left = len;
        for sge in sges {
            let n = u64::from(sge.length).min(left);
            left -= n;
            let denial = self.denial(sge.lkey, (pd, 0), (sge.addr, n), access);
            if n > 0 && denial != Denial::Gone {
                return (Some(*sge), denial);
            }
        }
        (None, Denial::Gone)
    }

    /// The region or window of a key, if it is valid.
    pub(crate) fn registered(&self, key: u32) -> Option<Registered> {
        let slot = self.slot(key).filter(|_| key != 0)?;
        (slot.key.load(Ordering::Acquire) == key).then(|| Registered {
            key,
            first: slot.iova.load(Ordering::Relaxed),
            length: slot.length.load(Ordering::Relaxed),
            access: slot.access.load(Ordering::Relaxed),
        })
    }

    /// The regions of a domain.
    #[cold]
    pub(crate) fn regions_of(&self, pd: u32) -> Vec<Registered> {
        let slots = self.free.lock().never_used;
        let keys = (0..slots).filter_map(|index| {
            let slot = self.slot_at(index)?;
            let key = slot.key.load(Ordering::Acquire);
            (key != 0 && slot.pd.load(Ordering::Relaxed) == pd).then_some(key)
        });
        keys.filter_map(|key| self.registered(key)).collect()
    }
}
