//! Queue pairs of a shared pool that have ended, until their device keeps no buffer of it.
//!
//! A device takes a receive request off the shared queue when a message begins. If the
//! sender dies in the middle of it, the request completes when the queue pair is in ERR, and
//! the device says when no more completes (`QP_LAST_WQE_REACHED`). A queue pair that is
//! destroyed before that may take the buffer with it. Until then its share of the pool stays
//! its own: lent to others, the buffer would be missing, and they would see
//! receiver-not-ready.

use std::time::{Duration, Instant};

use verbs_safe::Completion;

use super::link::SendRecvLink;
use crate::wait::{Deadline, SILENT_DEVICE};

/// Most queue pairs that wait for their device, besides those of all peers: the completion queue
/// has room for them. With a device that never reports what it keeps, this is the number of senders
/// released per second ([`SILENT_DEVICE`]).
pub(crate) const MAX_STALE_LINKS: u32 = 64;

/// A link that takes no more messages: its queue pair is in ERR.
pub(crate) trait DrainingLink {
    /// Returns its share of the pool, once the device keeps no buffer of it.
    fn give_share_back(&mut self);

    /// Reports whether its device has said that all it had taken has completed.
    fn keeps_no_buffer(&self) -> bool;
}

impl DrainingLink for SendRecvLink {
    fn give_share_back(&mut self) {
        SendRecvLink::give_share_back(self);
    }

    fn keeps_no_buffer(&self) -> bool {
        SendRecvLink::keeps_no_buffer(self)
    }
}

#[derive(Debug)]
struct StaleLink<L> {
    link: L,
    /// Time after which it is not waited for any longer.
    until: Deadline,
    /// The device has reported that it keeps no buffer: completions are polled once more.
    is_told: bool,
}

/// The links that are waited for, the first one first.
#[derive(Debug)]
pub(crate) struct StaleLinks<L> {
    links: Vec<StaleLink<L>>,
    most: usize,
    linger: Duration,
    /// Links that were released before it was known that all their buffers are back.
    unaccounted: u64,
}

impl<L: DrainingLink> StaleLinks<L> {
    pub(crate) fn new(most: u32, linger: Duration) -> StaleLinks<L> {
        StaleLinks { links: Vec::new(), most: most as usize, linger, unaccounted: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Reports whether one more can be added without releasing another one early.
    pub(crate) fn has_room(&self) -> bool {
        self.links.len() < self.most
    }

    /// Reports whether the device has still to say of some link that it keeps no buffer.
    pub(crate) fn wait_for_device(&self) -> bool {
        self.links.iter().any(|stale| !stale.is_told)
    }

    /// Links that were released before it was known that all their buffers are back: one buffer
    /// of each may be lost.
    pub(crate) fn unaccounted(&self) -> u64 {
        self.unaccounted
    }

    /// Adds a link with its queue pair in ERR. Without [room](Self::has_room), the first link is
    /// released, unaccounted: even if the device has reported that it keeps nothing, earlier
    /// completions may not have been polled.
    pub(crate) fn add(&mut self, link: L) {
        if !self.has_room() {
            self.links.remove(0).link.give_share_back();
            self.unaccounted += 1;
        }
        self.add_last(link);
    }

    /// Adds a link after which no link joins: there is room for all that have joined.
    pub(crate) fn add_last(&mut self, link: L) {
        let until = Deadline::after(self.linger.min(SILENT_DEVICE));
        self.links.push(StaleLink { link, until, is_told: false });
    }

    /// The completion queue was empty after all of them had been added. A link goes, and its
    /// share goes back, when the queue is empty once more after the device has said that it
    /// keeps no buffer, or when that takes too long.
    pub(crate) fn let_go(&mut self, now: Instant) {
        let unaccounted = &mut self.unaccounted;
        self.links.retain_mut(|stale| {
            let is_drained = stale.is_told;
            stale.is_told |= stale.link.keeps_no_buffer();
            let goes = is_drained || !stale.is_told && stale.until.has_passed(now);
            if goes {
                *unaccounted += u64::from(!is_drained);
                stale.link.give_share_back();
            }
            !goes
        });
    }
}

impl StaleLinks<SendRecvLink> {
    /// Books a completion of a queue pair that has no place: of one of them.
    #[cold]
    pub(crate) fn absorb(&mut self, completion: Completion<'_>) {
        let qp_num = completion.qp_num();
        if let Some(stale) = self.links.iter_mut().find(|stale| stale.link.qp_num() == qp_num) {
            stale.link.absorb(completion);
        }
    }
}

#[cfg(test)]
mod tests;
