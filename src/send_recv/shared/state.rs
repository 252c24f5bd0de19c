//! State of a pool and of its buffers: the structs that refer to each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use host::sync::Mutex;
use std::time::Instant;

use conn_core::combiner::Combiner;
use conn_core::loan::{Lender, LenderSlot};
use conn_core::repost::{RepostQueue, RepostWord};
use verbs_safe::{RecvPoster, Recycle};

use super::config::SharedConfig;
use crate::send_recv::returns::SlotReturns;
use crate::wakeup::EventfdWakeup;

/// Buffers in one postlist at most.
pub(super) const MAX_LIST: usize = 64;

/// Origins from here on belong to no member with credits: a member without credits has its
/// number in the lower bits, or there is no member.
pub(super) const UNCOUNTED: u32 = 1 << 31;
/// The origin of a buffer that brought no message.
pub(super) const NO_MEMBER: u32 = u32::MAX;

/// Part of a pool that the buffers themselves refer to. It does not refer to their pool, except
/// through the poster, which the last handle takes out: no cycle stays.
pub(super) struct SharedPoolInner {
    pub(super) config: SharedConfig,
    /// The poster and the lender. A post takes a lock in any case: its effects on the members are
    /// booked under the same lock, once per list. It is also taken after a holder has panicked: no
    /// code under it leaves inconsistent state.
    pub(super) store: Mutex<SrqState>,
    pub(super) queue: RepostQueue<Box<[RepostWord]>>,
    pub(super) combiner: Combiner,
    /// Member that last received into each buffer.
    pub(super) origins: Box<[AtomicU32]>,
    /// True if members wait for loans.
    pub(super) has_waiting: AtomicBool,
    /// Wakes the reposting thread.
    pub(super) wakeup: EventfdWakeup,
    pub(super) closing: AtomicBool,
    pub(super) failed: AtomicBool,
}

impl std::fmt::Debug for SharedPoolInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedPool").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The state behind the lock of the shared receive queue. A thread that posts buffers holds
/// the lock, and books under it which members the buffers belonged to.
pub(super) struct SrqState {
    /// Nothing once the pool is closed.
    pub(super) poster: Option<RecvPoster<SlotReturn>>,
    pub(super) lender: Lender<Box<[LenderSlot]>>,
    /// Address at which each member's receiver is notified of what is due to the member.
    pub(super) members: Box<[Option<LinkAddress>]>,
    pub(super) ticked: Option<Instant>,
}

/// A link of a receiver.
#[derive(Debug, Clone)]
pub(crate) struct LinkAddress {
    pub(crate) returns: Arc<SlotReturns>,
    pub(crate) place: u32,
}

/// The way of a shared buffer back to its pool.
#[derive(Debug, Clone)]
pub(crate) struct SharedReturn {
    pub(super) inner: Arc<SharedPoolInner>,
}

/// Destination of a receive buffer when it is freed.
#[derive(Debug, Clone)]
pub(crate) enum SlotReturn {
    /// To the receiver of the link with this number.
    Receiver { returns: Arc<SlotReturns>, link: u32 },
    /// To the pool that many connections share.
    Shared(SharedReturn),
}

impl Recycle for SlotReturn {
    #[inline]
    fn recycle(&self, slot: u32) {
        match self {
            SlotReturn::Receiver { returns, link } => returns.give_back(*link, slot),
            SlotReturn::Shared(shared) => shared.recycle(slot),
        }
    }
}
