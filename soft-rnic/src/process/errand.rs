//! Fetching a long message from memory of another process that cannot be mapped here.
//!
//! To read there takes as long as that process likes: a page may be its own to fill, or lie in
//! a file system of its own. So nobody does it who keeps others from anything: the message stays
//! in the ring, and its sender's requests with it, while somebody runs the errand and all other
//! processes are served. Who polls runs it by himself, with no lock held; the helper, which all
//! rely on, has a thread for it.

use std::sync::Arc;

use verbs_sys::ibv_sge;

use super::gather::make_room;
use super::incoming::{Drain, Side, read_there};
use super::memory::{Way, attach, note_refusal};
use super::pair::Pair;
use super::ring::Request;

use crate::memory::Span;

use rustix::io::Errno;

/// A message to be fetched.
pub(super) struct Errand {
    pair: Arc<Pair>,
    request: Request,
    /// The request's place in the ring.
    index: u32,
    /// Where the pieces are, there, and how long.
    pieces: Vec<(u64, usize)>,
    /// As long as the message at least.
    bytes: Vec<u8>,
}

/// What a process's next request waits for.
#[derive(Default)]
pub(super) enum Fetch {
    #[default]
    Nothing,
    Wanted(Box<Errand>),
    UnderWay,
    /// The message of the request at this place, if it could be fetched.
    Over(u32, Option<Vec<u8>>),
}

impl Fetch {
    pub(super) fn is_wanted(&self) -> bool {
        matches!(self, Fetch::Wanted(_))
    }

    pub(super) fn is_awaited(&self) -> bool {
        matches!(self, Fetch::Wanted(_) | Fetch::UnderWay)
    }
}

impl Errand {
    /// Whether the message is there.
    pub(super) fn run(&mut self) -> bool {
        let Errand { pair, request, pieces, bytes, .. } = self;
        if !pair.attaches() {
            return false;
        }
        let Some(_inside) = read_there(pair, request) else { return false };
        let mut rest = bytes.as_mut_slice();
        for &(from, len) in pieces.iter() {
            let Some(to) = rest.split_off_mut(..len) else { return false };
            let to = [Span { ptr: to.as_mut_ptr(), len }];
            // SAFETY: the bytes are ours.
            match unsafe { attach(pair.pid, Way::From, &to, from, len) } {
                Ok(()) => {}
                Err(Errno::FAULT | Errno::SRCH) => return false,
                Err(error) => {
                    note_refusal(pair.pid, error);
                    return false;
                }
            }
        }
        true
    }

    fn is_for(&self, side: &Side) -> bool {
        Arc::ptr_eq(&side.pair, &self.pair)
    }

    pub(super) fn pair(&self) -> &Arc<Pair> {
        &self.pair
    }
}

impl Side {
    /// Wants a message of `len` bytes in these pieces to be fetched, into a buffer that is kept
    /// for that. False if it cannot be.
    pub(super) fn want(&mut self, request: &Request, list: &[ibv_sge], len: usize) -> bool {
        let mut bytes = core::mem::take(&mut self.buffer);
        if self.pair.has_gone() || !make_room(&mut bytes, len) {
            return false;
        }
        let piece = |sge: &ibv_sge| {
            let told = self.pair.theirs.find(sge.lkey)?;
            let at = told.offset(sge.addr, sge.length.into())?;
            Some((told.addr.wrapping_add(at), sge.length as usize))
        };
        let Some(pieces) = list.iter().map(piece).collect() else { return false };
        let (pair, index) = (Arc::clone(&self.pair), self.requests);
        let errand = Errand { pair, request: *request, index, pieces, bytes };
        self.fetch = Fetch::Wanted(Box::new(errand));
        true
    }
}

impl Drain {
    /// An errand that somebody has to run; processes have turns.
    pub(super) fn errand(&mut self) -> Option<Box<Errand>> {
        if !core::mem::take(&mut self.wants) {
            return None;
        }
        // Whoever wants another one says so again.
        let at = self.sides.iter().position(|side| side.fetch.is_wanted())?;
        let wanted = core::mem::replace(&mut self.sides[at].fetch, Fetch::UnderWay);
        self.sides.rotate_left(at + 1);
        match wanted {
            Fetch::Wanted(errand) => Some(errand),
            _ => unreachable!("it was looked at"),
        }
    }

    /// An errand is over: its process's requests go on.
    pub(super) fn is_over(&mut self, errand: Errand, is_there: bool) {
        let is_its = |side: &&mut Side| errand.is_for(side);
        if let Some(side) = self.sides.iter_mut().find(is_its)
            && matches!(side.fetch, Fetch::UnderWay)
        {
            side.fetch = Fetch::Over(errand.index, is_there.then_some(errand.bytes));
        }
    }

    /// Nobody can run the errand of a process.
    pub(super) fn give_up(&mut self, pair: &Arc<Pair>) {
        if let Some(side) = self.sides.iter_mut().find(|side| Arc::ptr_eq(&side.pair, pair))
            && side.fetch.is_awaited()
        {
            side.fetch = Fetch::Over(side.requests, None);
        }
    }
}
