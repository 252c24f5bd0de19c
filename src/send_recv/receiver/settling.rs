//! Reposting buffers and granting credits.

use host::plant::{Plant, is_planted};

use super::{Receiver, mark, report};
use crate::error::RecvError;
use crate::send_recv::link::OwedWork;
use crate::send_recv::shared::LoanClock;

impl Receiver {
    /// Books the buffers that other threads have freed.
    pub(super) fn collect_freed(&mut self) {
        loop {
            let count = self.returns.drain(&mut self.freed);
            for &id in &self.freed[..count] {
                let (place, slot) = self.returns.split(id);
                if let Some(link) = self.links.get_mut(place) {
                    link.free(slot);
                    if is_planted(Plant::DoubleFree) {
                        link.free(slot);
                    }
                    mark(&mut self.dirty, link, place);
                }
            }
            if count < self.freed.len() {
                break;
            }
        }
        if !self.pools.is_empty() {
            self.hear_of_loans();
        }
    }

    /// Marks the links that their pool has something for.
    fn hear_of_loans(&mut self) {
        loop {
            let count = self.returns.drain_told(&mut self.freed);
            for &place in &self.freed[..count] {
                if let Some(link) = self.links.get_mut(place) {
                    link.tell();
                    mark(&mut self.dirty, link, place);
                }
            }
            if count < self.freed.len() {
                return;
            }
        }
    }

    /// A link has buffers of that pool.
    pub(in crate::send_recv) fn add_pool(&mut self, pool: LoanClock) {
        self.pools.retain(LoanClock::is_live);
        if !self.pools.iter().any(|known| known.is_same(&pool)) {
            self.pools.push(pool);
        }
    }

    /// Reposts and grants for the marked links. An idle receiver reposts all buffers, a busy one in
    /// batches. A link that fails here is reported after all earlier completions were polled, busy
    /// or not.
    #[inline]
    pub(super) fn settle(&mut self, idle: bool) -> Result<(), RecvError> {
        // The list may have duplicates: places of links that have left.
        if idle || self.resting.len() > 2 * self.max_peers as usize {
            self.wake_resting();
        }
        let all = |polls| polls > self.waiting.cq.capacity() / self.batch.capacity() as u32 + 1;
        let (links, resting, losses) = (&mut self.links, &mut self.resting, &mut self.losses);
        let mut trouble = None;
        self.dirty.retain(|&place| {
            let Some(link) = links.get_mut(place) else { return false };
            let owed = link.settle(idle);
            if owed == OwedWork::Rest && !std::mem::replace(&mut link.rests, true) {
                resting.push(place);
            }
            if owed == OwedWork::More && trouble.is_none() && link.unreported().is_some_and(all) {
                trouble = report(link, losses);
            }
            owed == OwedWork::More
        });
        trouble.map_or(Ok(()), Err)
    }

    fn wake_resting(&mut self) {
        for place in self.resting.drain(..) {
            if let Some(link) = self.links.get_mut(place) {
                link.rests = false;
                mark(&mut self.dirty, link, place);
            }
        }
    }
}
