//! The buffers of a pool, the members that they are lent to, and how members are notified.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use conn_core::loan::{Due, JoinError, Lender, LenderError, LenderSlot};

use super::config::SharedConfig;
use super::state::{LinkAddress, SharedPoolInner, SrqState, UNCOUNTED};
use crate::error::ConnectError;

/// Members that have waited for so long have the lender recall loans that are not used: one
/// that is older than this, and at most twice as old.
pub(crate) const RECALL_AFTER: Duration = Duration::from_millis(100);

impl SrqState {
    /// # Panics
    /// When `config` was not validated.
    pub(super) fn new(config: &SharedConfig) -> SrqState {
        let peers = config.max_peers as usize;
        let slots = vec![LenderSlot::new(); peers].into_boxed_slice();
        let lender = Lender::new(slots, config.buffers);
        SrqState {
            poster: None,
            lender: lender.expect("each member has the buffers that it keeps"),
            members: vec![None; peers].into_boxed_slice(),
            ticked: None,
        }
    }

    /// Books returned buffers to the members that received into them.
    pub(super) fn book_home(&mut self, origins: &[u32]) {
        for run in origins.chunk_by(|a, b| a == b) {
            if run[0] < UNCOUNTED {
                let booked = self.lender.home(run[0], run.len() as u32);
                debug_assert_eq!(booked, Ok(()), "member {} of {:?}", run[0], origins);
            }
        }
    }

    /// Tells the receivers of all members that have something due.
    fn tell(&mut self) {
        while let Some(member) = self.lender.next_due() {
            if let Some(address) = &self.members[member as usize] {
                address.returns.tell(address.place);
            }
        }
    }
}

/// Events of members.
impl SharedPoolInner {
    /// Sets buffers aside for one more member; its number.
    pub(super) fn join(&self, address: &LinkAddress, max_loan: u32) -> Result<u32, ConnectError> {
        let mut store = self.store.lock();
        let joined = store.lender.join(max_loan).map_err(|e| match e {
            JoinError::Full => ConnectError::TooManyPeers(self.config.max_peers),
            _ => ConnectError::System {
                what: "a member of a shared pool",
                error: std::io::Error::new(std::io::ErrorKind::InvalidInput, e.to_string()),
            },
        })?;
        store.members[joined as usize] = Some(address.clone());
        Ok(joined)
    }

    /// A member goes; `unused` of its credits have brought no message.
    pub(super) fn leave(&self, member: u32, unused: u32) {
        self.settle(|store| {
            store.members[member as usize] = None;
            store.lender.leave(member, unused)
        });
    }

    pub(super) fn want(&self, member: u32) {
        self.settle(|store| store.lender.want(member));
    }

    pub(super) fn give_back(&self, member: u32, credits: u32) {
        self.settle(|store| store.lender.give_back(member, credits));
    }

    /// Takes the `Due` of a member.
    pub(super) fn take_due(&self, member: u32) -> Due {
        self.store.lock().lender.take(member).unwrap_or_default()
    }

    /// Grants a member its share again, if it may have it; reports whether it may.
    pub(super) fn take_share(&self, member: u32) -> bool {
        self.store.lock().lender.take_share(member).unwrap_or(false)
    }

    /// Has loans recalled when members have waited for long enough.
    pub(super) fn tick(&self, now: Instant) {
        self.settle(|store| {
            let is_due = |at: Instant| now.duration_since(at) >= RECALL_AFTER;
            if store.lender.waiting() > 0 && store.ticked.is_none_or(is_due) {
                store.ticked = Some(now);
                store.lender.tick();
            }
            Ok(())
        });
    }

    fn settle(&self, change: impl FnOnce(&mut SrqState) -> Result<(), LenderError>) {
        let mut store = self.store.lock();
        let changed = change(&mut store);
        debug_assert_eq!(changed, Ok(()), "a member that the lender does not know so");
        self.tell(&mut store);
    }

    /// Notifies the members. Call it after each change of the lender.
    pub(super) fn tell(&self, store: &mut SrqState) {
        store.tell();
        // Relaxed: a hint when to tick, which may be late by a poll.
        self.has_waiting.store(store.lender.waiting() > 0, Ordering::Relaxed);
    }

    /// Tells all members: their pool has failed.
    pub(super) fn tell_all(&self, store: &SrqState) {
        store.members.iter().flatten().for_each(|address| address.returns.tell(address.place));
    }
}
