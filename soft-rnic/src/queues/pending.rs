//! The requests of a send queue that wait.

use verbs_sys::*;

use crate::alloc::{self, OutOfMemory};
use crate::queues::address::DatagramAddress;
use crate::queues::qp_state::QpTransport;
use crate::queues::wqe::{Wqe, WqeRef};

/// Requests that were posted and cannot proceed, oldest first. A request that executes at once is
/// never put here.
///
/// The memory is there from the start, so that a post cannot fail for want of it:
/// slot `i` has `max_sge` entries of `sges` and `max_inline` bytes of `inline`.
#[derive(Debug)]
pub(crate) struct PendingWqes {
    wqes: Vec<Option<Wqe>>,
    lens: Vec<u32>,
    sges: Vec<ibv_sge>,
    inline: Vec<u8>,
    /// Destinations of datagrams, and of requests over XRC.
    to: Vec<DatagramAddress>,
    max_sge: usize,
    max_inline: usize,
    head: u32,
    tail: u32,
}

impl PendingWqes {
    pub(crate) fn new(
        cap: &ibv_qp_cap,
        transport: QpTransport,
    ) -> Result<PendingWqes, OutOfMemory> {
        let (n, max_sge) = (cap.max_send_wr as usize, cap.max_send_sge as usize);
        let max_inline = cap.max_inline_data as usize;
        let addresses = if transport.is_addressed() { n } else { 0 };
        Ok(PendingWqes {
            wqes: alloc::filled(n, || None)?,
            lens: alloc::filled(n, || 0)?,
            sges: alloc::filled(n * max_sge, ibv_sge::default)?,
            inline: alloc::zeroes(n * max_inline)?,
            to: alloc::filled(addresses, DatagramAddress::default)?,
            max_sge,
            max_inline,
            head: 0,
            tail: 0,
        })
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    pub(crate) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    fn at(&self, position: u32) -> usize {
        position as usize & (self.wqes.len() - 1)
    }

    /// Appends a request; inline data are copied. There is room, because the send
    /// queue admits no more requests than there are slots.
    ///
    /// # Safety
    /// Inline data can be read, and are no longer than `max_inline`.
    #[inline]
    pub(crate) unsafe fn push(&mut self, request: &WqeRef<'_>) {
        let at = self.at(self.tail);
        let mut n = request.sges.len();
        let sges = &mut self.sges[at * self.max_sge..][..n.max(1)];
        if request.wqe.inline {
            let data = &mut self.inline[at * self.max_inline..][..self.max_inline];
            let mut used = 0;
            for sge in request.sges {
                let len = sge.length as usize;
                let from = core::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
                // The program may write to what a WRITE sends until the post returns.
                // SAFETY: inline data can be read, and are no longer than `max_inline` (see
                // # Safety).
                unsafe { crate::copy::in_order(data[used..used + len].as_mut_ptr(), from, len) };
                used += len;
            }
            let addr = data.as_mut_ptr().expose_provenance() as u64;
            sges[0] = ibv_sge { addr, length: used as u32, lkey: 0 };
            n = 1;
        } else {
            sges[..n].copy_from_slice(request.sges);
        }
        self.lens[at] = n as u32;
        if let (Some(slot), Some(to)) = (self.to.get_mut(at), request.to) {
            *slot = *to;
        }
        self.wqes[at] = Some(*request.wqe);
        self.tail = self.tail.wrapping_add(1);
    }

    /// [`push`](Self::push) of a request with one piece of at least one byte: 833 instructions
    /// of a short message to another process instead of 881.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn push_one(&mut self, wqe: Wqe, sge: &ibv_sge) {
        let at = self.at(self.tail);
        let mut addr = sge.addr;
        if wqe.inline {
            let data = &mut self.inline[at * self.max_inline..][..self.max_inline];
            let from = core::ptr::with_exposed_provenance::<u8>(addr as usize);
            // SAFETY: inline data can be read, and are no longer than `max_inline` (see # Safety).
            unsafe { crate::copy::owned(data.as_mut_ptr(), from, sge.length as usize) };
            addr = data.as_mut_ptr().expose_provenance() as u64;
        }
        self.sges[at * self.max_sge] = ibv_sge { addr, ..*sge };
        self.lens[at] = 1;
        self.wqes[at] = Some(wqe);
        self.tail = self.tail.wrapping_add(1);
    }

    /// The oldest request.
    #[inline]
    pub(crate) fn front(&self) -> Option<WqeRef<'_>> {
        self.nth(0)
    }

    /// The request behind `n` others.
    #[inline(always)]
    pub(crate) fn nth(&self, n: u32) -> Option<WqeRef<'_>> {
        if n >= self.len() {
            return None;
        }
        let at = self.at(self.head.wrapping_add(n));
        let sges = &self.sges[at * self.max_sge..][..self.lens[at] as usize];
        self.wqes[at].as_ref().map(|wqe| WqeRef { wqe, sges, to: self.to.get(at) })
    }

    /// The request behind `n` others has overtaken them.
    pub(crate) fn mark_ahead(&mut self, n: u32) {
        let at = self.at(self.head.wrapping_add(n));
        if let Some(wqe) = &mut self.wqes[at] {
            wqe.ahead = true;
        }
    }

    pub(crate) fn pop(&mut self) {
        self.head = self.head.wrapping_add(1);
        if self.head == self.tail {
            // The first slots are still in a cache, unlike the next ones.
            (self.head, self.tail) = (0, 0);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.head = self.tail;
    }
}
