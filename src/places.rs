//! Places of a receiver's links: there are as many as there may be live peers at a time, and they
//! are reused. Numbers of peers are not.

use std::collections::VecDeque;

use conn_core::wr::WrClass;
use verbs_safe::RemoteSpan;

use crate::error::{CloseReason, ConnectError, Losses, RecvError};
use crate::index::QpIndex;
use crate::keepalive::PeerWatch;
use crate::peer::Peer;
use crate::posting::QpPosting;
use crate::wire::ConnectedQp;

/// A link: a receiver's side of one queue pair, by which it reports to its peer.
pub(crate) trait Peered {
    fn posting(&self) -> &QpPosting;
    fn posting_mut(&mut self) -> &mut QpPosting;

    /// Writes the words to the peer which say that nothing more is taken.
    fn write_stop(&mut self, words: [u64; 2], remote: RemoteSpan) {
        let posting = self.posting_mut();
        let staged = posting.stage_words(&words, remote, WrClass::Control, true);
        if !matches!(staged, Ok(Some(_))) || posting.post().is_err() {
            let qp = posting.qp_num();
            tracing::debug!(qp, "no room to say that nothing more is taken");
        }
    }
}

/// A link and the receiver's state of it.
#[derive(Debug)]
pub(crate) struct LinkPlace<L> {
    pub(crate) link: L,
    pub(crate) peer: Peer,
    /// Messages that were taken.
    pub(crate) messages: u64,
    /// Its end was reported.
    pub(crate) is_told: bool,
    /// Something has arrived since the last round of probes.
    pub(crate) has_spoken: bool,
    /// It is among those that the receiver settles because the program holds their messages.
    pub(crate) is_lender: bool,
    /// It is in the queue of links that may have messages.
    is_ready: bool,
}

/// The links of a receiver, by place.
#[derive(Debug)]
pub(crate) struct LinkPlaces<L> {
    places: Vec<Option<LinkPlace<L>>>,
    /// From the numbers of queue pairs to places.
    index: QpIndex,
    max_peers: u32,
    joined: u32,
    /// Links without a reported end.
    open: u32,
    /// Places that may have something to hand out or to report, each once.
    ready: VecDeque<u32>,
    losses: Losses,
}

impl<L: Peered> LinkPlaces<L> {
    pub(crate) fn new(max_peers: u32) -> LinkPlaces<L> {
        LinkPlaces {
            places: Vec::new(),
            index: QpIndex::default(),
            max_peers,
            joined: 0,
            open: 0,
            ready: VecDeque::new(),
            losses: Losses::default(),
        }
    }

    /// Peers that have joined so far.
    pub(crate) fn joined(&self) -> u32 {
        self.joined
    }

    /// Peers without a reported end.
    #[inline]
    pub(crate) fn open(&self) -> u32 {
        self.open
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &LinkPlace<L>> {
        self.places.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut LinkPlace<L>> {
        self.places.iter_mut().flatten()
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&LinkPlace<L>> {
        self.places.get(at as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut LinkPlace<L>> {
        self.places.get_mut(at as usize)?.as_mut()
    }

    /// The place of a queue pair.
    #[inline]
    pub(crate) fn find(&mut self, qp_num: u32) -> Option<u32> {
        self.index.find(qp_num)
    }

    /// The queue pair of a peer, while it has a place.
    pub(crate) fn qp_of(&self, peer: Peer) -> Option<&ConnectedQp> {
        let place = self.iter().find(|place| place.peer == peer);
        place.map(|place| place.link.posting().qp())
    }

    /// Returns the reason why there is nothing: not yet, or never.
    pub(crate) fn nothing(&self) -> RecvError {
        match self.open > 0 || self.joined == 0 {
            true => RecvError::Empty,
            false => self.losses.end(self.joined),
        }
    }
}

/// Coming and going.
impl<L: Peered> LinkPlaces<L> {
    /// The place to [release](Self::release) for one more link, if all are taken: that of a link
    /// with a reported end.
    pub(crate) fn to_release(&self) -> Result<Option<u32>, ConnectError> {
        if self.places.len() < self.max_peers as usize || self.places.iter().any(Option::is_none) {
            return Ok(None);
        }
        let has_gone =
            |place: &Option<LinkPlace<L>>| place.as_ref().is_some_and(|place| place.is_told);
        let at = self.places.iter().position(has_gone);
        at.map(|at| Some(at as u32)).ok_or(ConnectError::TooManyPeers(self.max_peers))
    }

    /// Takes a link out of its place.
    pub(crate) fn release(&mut self, at: u32) -> Option<LinkPlace<L>> {
        let place = self.places.get_mut(at as usize)?.take()?;
        self.index.remove(place.link.posting().qp_num());
        self.ready.retain(|other| *other != at);
        Some(place)
    }

    /// Gives a link a place, and its peer a number.
    pub(crate) fn add(&mut self, link: L) -> (u32, Peer) {
        let peer = Peer(self.joined);
        self.joined += 1;
        self.open += 1;
        let at = self.places.iter().position(Option::is_none).unwrap_or(self.places.len());
        self.index.insert(link.posting().qp_num(), at as u32);
        let (is_told, has_spoken) = (false, true);
        let (is_ready, is_lender) = (false, false);
        let place = LinkPlace { link, peer, messages: 0, is_told, has_spoken, is_lender, is_ready };
        match self.places.get_mut(at) {
            Some(vacant) => *vacant = Some(place),
            None => self.places.push(Some(place)),
        }
        (at as u32, peer)
    }

    /// Reports the end of a link.
    ///
    /// # Errors
    /// The reason, unless the peer has closed the connection.
    #[cold]
    pub(crate) fn tell(&mut self, at: u32, reason: CloseReason) -> Result<(), RecvError> {
        let Some(place) = self.get_mut(at) else { return Ok(()) };
        place.is_told = true;
        let peer = place.peer;
        self.open -= 1;
        match reason {
            CloseReason::Closed => Ok(()),
            reason => Err(self.losses.report(peer, reason)),
        }
    }
}

/// Turns.
impl<L: Peered> LinkPlaces<L> {
    /// Puts a link at the end of those that may have something, if it is not there.
    #[inline]
    pub(crate) fn make_ready(&mut self, at: u32) {
        if let Some(place) = self.get_mut(at)
            && !place.is_ready
        {
            place.is_ready = true;
            self.ready.push_back(at);
        }
    }

    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the first link that may have something.
    #[inline]
    pub(crate) fn next_ready(&mut self) -> Option<u32> {
        let at = self.ready.pop_front()?;
        if let Some(place) = self.get_mut(at) {
            place.is_ready = false;
        }
        Some(at)
    }

    /// Probes peers; the ones that turn out to have failed are reported in their turn.
    pub(crate) fn ask(&mut self, mut is_meant: impl FnMut(&mut LinkPlace<L>) -> bool) {
        for at in 0..self.places.len() as u32 {
            let Some(place) = self.get_mut(at) else { continue };
            // Of one that has ended, requests may have been planned that were never posted.
            let is_free =
                |posting: &QpPosting| posting.ended().is_some() || !posting.awaits_completion();
            if !place.is_told && is_meant(place) && is_free(place.link.posting()) {
                // A failure ends the link.
                let _ = place.link.posting_mut().probe();
                self.make_ready(at);
            }
        }
    }

    /// A round of `watch` begins: probes the peers from which nothing has come since the one before.
    #[cold]
    pub(crate) fn ask_silent(&mut self, watch: &mut PeerWatch) {
        let mut asks = false;
        self.ask(|place| {
            let is_silent = !std::mem::take(&mut place.has_spoken);
            asks |= is_silent;
            is_silent
        });
        watch.asks(asks);
    }
}
