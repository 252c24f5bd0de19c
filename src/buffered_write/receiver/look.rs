//! Looking for what has come: completions, tails, peers that have gone.

use std::collections::VecDeque;

use super::Receiver;
use crate::buffered_write::link::Link;
use crate::error::{CloseReason, RecvError};
use crate::keepalive::Look;
use crate::waiting::Waits;

/// Looking for more.
impl Receiver {
    /// Looks after the links where only tails are polled: every so many polls.
    const POLLS_PER_LOOK: u32 = 64;
    /// Looks for completions where only tails are polled: every so many polls. What has arrived at a
    /// device in software is executed there when somebody polls it.
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
        if look == Look::Round {
            self.ask_peers(Link::ask_if_silent);
        }
        let looks = self.polls.is_multiple_of(Self::POLLS_PER_LOOK);
        if looks {
            self.look_after();
        }
        let looks_at_queue =
            look != Look::No || self.polls.is_multiple_of(Self::POLLS_PER_QUEUE_LOOK);
        if looks_at_queue || self.polled.len() < self.open_links as usize {
            self.poll_completions()?;
        }
        if !self.polled.is_empty() {
            self.poll_tails();
        }
        Ok(())
    }

    /// Takes completions; returns how many there were.
    pub(super) fn poll_completions(&mut self) -> Result<usize, RecvError> {
        let polled = self.waiting.cq.poll(&mut self.batch);
        let polled = polled.map_err(|e| self.fail(CloseReason::device(e)))?;
        while let Some(completion) = self.batch.pop() {
            let place = self.index.find(completion.qp_num());
            let link = place.and_then(|at| Some((at, self.links.get_mut(at as usize)?.as_mut()?)));
            if let Some((place, link)) = link
                && link.arrive(completion)
                && !link.is_ready
            {
                link.is_ready = true;
                self.ready.push_back(place);
            }
        }
        Ok(polled)
    }

    /// Looks at the tails of all links that were not silent for long, and of some others.
    #[inline]
    fn poll_tails(&mut self) {
        let (links, ready, mut has_cooled) = (&mut self.links, &mut self.ready, false);
        for &place in &self.hot {
            let Some(link) = links.get_mut(place as usize).and_then(Option::as_mut) else {
                continue;
            };
            if look(link, place, ready) {
                continue;
            }
            link.empty_looks += 1;
            has_cooled |= link.empty_looks >= Self::COLD_AFTER;
        }
        if self.polled.len() > self.hot.len() {
            self.poll_cold();
        }
        // A few are always hot: looking at them costs no more than finding out.
        if has_cooled && self.polled.len() > Self::COLD_LOOKS {
            self.cool();
        }
    }

    fn poll_cold(&mut self) {
        for _ in 0..Self::COLD_LOOKS {
            self.cold = (self.cold + 1) % self.polled.len();
            let place = self.polled[self.cold];
            let Some(link) = self.links.get_mut(place as usize).and_then(Option::as_mut) else {
                continue;
            };
            if link.empty_looks >= Self::COLD_AFTER && look(link, place, &mut self.ready) {
                link.empty_looks = 0;
                self.hot.push(place);
            }
        }
    }

    /// Looks at every tail that is polled, before a sleep which no tail ends.
    pub(super) fn poll_all_tails(&mut self) {
        for at in 0..self.polled.len() {
            let place = self.polled[at];
            let Some(link) = self.links.get_mut(place as usize).and_then(Option::as_mut) else {
                continue;
            };
            if look(link, place, &mut self.ready) && link.empty_looks >= Self::COLD_AFTER {
                link.empty_looks = 0;
                self.hot.push(place);
            }
        }
    }

    #[cold]
    fn cool(&mut self) {
        let links = &self.links;
        self.hot.retain(|place| {
            let link = links.get(*place as usize).and_then(Option::as_ref);
            link.is_some_and(|link| link.empty_looks < Self::COLD_AFTER)
        });
    }

    /// Posts the updates that found no room in a send queue, and in each round probes the peers
    /// that have sent nothing since the one before.
    #[cold]
    pub(super) fn look_after(&mut self) {
        for link in self.links.iter_mut().flatten() {
            link.settle();
        }
        if self.waiting.begins_round() {
            self.ask_peers(Link::ask_if_silent);
        }
    }

    /// Probes peers, if `ask` does; the ones that turn out to have failed are reported.
    pub(super) fn ask_peers(&mut self, ask: impl Fn(&mut Link) -> bool) {
        let mut asks = false;
        for place in 0..self.links.len() as u32 {
            let Some(link) = self.links.get_mut(place as usize).and_then(Option::as_mut) else {
                continue;
            };
            asks |= ask(link);
            if link.unreported_end().is_some() {
                self.make_ready(place);
            }
        }
        self.waiting.watch.asks(asks);
    }
}

/// Looks at a link's tail; whether something is new.
#[inline]
fn look(link: &mut Link, place: u32, ready: &mut VecDeque<u32>) -> bool {
    if !link.is_open() || !link.look() {
        return false;
    }
    if !link.is_ready {
        link.is_ready = true;
        ready.push_back(place);
    }
    true
}
