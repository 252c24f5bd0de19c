//! The links of one receiver: the place that each has, and when it has it no more.
//!
//! ```text
//!   joins            goodbye, or an error        all of it is home
//!  ------> live ----------------------> ended -------------------> gone: the place is
//!                                                                  vacant again
//! ```
//!
//! Places are as many as there may be live peers at a time, and are given again. Numbers
//! of peers are not.

use std::time::{Duration, Instant};

use verbs_safe::Completion;

use super::index::QpIndex;
use super::link::{Link, Work};
use super::message::Peer;

/// The links of a receiver, by place.
///
/// Invariant: `vacant` are the empty ones among `places`; the index has the queue pairs of
/// the others, and `ended` those of them that are not open any more and were noted.
#[derive(Debug)]
pub(crate) struct Links {
    places: Vec<Option<Link>>,
    max_peers: u32,
    vacant: Vec<u32>,
    /// From the numbers of queue pairs to places.
    index: QpIndex,
    joined: u32,
    /// The first one first.
    ended: Vec<Ended>,
    /// Links that take no more messages, until what had come for them is booked: it may
    /// lie in buffers that are others' as well.
    strays: Vec<Link>,
    /// What links did that have gone.
    past: Work,
    /// How long the queue pair of a link that has ended well stays.
    linger: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Ended {
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
            strays: Vec::new(),
            past: Work::default(),
            linger,
        }
    }

    pub(crate) fn max_peers(&self) -> u32 {
        self.max_peers
    }

    /// Whether anybody has ever joined.
    pub(crate) fn has_had_any(&self) -> bool {
        self.joined > 0
    }

    /// The place of a queue pair.
    #[inline]
    pub(crate) fn find(&mut self, qp_num: u32) -> Option<u32> {
        self.index.find(qp_num)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut Link> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Link> {
        self.places.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.places.iter_mut().flatten()
    }

    /// What all links have done, those that have gone as well.
    pub(crate) fn work(&self) -> Work {
        self.iter().fold(self.past, |sum, link| sum + link.work())
    }
}

/// Coming.
impl Links {
    /// The place that the next link gets; that of one which has ended where there is no
    /// other. `None` when all are live, or still have messages out.
    pub(crate) fn vacancy(&mut self) -> Option<u32> {
        if self.joined == u32::MAX {
            return None; // no number is left
        }
        let fresh = self.places.len() as u32;
        let found = self.vacant.last().copied();
        found.or_else(|| (fresh < self.max_peers).then_some(fresh)).or_else(|| self.evict())
    }

    /// Takes the place of the link that ended first, of those that can go.
    fn evict(&mut self) -> Option<u32> {
        let can_go = |ended: &Ended| self.has_settled(ended.place);
        let at = self.ended.iter().position(can_go)?;
        let Ended { place, .. } = self.ended.remove(at);
        self.bury(place);
        Some(place)
    }

    /// Gives a link its place, and its peer a number.
    pub(crate) fn add(&mut self, mut link: Link) -> Peer {
        let (peer, place) = (Peer(self.joined), link.place());
        self.joined += 1;
        link.set_peer(peer);
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
    /// Notes the links that have ended, and lets those go that can. Whatever the
    /// completion queue had of them was polled: it was empty a moment ago.
    pub(crate) fn tidy(&mut self) {
        self.let_strays_go();
        let noted = |link: &&mut Link| !link.is_open() && !link.noted;
        let fresh: Vec<u32> = self.iter_mut().filter(noted).map(Link::note).collect();
        if fresh.is_empty() && self.ended.is_empty() {
            return;
        }
        let now = Instant::now();
        self.ended.extend(fresh.into_iter().map(|place| Ended { place, since: now }));
        let mut ended = std::mem::take(&mut self.ended);
        ended.retain(|ended| {
            let has_time = now.duration_since(ended.since) < self.linger;
            let stays = !self.has_settled(ended.place) || (has_time && self.is_well(ended.place));
            if !stays {
                self.bury(ended.place);
            }
            stays
        });
        self.ended = ended;
    }

    fn link(&self, place: u32) -> Option<&Link> {
        self.places.get(place as usize)?.as_ref()
    }

    fn has_settled(&self, place: u32) -> bool {
        self.link(place).is_none_or(Link::has_settled)
    }

    /// Whether the peer may still repeat its goodbye, because our device's answer was
    /// lost: if nobody repeated the answer, the peer would take us for dead.
    fn is_well(&self, place: u32) -> bool {
        self.link(place).is_some_and(Link::ended_well)
    }

    /// Takes a link out of its place.
    fn bury(&mut self, place: u32) {
        let Some(link) = self.places[place as usize].take() else { return };
        self.index.remove(link.qp_num());
        self.vacant.push(place);
        self.past = self.past + link.work();
        self.forget(link);
    }

    /// Destroys a link's queue pair and frees its buffers, now or when all that had come
    /// for it is booked. (A link whose set-up did not come to its end may have got
    /// messages, too.)
    pub(crate) fn forget(&mut self, mut link: Link) {
        if link.is_shared() {
            link.silence();
            self.strays.push(link);
        }
    }

    pub(crate) fn has_strays(&self) -> bool {
        !self.strays.is_empty()
    }

    /// The completion queue was empty after they had been silenced.
    pub(crate) fn let_strays_go(&mut self) {
        self.strays.clear();
    }

    /// Books a completion of a queue pair that has no place.
    #[cold]
    pub(crate) fn absorb_stray(&mut self, completion: Completion<'_>) {
        let theirs = |stray: &&mut Link| stray.qp_num() == completion.qp_num();
        if let Some(stray) = self.strays.iter_mut().find(theirs) {
            stray.absorb(completion);
        }
    }
}
