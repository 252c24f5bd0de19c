//! Fetching a long message from memory of another process that cannot be mapped here.
//!
//! A read there takes as long as that process likes: a page may be its own to fill, or lie in
//! a file system of its own. So no thread does it while others wait for that thread: the message
//! stays in the ring, and its sender's requests with it, while a thread runs the fetch and all
//! other processes are served. A polling thread runs it itself, with no lock held; the progress
//! thread, which all rely on, leaves it to one of a few threads (see `workers`).

use std::sync::Arc;

use verbs_sys::ibv_sge;

use crate::memory::attach::{AttachDirection, attach};
use crate::memory::paging::Needed;
use crate::memory::span::MemSpan;
use crate::objects::state::ProgressEngine;
use crate::peers::process::pair::ProcessPair;
use crate::peers::process::ring::RingRequest;
use crate::peers::process::side::{DeferredFetch, FetchState, ReadSide, read_there};

use super::gather::make_room;

use rustix::io::Errno;

impl DeferredFetch {
    /// Fetches the message, or brings the pages that it needs; false if that failed.
    pub(super) fn run(&mut self) -> bool {
        if let Some(pages) = &self.pages {
            return pages.bring(|| !self.pair.is_dead());
        }
        let DeferredFetch { pair, request, list, bytes, part, .. } = self;
        let (mut skip, len) = *part;
        if !pair.attaches() || !make_room(bytes, len) {
            return false;
        }
        let Some(_inside) = read_there(pair, request) else { return false };
        let Some(mut rest) = bytes.get_mut(..len) else { return false };
        for sge in list.iter() {
            let Some(from) = address(pair, sge) else { return false };
            let before = skip.min(sge.length as usize);
            let len = rest.len().min(sge.length as usize - before);
            let from = from.wrapping_add(before as u64);
            skip -= before;
            let Some(to) = rest.split_off_mut(..len) else { return false };
            if len == 0 {
                continue;
            }
            let to = [MemSpan::from_slice(to)];
            // SAFETY: the bytes are ours.
            match unsafe { attach(pair.pid, AttachDirection::From, &to, from, len) } {
                Ok(()) => {}
                Err(Errno::FAULT | Errno::SRCH) => return false,
                Err(error) => {
                    pair.refuse(error);
                    return false;
                }
            }
        }
        rest.is_empty()
    }

    fn is_for(&self, side: &ReadSide) -> bool {
        Arc::ptr_eq(&side.pair, &self.pair)
    }

    pub(super) fn pair(&self) -> &Arc<ProcessPair> {
        &self.pair
    }
}

/// Returns the address of a piece in its process, if that has it registered. It stays so while the
/// process is said to be read there.
fn address(pair: &ProcessPair, sge: &ibv_sge) -> Option<u64> {
    let published = pair.theirs.find(sge.lkey)?;
    let at = published.offset(sge.addr, sge.length.into())?;
    Some(published.addr.wrapping_add(at))
}

impl ReadSide {
    /// Wants a part of a message in these pieces to be fetched: where it begins, and its length.
    /// False if it cannot be.
    pub(super) fn want(
        &mut self,
        request: &RingRequest,
        list: &[ibv_sge],
        part: (usize, usize),
    ) -> bool {
        if self.pair.has_gone() {
            return false;
        }
        if list.iter().any(|sge| address(&self.pair, sge).is_none()) {
            return false;
        }
        let (pair, index) = (Arc::clone(&self.pair), self.requests);
        let (list, bytes) = (list.to_vec(), Vec::new());
        let fetch =
            DeferredFetch { pair, request: *request, index, list, part, pages: None, bytes };
        self.fetch = FetchState::Wanted(Box::new(fetch));
        true
    }

    /// Wants pages to be brought that a request needs.
    #[cold]
    pub(super) fn want_pages(&mut self, request: &RingRequest, needed: Needed) {
        let (pair, index) = (Arc::clone(&self.pair), self.requests);
        let (list, part, bytes, pages) = (Vec::new(), (0, 0), Vec::new(), Some(needed));
        let fetch = DeferredFetch { pair, request: *request, index, list, part, pages, bytes };
        self.fetch = FetchState::Wanted(Box::new(fetch));
    }
}

impl ProgressEngine {
    /// The next deferred fetch to run, of a process for which `may_run` holds; processes take
    /// turns.
    pub(super) fn next_fetch(
        &mut self,
        may_run: impl Fn(i32) -> bool,
    ) -> Option<Box<DeferredFetch>> {
        if !core::mem::take(&mut self.wants) {
            return None;
        }
        // `run_of` sets `wants` again for every process that still wants one.
        let is_next = |side: &ReadSide| side.fetch.is_wanted() && may_run(side.pair.pid);
        let at = self.sides.iter().position(is_next)?;
        let wanted = core::mem::replace(&mut self.sides[at].fetch, FetchState::UnderWay);
        self.sides.rotate_left(at + 1);
        match wanted {
            FetchState::Wanted(mut fetch) => {
                fetch.bytes = core::mem::take(&mut self.spare);
                Some(fetch)
            }
            _ => unreachable!("it was looked at"),
        }
    }

    /// A deferred fetch was not run, and still has to be.
    pub(super) fn put_back(&mut self, fetch: Box<DeferredFetch>) {
        if let Some(side) = self.sides.iter_mut().find(|side| fetch.is_for(side))
            && matches!(side.fetch, FetchState::UnderWay)
        {
            side.fetch = FetchState::Wanted(fetch);
        }
    }

    /// A deferred fetch is over: its process's requests are resumed.
    pub(super) fn is_over(&mut self, fetch: DeferredFetch, is_there: bool) {
        let is_its = |side: &&mut ReadSide| fetch.is_for(side);
        if let Some(side) = self.sides.iter_mut().find(is_its)
            && matches!(side.fetch, FetchState::UnderWay)
        {
            if let Some(needed) = fetch.pages {
                side.brought = Some(Box::new((fetch.index, needed, is_there)));
                side.fetch = FetchState::Nothing;
                self.spare = fetch.bytes;
                return;
            }
            side.fetch = FetchState::Over(fetch.index, fetch.part, is_there.then_some(fetch.bytes));
        }
    }

    /// The fetch of a process cannot be run any more: it ends without the message.
    pub(super) fn give_up(&mut self, pair: &Arc<ProcessPair>) {
        if let Some(side) = self.sides.iter_mut().find(|side| Arc::ptr_eq(&side.pair, pair))
            && side.fetch.is_awaited()
        {
            side.fetch = FetchState::Over(side.requests, (0, 0), None);
        }
    }
}
