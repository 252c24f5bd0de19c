//! The links of one receiver: the place that each has, and when it gives the place up.
//!
//! ```text
//!   joins            goodbye, or an error        all is freed
//!  ------> live ----------------------> ended -------------------> gone: the place is
//!                                                                  vacant again
//! ```
//!
//! There are as many places as there may be live peers at a time; they are reused. Numbers
//! of peers are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::link::{ReceiverStats, SendRecvLink};
use super::stale_links::{MAX_STALE_LINKS, StaleLinks};
use crate::error::CloseReason;
use crate::index::QpIndex;
use crate::peer::Peer;

/// The links of a receiver, by place.
///
/// Invariant: `vacant` are the empty ones among `places`; the index has the queue pairs of
/// the others, and `ended` has the places of links that are not open any more and were noted.
#[derive(Debug)]
pub(crate) struct Links {
    places: Vec<Option<SendRecvLink>>,
    max_peers: u32,
    vacant: Vec<u32>,
    /// From the numbers of queue pairs to places.
    index: QpIndex,
    joined: u32,
    /// The first one first.
    ended: Vec<EndedLink>,
    /// Set by a link that ends: to look at every link whenever the completion queue is empty
    /// costs more than a message where they are many.
    one_has_ended: Arc<AtomicBool>,
    /// Links that take no more messages, until their device keeps no buffer of a pool.
    pub(super) stale: StaleLinks<SendRecvLink>,
    /// The work of links that have gone.
    past: ReceiverStats,
    /// Time for which the queue pair of a link that has ended well stays.
    linger: Duration,
}

#[derive(Debug, Clone, Copy)]
struct EndedLink {
    place: u32,
    since: Instant,
}

impl Links {
    pub(crate) fn new(max_peers: u32, linger: Duration) -> Links {
        Links {
            places: Vec::new(),
            max_peers,
            vacant: Vec::new(),
            index: QpIndex::default(),
            joined: 0,
            ended: Vec::new(),
            one_has_ended: Arc::default(),
            stale: StaleLinks::new(MAX_STALE_LINKS, linger),
            past: ReceiverStats::default(),
            linger,
        }
    }

    pub(crate) fn max_peers(&self) -> u32 {
        self.max_peers
    }

    /// Links that have joined so far.
    pub(crate) fn joined(&self) -> u32 {
        self.joined
    }

    /// The place of a queue pair.
    #[inline]
    pub(crate) fn find(&mut self, qp_num: u32) -> Option<u32> {
        self.index.find(qp_num)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut SendRecvLink> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SendRecvLink> {
        self.places.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut SendRecvLink> {
        self.places.iter_mut().flatten()
    }

    /// Returns the counters of all links, including the ones that have gone, and of no messages.
    pub(crate) fn stats(&self) -> ReceiverStats {
        let unaccounted_buffers = self.stale.unaccounted();
        let past = ReceiverStats { unaccounted_buffers, ..self.past };
        self.iter().fold(past, ReceiverStats::plus)
    }
}

/// Coming.
impl Links {
    /// The place that the next link gets; where all are taken, the place of a link that has
    /// ended. `None` when all links are live, or still have messages out.
    pub(crate) fn vacancy(&mut self) -> Option<u32> {
        if self.joined == u32::MAX {
            return None; // no number is left
        }
        let fresh = self.places.len() as u32;
        let found = self.vacant.last().copied();
        found.or_else(|| (fresh < self.max_peers).then_some(fresh)).or_else(|| self.evict())
    }

    /// Takes the place of the link that ended first among the links that can be released.
    fn evict(&mut self) -> Option<u32> {
        let can_go =
            |ended: &EndedLink| self.link(ended.place).is_none_or(SendRecvLink::has_settled);
        let at = self.ended.iter().position(can_go)?;
        let EndedLink { place, .. } = self.ended.remove(at);
        self.bury(place);
        Some(place)
    }

    /// Gives a link its place, and its peer a number.
    pub(crate) fn add(&mut self, mut link: SendRecvLink) -> Peer {
        let (peer, place) = (Peer(self.joined), link.place());
        self.joined += 1;
        link.join(peer, self.one_has_ended.clone());
        self.index.insert(link.qp_num(), place);
        self.vacant.retain(|vacant| *vacant != place);
        if self.places.len() <= place as usize {
            self.places.resize_with(place as usize + 1, || None);
        }
        self.places[place as usize] = Some(link);
        peer
    }
}

/// Going.
impl Links {
    /// Notes the links that have ended, and releases the ones that can be. All their
    /// completions were polled: the completion queue was empty a moment ago.
    pub(crate) fn tidy(&mut self) {
        self.release_stale();
        let one_has_ended = self.one_has_ended.load(Ordering::Relaxed);
        if !one_has_ended && self.ended.is_empty() {
            return;
        }
        let now = host::time::now();
        if one_has_ended {
            let noted = |link: &&mut SendRecvLink| !link.is_open() && !link.noted;
            let fresh = self.places.iter_mut().flatten().filter(noted).map(SendRecvLink::note);
            self.ended.extend(fresh.map(|place| EndedLink { place, since: now }));
        }
        let mut ended = std::mem::take(&mut self.ended);
        ended.retain(|ended| {
            let Some(link) = self.link(ended.place) else { return false };
            let has_time = now.duration_since(ended.since) < self.linger;
            // The peer of a link that has ended well may still repeat its goodbye: our device's
            // acknowledgement may have been lost. Without a queue pair that repeats it, the peer
            // would report us as lost.
            let is_waited_for = has_time && link.ended_well();
            // A link of a pool keeps its place until there is room for it among the stale links.
            let has_room = self.stale.has_room() || !link.is_shared();
            let stays = !link.has_settled() || is_waited_for || !has_room;
            if !stays {
                self.bury(ended.place);
            }
            stays
        });
        self.ended = ended;
    }

    /// The error of a link that was not reported yet.
    pub(crate) fn next_error(&mut self) -> Option<(Peer, CloseReason)> {
        if !self.one_has_ended.load(Ordering::Relaxed) {
            return None;
        }
        let error = self.iter_mut().find_map(SendRecvLink::error_of);
        self.one_has_ended.store(error.is_some(), Ordering::Relaxed);
        error
    }

    fn link(&self, place: u32) -> Option<&SendRecvLink> {
        self.places.get(place as usize)?.as_ref()
    }

    fn bury(&mut self, place: u32) {
        if let Some(link) = self.take_out(place) {
            self.forget(link);
        }
    }

    /// Takes a link out of its place.
    fn take_out(&mut self, place: u32) -> Option<SendRecvLink> {
        let link = self.places[place as usize].take()?;
        self.index.remove(link.qp_num());
        self.vacant.push(place);
        self.past = self.past.plus(&link);
        Some(link)
    }

    /// Destroys a link's queue pair and frees its buffers. For a link of a pool, it does so when
    /// all its completions are booked and the device has reported that it keeps no buffer. (A link
    /// with a failed set-up may have received messages, too.)
    pub(crate) fn forget(&mut self, mut link: SendRecvLink) {
        if link.is_shared() {
            link.silence();
            self.stale.add(link);
        }
    }

    /// [`forget`](Self::forget)s all links, after which no link joins any more.
    pub(crate) fn forget_all(&mut self) {
        for place in 0..self.places.len() as u32 {
            if let Some(mut link) = self.take_out(place).filter(SendRecvLink::is_shared) {
                link.silence();
                self.stale.add_last(link);
            }
        }
    }

    /// Releases the stale links that are done. The completion queue was empty after they had been
    /// silenced.
    pub(crate) fn release_stale(&mut self) {
        if !self.stale.is_empty() {
            self.stale.let_go(host::time::now());
        }
    }
}
