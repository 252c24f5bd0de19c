//! Where the data of a message from another process are: with its request, in the ring of
//! data, or in the sender's regions.

use core::mem::size_of;
use std::sync::Arc;

use verbs_sys::ibv_sge;

use crate::limits::{self, MAX_SGE};
use crate::memory::{Span, Spans};

use super::incoming::{Side, carries_data};
use super::memory::{Way, attach};
use super::region::Window;
use super::ring::{BODY, DATA, Place, Request};

/// Where the pieces of a message are put together.
pub(super) struct Scratch {
    pub(super) local: Spans,
    pub(super) room: Spans,
    /// Data that had to be fetched from memory that cannot be mapped.
    fetched: Vec<u8>,
}

impl Scratch {
    /// Bytes that are kept for the next message that has to be fetched.
    const KEPT: usize = 4 << 20;

    pub(super) fn new() -> Scratch {
        Scratch { local: Spans::new(), room: Spans::new(), fetched: Vec::new() }
    }

    /// Gives back what only a very long message needed.
    #[inline]
    pub(super) fn tidy(&mut self) {
        if self.fetched.len() > Self::KEPT {
            self.fetched = Vec::new();
        }
    }
}

impl Side {
    /// Finds the data of a message. False if they cannot be read.
    pub(super) fn gather(&mut self, request: &Request, scratch: &mut Scratch) -> bool {
        let Scratch { local, fetched, .. } = scratch;
        local.clear();
        if !carries_data(request) || request.len == 0 {
            return true;
        }
        let len = request.len as usize;
        let offset = request.body[0] as usize;
        match request.place {
            Place::Body if len <= BODY => {
                // The request is a copy of ours, and stays where it is.
                let ptr = request.body.as_ptr().cast::<u8>().cast_mut();
                local.push(Span { ptr, len });
                true
            }
            Place::Data if offset <= DATA as usize && len <= DATA as usize - offset => {
                // SAFETY: within the ring of data.
                let ptr = unsafe { self.pair.incoming.data().add(offset) };
                local.push(Span { ptr, len });
                true
            }
            Place::Regions => self.gather_regions(request, offset, local, fetched),
            _ => false,
        }
    }

    /// Finds the pieces of a message in the sender's regions.
    fn gather_regions(
        &mut self,
        request: &Request,
        offset: usize,
        local: &mut Spans,
        fetched: &mut Vec<u8>,
    ) -> bool {
        let n = request.body[1] as usize;
        let size = size_of::<ibv_sge>();
        let room = (DATA as usize).saturating_sub(offset);
        let fits = n <= MAX_SGE as usize && n * size <= room;
        if !fits || u64::from(request.len) > limits::MAX_MESSAGE {
            return false;
        }
        let mut total = 0;
        for i in 0..n {
            // SAFETY: within the ring of data, and aligned: lists begin at lines.
            let sge = unsafe {
                let at = self.pair.incoming.data().add(offset + i * size);
                at.cast::<ibv_sge>().read_unaligned()
            };
            total += u64::from(sge.length);
            match self.piece(&sge) {
                Some(ptr) => local.push(Span { ptr, len: sge.length as usize }),
                None => return self.fetch(request, offset, n, local, fetched),
            }
        }
        total == u64::from(request.len)
    }

    /// A piece of a region of the sender, mapped here.
    fn piece(&mut self, sge: &ibv_sge) -> Option<*mut u8> {
        let told = self.pair.theirs.find(sge.lkey)?;
        let offset = told.offset(sge.addr, sge.length.into())?;
        let known =
            |(key, window): &(u32, Arc<Window>)| *key == sge.lkey && window.version == told.version;
        if !self.window.as_ref().is_some_and(known) {
            self.window = Some((sge.lkey, self.pair.window(sge.lkey, &told)?));
        }
        self.window.as_ref()?.1.at(offset, sge.length.into())
    }

    /// Fetches a message that lies in memory which cannot be mapped.
    fn fetch(
        &mut self,
        request: &Request,
        offset: usize,
        n: usize,
        local: &mut Spans,
        fetched: &mut Vec<u8>,
    ) -> bool {
        if !self.pair.attaches || self.pair.has_gone() {
            return false;
        }
        // What it holds is written over.
        if fetched.len() < request.len as usize {
            *fetched = vec![0; request.len as usize];
        }
        let mut done = 0;
        for i in 0..n {
            // SAFETY: as in `gather_regions`, which has checked it.
            let sge = unsafe {
                let at = self.pair.incoming.data().add(offset + i * size_of::<ibv_sge>());
                at.cast::<ibv_sge>().read_unaligned()
            };
            let Some(told) = self.pair.theirs.find(sge.lkey) else { return false };
            let Some(at) = told.offset(sge.addr, sge.length.into()) else { return false };
            let len = sge.length as usize;
            let Some(to) = fetched.get_mut(done..done + len) else { return false };
            let to = [Span { ptr: to.as_mut_ptr(), len }];
            // SAFETY: the bytes are ours.
            let read =
                unsafe { attach(self.pair.pid, Way::From, &to, told.addr.wrapping_add(at), len) };
            if read.is_err() {
                return false;
            }
            done += len;
        }
        local.clear();
        local.push(Span { ptr: fetched.as_mut_ptr(), len: done });
        done == request.len as usize
    }
}
