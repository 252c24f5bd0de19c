//! Where the data of a message from another process are: with its request, in the ring of
//! data, or in the sender's regions.

use core::mem::size_of;
use std::sync::Arc;

use verbs_sys::ibv_sge;

use crate::limits::{self, MAX_SGE};
use crate::memory::{Span, Spans};

use super::errand::Fetch;
use super::incoming::{Side, carries_data};
use super::region::Window;
use super::ring::{BODY, DATA, Place, Request};

/// Where the pieces of a message are put together.
pub(super) struct Scratch {
    pub(super) local: Spans,
    pub(super) room: Spans,
    /// A list of pieces, as it was read: its sender can change it at any time.
    list: [ibv_sge; MAX_SGE as usize],
}

impl Scratch {
    pub(super) fn new() -> Scratch {
        let none = ibv_sge { addr: 0, length: 0, lkey: 0 };
        let list = [none; MAX_SGE as usize];
        Scratch { local: Spans::new(), room: Spans::new(), list }
    }
}

/// Bytes that are kept for the next message that has to be fetched.
const KEPT: usize = 4 << 20;

/// Whether the data of a message are at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gathered {
    There,
    /// They have to be fetched first.
    Later,
    Never,
}

impl Side {
    /// Finds the data of a message.
    pub(super) fn gather(&mut self, request: &Request, scratch: &mut Scratch) -> Gathered {
        let local = &mut scratch.local;
        local.clear();
        if !carries_data(request) || request.len == 0 {
            return Gathered::There;
        }
        let len = request.len as usize;
        let offset = request.body[0] as usize;
        match request.place {
            Place::Body if len <= BODY => {
                // The request is a copy of ours, and stays where it is.
                let ptr = request.body.as_ptr().cast::<u8>().cast_mut();
                local.push(Span { ptr, len });
                Gathered::There
            }
            Place::Data if offset <= DATA as usize && len <= DATA as usize - offset => {
                // SAFETY: within the ring of data.
                let ptr = unsafe { self.pair.incoming.data().add(offset) };
                local.push(Span { ptr, len });
                Gathered::There
            }
            Place::Regions => self.gather_regions(request, offset, scratch),
            _ => Gathered::Never,
        }
    }

    /// Finds the pieces of a message in the sender's regions.
    fn gather_regions(
        &mut self,
        request: &Request,
        offset: usize,
        scratch: &mut Scratch,
    ) -> Gathered {
        let Scratch { local, list, .. } = scratch;
        let Some(list) = self.read_list(offset, request.body[1], list) else {
            return Gathered::Never;
        };
        let total: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
        // Nothing is fetched, nor room made for it, that is not as it was said to be.
        if total != u64::from(request.len) || total > limits::MAX_MESSAGE {
            return Gathered::Never;
        }
        for sge in list {
            match self.piece(sge) {
                Some(ptr) => local.push(Span { ptr, len: sge.length as usize }),
                None => return self.fetched(request, list, total as usize, local),
            }
        }
        Gathered::There
    }

    /// Reads a list of pieces, once.
    fn read_list<'l>(&self, offset: usize, n: u64, to: &'l mut [ibv_sge]) -> Option<&'l [ibv_sge]> {
        let to = to.get_mut(..usize::try_from(n).ok()?)?;
        let room = (DATA as usize).checked_sub(offset)?;
        if size_of_val(to) > room {
            return None;
        }
        // SAFETY: within the ring of data. The sender may write there meanwhile: then it is
        // any list, as what is judged is the copy.
        unsafe {
            let from = self.pair.incoming.data().add(offset).cast::<[u8; size_of::<ibv_sge>()]>();
            for (i, sge) in to.iter_mut().enumerate() {
                let bytes = from.add(i).read_volatile();
                *sge = core::mem::transmute::<[u8; size_of::<ibv_sge>()], ibv_sge>(bytes);
            }
        }
        Some(to)
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

    /// A message that lies in memory which cannot be mapped.
    fn fetched(
        &mut self,
        request: &Request,
        list: &[ibv_sge],
        len: usize,
        local: &mut Spans,
    ) -> Gathered {
        match core::mem::take(&mut self.fetch) {
            Fetch::Over(index, bytes) if index == self.requests => {
                let Some(bytes) = bytes.filter(|bytes| bytes.len() >= len) else {
                    return Gathered::Never;
                };
                self.buffer = bytes;
                local.clear();
                local.push(Span { ptr: self.buffer.as_mut_ptr(), len });
                Gathered::There
            }
            _ if self.want(request, list, len) => Gathered::Later,
            _ => Gathered::Never,
        }
    }

    /// Gives back what only a very long message needed, and what was fetched for one that has
    /// ended in another way.
    #[inline]
    pub(super) fn tidy(&mut self) {
        if self.buffer.len() > KEPT {
            self.buffer = Vec::new();
        }
        if matches!(&self.fetch, Fetch::Over(index, _) if *index != self.requests) {
            self.fetch = Fetch::Nothing;
        }
    }
}

/// Makes a buffer as long as a message, if there is memory for it: its length is what
/// another process says. What the buffer holds is written over.
pub(super) fn make_room(buffer: &mut Vec<u8>, len: usize) -> bool {
    let more = len.saturating_sub(buffer.len());
    if buffer.try_reserve_exact(more).is_err() {
        return false;
    }
    buffer.resize(buffer.len() + more, 0);
    true
}
