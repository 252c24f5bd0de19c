//! The data of a message from another process: they are with its request, in the ring of data, or
//! in the sender's regions.

use verbs_sys::ibv_sge;

use crate::limits;
use crate::memory::span::{MemSpan, SpanBuf, Spans};

use crate::peers::process::ring::{BODY, PayloadLocation, RingRequest};
use crate::peers::process::side::{
    FetchState, ReadSide, SgeList, SourceRegion, carries_data, comes_in_parts,
};

/// Sources that are kept from one message to the next, so that messages out of the same regions
/// have them looked up once.
pub(super) const KEPT_SOURCES: usize = 4;

/// Bytes that are kept for the next message that has to be fetched: of all processes together,
/// and enough for those that are frequent.
pub(super) const SPARE: usize = 4 << 20;

/// The data of a message, or the reason that they are not at hand.
pub(super) enum Gathered<'g> {
    There(Spans<'g>),
    /// They have to be fetched first.
    Later,
    /// They have to be fetched, in parts, because they are long: a list of this number of pieces.
    InParts(usize),
    Never,
}

impl ReadSide {
    /// Finds the data of a message.
    pub(super) fn gather<'g>(
        &'g mut self,
        request: &'g RingRequest,
        room: &'g mut SpanBuf,
        list: &mut SgeList,
    ) -> Gathered<'g> {
        let mut local = room.start();
        if !carries_data(request) || request.len == 0 {
            return Gathered::There(local);
        }
        let len = request.len as usize;
        let offset = request.body[0] as usize;
        let found = match request.location {
            PayloadLocation::Body if len <= BODY => {
                let ptr = request.body.as_ptr().cast::<u8>().cast_mut();
                // SAFETY: the request is a copy of ours; it is only read.
                Some(unsafe { MemSpan::private(ptr, len) })
            }
            PayloadLocation::Data => self.pair.incoming.data_at(offset, len),
            PayloadLocation::Regions => return self.gather_regions(request, offset, local, list),
            _ => None,
        };
        let Some(found) = found else { return Gathered::Never };
        local.push(found);
        Gathered::There(local)
    }

    /// Finds the pieces of a message in the sender's regions.
    fn gather_regions<'g>(
        &'g mut self,
        request: &RingRequest,
        offset: usize,
        mut local: Spans<'g>,
        list: &mut SgeList,
    ) -> Gathered<'g> {
        let Some(list) = self.read_list(offset, request.body[1], list) else {
            return Gathered::Never;
        };
        let total: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
        // Nothing is fetched, nor room made for it, that is not as it was said to be.
        if total != u64::from(request.len) || total > limits::MAX_MESSAGE {
            return Gathered::Never;
        }
        let maps_all = list.iter().enumerate().all(|(nth, sge)| self.find_source(nth, sge));
        if !maps_all && comes_in_parts(request, total as usize) {
            return Gathered::InParts(list.len());
        }
        if !maps_all {
            return self.fetched(request, list, local);
        }
        for (sge, source) in list.iter().zip(&self.sources) {
            match source.window.at(source.offset, sge.length.into()) {
                Some(piece) => local.push(piece),
                None => return Gathered::Never,
            }
        }
        Gathered::There(local)
    }

    /// Reads a list of pieces, once.
    fn read_list<'l>(&self, offset: usize, n: u64, to: &'l mut [ibv_sge]) -> Option<&'l [ibv_sge]> {
        let to = to.get_mut(..usize::try_from(n).ok()?)?;
        let from = self.pair.incoming.data_at(offset, size_of_val(to))?;
        // SAFETY: the list's own bytes, and as many of the ring; any bytes are a list. The sender
        // may write there meanwhile: then it is any list, as what is judged is the copy.
        unsafe { crate::copy::in_order(to.as_mut_ptr().cast(), from.ptr(), size_of_val(to)) };
        Some(to)
    }

    /// Finds the region that the piece at an index of a list lies in; returns true if it is mapped.
    fn find_source(&mut self, nth: usize, sge: &ibv_sge) -> bool {
        let Some(published) = self.pair.theirs.find(sge.lkey) else { return false };
        let Some(offset) = published.offset(sge.addr, sge.length.into()) else { return false };
        if let Some(known) = self.sources.get_mut(nth)
            && known.key == sge.lkey
            && known.window.is_of(&published)
        {
            known.offset = offset;
            return true;
        }
        // Those behind it are found after it.
        self.sources.truncate(nth);
        let Some(window) = self.pair.window(sge.lkey, &published) else { return false };
        self.sources.push(SourceRegion { key: sge.lkey, window, offset });
        true
    }

    /// A message that lies in memory which cannot be mapped.
    pub(super) fn fetched<'g>(
        &'g mut self,
        request: &RingRequest,
        list: &[ibv_sge],
        mut local: Spans<'g>,
    ) -> Gathered<'g> {
        let len = request.len as usize;
        match core::mem::take(&mut self.fetch) {
            FetchState::Over(index, _, None) if index == self.requests => Gathered::Never,
            // Another part is not it: that of one which arrived in parts before, or was shorter.
            FetchState::Over(index, part, Some(bytes))
                if (index, part) == (self.requests, (0, len)) =>
            {
                self.buffer = bytes;
                local.push(MemSpan::from_slice(&mut self.buffer[..len]));
                Gathered::There(local)
            }
            _ if self.want(request, list, (0, len)) => Gathered::Later,
            _ => Gathered::Never,
        }
    }

    /// Gives back where a fetched message was, and what was fetched for one that has ended in
    /// another way.
    #[inline]
    pub(super) fn tidy(&mut self, spare: &mut Vec<u8>) {
        self.sources.truncate(KEPT_SOURCES);
        if self.buffer.capacity() > 0 {
            let buffer = core::mem::take(&mut self.buffer);
            if buffer.len() <= SPARE && buffer.len() > spare.len() {
                *spare = buffer;
            }
        }
        if matches!(&self.fetch, FetchState::Over(index, ..) if *index != self.requests) {
            self.fetch = FetchState::Nothing;
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
    // Bounded: by the room that was reserved.
    buffer.resize(buffer.len() + more, 0);
    true
}
