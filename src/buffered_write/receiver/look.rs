//! Polling for completions, tails, and peers that have left.

use super::Receiver;
use crate::buffered_write::link::BufferedWriteLink;
use crate::error::{CloseReason, RecvError};
use crate::keepalive::KeepaliveDue;
use crate::places::LinkPlace;
use crate::waiting::Waits;

/// Looking for more.
impl Receiver {
    /// Polls between two checks of the peers, where only tails are polled.
    const POLLS_PER_LOOK: u32 = 64;
    /// Polls between two polls of the completion queue, where only tails are polled. A software
    /// device executes arrived requests when the queue is polled.
    const POLLS_PER_QUEUE_LOOK: u32 = 16;
    /// A count of polls after which the next one looks.
    pub(super) const LOOK_NOW: u32 = Self::POLLS_PER_LOOK - 1;
    /// Links that are looked at in one poll though they were silent for long.
    const COLD_LOOKS: usize = 4;
    /// Looks in a row without success after which a link is cold.
    const COLD_AFTER: u32 = 1024;

    pub(super) fn poll(&mut self) -> Result<(), RecvError> {
        self.polls = self.polls.wrapping_add(1);
        let look = self.waiting.look();
        if look == KeepaliveDue::Round {
            self.places.ask_silent(&mut self.waiting.watch);
        }
        let looks = self.polls.is_multiple_of(Self::POLLS_PER_LOOK);
        if looks {
            self.look_after();
        }
        let looks_at_queue =
            look != KeepaliveDue::No || self.polls.is_multiple_of(Self::POLLS_PER_QUEUE_LOOK);
        if looks_at_queue || self.polled.len() < self.places.open() as usize {
            self.poll_completions()?;
        }
        if !self.polled.is_empty() {
            self.poll_tails();
        }
        Ok(())
    }

    /// Takes completions; returns their number.
    pub(super) fn poll_completions(&mut self) -> Result<usize, RecvError> {
        let polled = self.waiting.cq.poll(&mut self.batch);
        let polled = polled.map_err(|e| self.fail(CloseReason::device(e)))?;
        while let Some(completion) = self.batch.pop() {
            let Some(at) = self.places.find(completion.qp_num()) else { continue };
            let Some(place) = self.places.get_mut(at) else { continue };
            place.has_spoken = true;
            if place.link.arrive(completion) {
                self.places.make_ready(at);
            }
        }
        Ok(polled)
    }

    /// Looks at the tails of all links that were not silent for long, and of some others.
    #[inline]
    fn poll_tails(&mut self) {
        debug_assert!(self.hot.len() <= self.polled.len(), "a link is hot twice");
        let mut has_cooled = false;
        for &at in &self.hot {
            let Some(place) = self.places.get_mut(at) else { continue };
            if look(place) {
                self.places.make_ready(at);
                continue;
            }
            place.link.empty_looks += 1;
            has_cooled |= place.link.empty_looks >= Self::COLD_AFTER;
        }
        if self.polled.len() > self.hot.len() {
            self.poll_cold();
        }
        // A few links are always hot: polling them costs no more than a check.
        if has_cooled && self.polled.len() > Self::COLD_LOOKS {
            self.cool();
        }
    }

    fn poll_cold(&mut self) {
        for _ in 0..Self::COLD_LOOKS {
            self.cold = (self.cold + 1) % self.polled.len();
            self.poll_tail(self.polled[self.cold], true);
        }
    }

    /// Looks at every tail that is polled, before a sleep which no tail ends.
    pub(super) fn poll_all_tails(&mut self) {
        for nth in 0..self.polled.len() {
            self.poll_tail(self.polled[nth], false);
        }
    }

    /// Polls a tail; with `only_cold`, only that of a cold link. A new tail makes the link hot
    /// again.
    fn poll_tail(&mut self, at: u32, only_cold: bool) {
        let Some(place) = self.places.get_mut(at) else { return };
        // Checked before the look, which changes it.
        let is_cold = place.link.empty_looks >= Self::COLD_AFTER;
        if (is_cold || !only_cold) && look(place) {
            if is_cold {
                place.link.empty_looks = 0;
                // With few polled links, silent ones stay hot.
                if !self.hot.contains(&at) {
                    self.hot.push(at);
                }
            }
            self.places.make_ready(at);
        }
    }

    #[cold]
    fn cool(&mut self) {
        let places = &self.places;
        self.hot.retain(|at| {
            places.get(*at).is_some_and(|place| place.link.empty_looks < Self::COLD_AFTER)
        });
    }

    /// Posts the updates that found no room in a send queue, and in each round probes the peers
    /// that have sent nothing since the one before.
    #[cold]
    pub(super) fn look_after(&mut self) {
        for place in self.places.iter_mut() {
            place.link.settle();
        }
        if self.waiting.begins_round() {
            self.places.ask_silent(&mut self.waiting.watch);
        }
    }
}

/// Polls a link's tail; returns true if it is new.
#[inline]
fn look(place: &mut LinkPlace<BufferedWriteLink>) -> bool {
    let is_new = place.link.is_open() && place.link.look();
    place.has_spoken |= is_new;
    is_new
}
