//! Putting requests into the ring to another process, with their data.

use core::sync::atomic::{Ordering, fence};

use rustix::io::Errno;
use verbs_sys::ibv_sge;

use crate::lock::Guard;
use crate::memory::null_memory::is_zeroes;
use crate::memory::on_demand::to_vec;
use crate::memory::span::{BufferOwnership, MemSpan, Spans, copy_spans};

use crate::peers::process::pair::ProcessPair;
use crate::peers::process::ring::{
    BODY, DATA, EntryOp, PayloadLocation, RequestWriter, RingRequest,
};

/// Longer messages are copied by the receiver, from where they are, if it can map that.
pub(super) const COPIED: u64 = 4 << 10;
/// Messages that it cannot map are, up to here, copied into the ring as well: it would fetch them
/// into memory of its own first, because that takes as long as this process likes. So each end
/// copies once, and both at a time.
pub(super) const COPIED_UNMAPPED: u64 = 64 << 10;
const _: () = assert!(COPIED_UNMAPPED <= DATA as u64 / 4, "the next ones are copied meanwhile");

/// The writing side of a ring, locked once for a list; what was put is visible when it
/// is let go.
pub(super) struct OutRing<'a> {
    pub(super) pair: &'a ProcessPair,
    held: Option<Guard<'a, RequestWriter>>,
    any: bool,
}

impl<'a> OutRing<'a> {
    pub(super) fn new(pair: &'a ProcessPair) -> OutRing<'a> {
        OutRing { pair, held: None, any: false }
    }

    /// Room for a request of queue pair `qpn`, and where its data go. Without any, it is
    /// called again when there is.
    #[inline]
    fn room(&mut self, qpn: u32, len: u32) -> Option<u32> {
        self.look_for_room(len).or_else(|| {
            self.pair.block(qpn);
            // SeqCst: either we see what was read since, or the reader sees that we wait.
            fence(Ordering::SeqCst);
            host::point();
            self.look_for_room(len)
        })
    }

    #[inline]
    fn look_for_room(&mut self, len: u32) -> Option<u32> {
        let pair = self.pair;
        let requests = self.held.get_or_insert_with(|| pair.requests.lock());
        let room = requests.room(&pair.incoming.requests_read, len);
        room.unwrap_or_else(|_broken| {
            pair.declare_dead();
            None
        })
    }

    /// The ring, locked until it is let go, and how many requests without data fit into it.
    #[inline]
    pub(super) fn slots(&mut self) -> (&mut RequestWriter, u32) {
        let pair = self.pair;
        let requests = self.held.get_or_insert_with(|| pair.requests.lock());
        let slots = requests.slots(&pair.incoming.requests_read).unwrap_or_else(|_broken| {
            pair.declare_dead();
            0
        });
        (requests, slots)
    }

    /// Puts a request without data; returns true if there was room.
    #[inline(always)]
    pub(super) fn put(&mut self, request: &RingRequest) -> bool {
        if self.room(request.from, 0).is_none() {
            return false;
        }
        if let Some(requests) = &mut self.held {
            requests.put(&self.pair.outgoing, request, None);
        }
        true
    }

    /// Puts a request and its data, which are `local`, or stay in the regions that `sges` say;
    /// returns true if there was room.
    // Always: a request that is moved about is read before it is written, as the
    // processor sees it (see `WqeRef`).
    #[inline(always)]
    pub(super) fn put_message(
        &mut self,
        request: &mut RingRequest,
        local: &[MemSpan<'_>],
        sges: Option<&[ibv_sge]>,
    ) -> bool {
        let len = request.len;
        let is_write = request.what == EntryOp::Write;
        if len == 0 || (len as usize <= BODY && !is_write) {
            let body = MemSpan::from_words(&mut request.body);
            // SAFETY: the pieces were checked; the body is ours.
            unsafe { copy_spans(&[body], local, BufferOwnership::Owned) };
            return self.put(request);
        }
        self.put_apart(request, local, sges)
    }

    /// [`put_message`](Self::put_message) of data that do not go with the request.
    #[inline(always)]
    pub(super) fn put_apart(
        &mut self,
        request: &mut RingRequest,
        local: &[MemSpan<'_>],
        sges: Option<&[ibv_sge]>,
    ) -> bool {
        if let Some(sges) = sges {
            // A null region has any address here, and begins at 0 for others.
            let named = |(sge, span): (&ibv_sge, &MemSpan<'_>)| match is_zeroes(span) {
                true => ibv_sge { addr: 0, ..*sge },
                false => *sge,
            };
            let pieces = sges.iter().filter(|sge| sge.length > 0).zip(local);
            let list: Vec<ibv_sge> = pieces.map(named).collect();
            request.body[1] = list.len() as u64;
            return self.put_list(request, &list);
        }
        self.put_data(request, local)
    }

    /// Puts a request and its data, which go into the ring of data; returns true if there was
    /// room.
    pub(super) fn put_data(&mut self, request: &mut RingRequest, local: &[MemSpan<'_>]) -> bool {
        let len = request.len;
        let Some(at) = self.room(request.from, len) else { return false };
        request.location = PayloadLocation::Data;
        request.body[0] = (at % DATA).into();
        let Some(to) = self.data_at(at, len) else { return false };
        // What a WRITE sends, the program may write to meanwhile.
        // SAFETY: the pieces were checked, and programs access them atomically only.
        unsafe { copy_spans(&[to], local, BufferOwnership::Shared) };
        if let Some(requests) = &mut self.held {
            requests.put(&self.pair.outgoing, request, Some((at, len)));
        }
        true
    }

    /// [`put_data`](Self::put_data) out of memory that may have gone, which is an error.
    pub(super) fn put_copied(
        &mut self,
        request: &mut RingRequest,
        local: &Spans<'_>,
    ) -> Result<bool, Errno> {
        if !local.on_demand {
            return Ok(self.put_data(request, local.as_slice()));
        }
        // SAFETY: the pieces were checked.
        let mut bytes = unsafe { to_vec(local.as_slice()) }?;
        Ok(self.put_data(request, &[MemSpan::from_slice(&mut bytes)]))
    }

    fn put_list(&mut self, request: &mut RingRequest, list: &[ibv_sge]) -> bool {
        let size = size_of_val(list) as u32;
        let Some(at) = self.room(request.from, size) else { return false };
        request.location = PayloadLocation::Regions;
        request.body[0] = (at % DATA).into();
        let Some(to) = self.data_at(at, size) else { return false };
        // SAFETY: there is room for the list.
        unsafe { crate::copy::in_order(to.ptr(), list.as_ptr().cast(), size_of_val(list)) };
        if let Some(requests) = &mut self.held {
            requests.put(&self.pair.outgoing, request, Some((at, size)));
        }
        true
    }

    fn data_at(&self, at: u32, len: u32) -> Option<MemSpan<'a>> {
        self.pair.outgoing.data_at((at % DATA) as usize, len as usize)
    }

    /// Publishes what was put and lets go of the ring.
    pub(super) fn release(&mut self) {
        if let Some(mut requests) = self.held.take() {
            self.any |= requests.publish(&self.pair.outgoing);
        }
        if core::mem::take(&mut self.any) {
            self.pair.wake();
        }
    }
}

impl Drop for OutRing<'_> {
    fn drop(&mut self) {
        self.release();
    }
}
