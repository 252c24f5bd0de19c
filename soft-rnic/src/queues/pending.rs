//! The requests of a send queue that wait, and the state of its requester.

use verbs_sys::*;

use crate::alloc::{self, OutOfMemory};
use crate::memory::mws::Ending;
use crate::queues::address::Address;
use crate::queues::qp_state::Transport;
use crate::queues::transit::Transit;
use crate::queues::wqe::{Request, Wqe};
use crate::reason::Reason;
use crate::trace::layout::wait;

/// Requests that were posted and cannot proceed, oldest first. A request that executes at once is
/// never put here.
///
/// The memory is there from the start, so that a post cannot fail for want of it:
/// slot `i` has `max_sge` entries of `sges` and `max_inline` bytes of `inline`.
#[derive(Debug)]
pub(crate) struct Pending {
    wqes: Vec<Option<Wqe>>,
    lens: Vec<u32>,
    sges: Vec<ibv_sge>,
    inline: Vec<u8>,
    /// Destinations of datagrams, and of requests over XRC.
    to: Vec<Address>,
    max_sge: usize,
    max_inline: usize,
    head: u32,
    tail: u32,
}

impl Pending {
    pub(crate) fn new(cap: &ibv_qp_cap, transport: Transport) -> Result<Pending, OutOfMemory> {
        let (n, max_sge) = (cap.max_send_wr as usize, cap.max_send_sge as usize);
        let max_inline = cap.max_inline_data as usize;
        let addresses = if transport.is_addressed() { n } else { 0 };
        Ok(Pending {
            wqes: alloc::filled(n, || None)?,
            lens: alloc::filled(n, || 0)?,
            sges: alloc::filled(n * max_sge, ibv_sge::default)?,
            inline: alloc::zeroes(n * max_inline)?,
            to: alloc::filled(addresses, Address::default)?,
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
    pub(crate) unsafe fn push(&mut self, request: &Request<'_>) {
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
    pub(crate) fn front(&self) -> Option<Request<'_>> {
        self.nth(0)
    }

    /// The request behind `n` others.
    #[inline(always)]
    pub(crate) fn nth(&self, n: u32) -> Option<Request<'_>> {
        if n >= self.len() {
            return None;
        }
        let at = self.at(self.head.wrapping_add(n));
        let sges = &self.sges[at * self.max_sge..][..self.lens[at] as usize];
        self.wqes[at].as_ref().map(|wqe| Request { wqe, sges, to: self.to.get(at) })
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

/// Reason why the request at the head waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The responder had no receive request; try again.
    Rnr,
    /// No response arrived; try again, if retries are left.
    Response,
    /// A simulation delays it.
    Delay,
    /// The process that it is for has to be met first.
    Meeting,
    /// The ring to that process is full.
    Room,
    /// Accesses by the key of a window, whose binding has ended, have to be over first.
    Settling,
}

impl Wait {
    /// Its code in a trace.
    pub(crate) fn reason(self) -> u32 {
        match self {
            Wait::Rnr => wait::RNR,
            Wait::Response => wait::RESPONSE,
            Wait::Delay => wait::DELAY,
            Wait::Meeting => wait::MEETING,
            Wait::Room => wait::ROOM,
            Wait::Settling => wait::SETTLING,
        }
    }
}

/// Reply to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Done,
    /// No receive request was posted; the timer's code.
    Rnr(u8),
    Refused(Reason),
    /// No reply: no queue pair is there, or it does not expect this message.
    Silence,
    /// The requester may carry it out itself after all.
    Again,
}

/// State of a requester, apart from its queue.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// Posted requests, as a position that wraps; a slot is free again when the
    /// queue pair's `freed` has passed it.
    pub(crate) posted: u32,
    /// PSN of the next request.
    pub(crate) psn: u32,
    pub(crate) dest_qpn: u32,
    /// The route leads to this device's own GID: no other can be reached.
    pub(crate) reaches_us: bool,
    /// Log2 of the path MTU in bytes.
    pub(crate) mtu_shift: u32,
    pub(crate) max_rd_atomic: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    /// Retries that are left for the request at the head.
    pub(crate) retries_left: u8,
    pub(crate) rnr_left: u8,
    /// The deadline that the head waits for; its name, so that a deadline of
    /// something that is over is not mistaken for it.
    pub(crate) waits: Option<(Wait, u64)>,
    /// Present once an unreliable queue pair has sent into a faulty network.
    pub(crate) transit: Option<Box<Transit>>,
    /// The head has been tried: it proceeds even while the queue drains.
    pub(crate) started: bool,
    /// The responder has done the head already; only the response was lost.
    pub(crate) done: bool,
    /// The head waits until no access is under way under the key of this binding, which has ended.
    pub(crate) ending: Option<Ending>,
    /// The process that the head is for was looked for, and is not there.
    pub(crate) peer_not_found: bool,
    /// Progress of a message to a multicast group, while it waits for room in a ring.
    pub(crate) fan_out: Option<FanOut>,
    /// State of a message of an unreliable transport, while the ring that it is to go into is full.
    pub(crate) backpressure: Backpressure,
}

impl Requester {
    /// Advances the PSN by packets that have gone out.
    #[inline]
    pub(crate) fn advance_psn(&mut self, packets: u32) {
        self.psn = self.psn.wrapping_add(packets) & 0x00ff_ffff;
    }

    /// The head is another request now.
    #[inline]
    pub(crate) fn next_request(&mut self) {
        self.retries_left = self.retry_cnt;
        self.rnr_left = self.rnr_retry;
        self.started = false;
        self.done = false;
        self.fan_out = None;
    }
}

/// Progress of a message to a multicast group.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct FanOut {
    /// Members of this process, and of those in lower slots, have their copies.
    pub(crate) slot: u32,
    /// A queue pair has received it, or a process has.
    pub(crate) is_received: bool,
}

/// Result of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// Done as far as the requester can know: an unreliable transport's message
    /// that no queue pair received.
    Dropped,
    Failed(Reason),
    /// It cannot proceed now: the reason, and for how long (for ever, if `None`).
    Blocked(Wait, Option<u64>),
}

/// Progress of a process in the ring to it: if it makes none until a deadline, messages that may be
/// dropped do not wait for it any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingProgress {
    /// For messages to a queue pair: how far it has read.
    Read(u32),
    /// For messages to multicast groups: how often it has drained the ring.
    Drained(u32),
}

/// A process, by its slot, and what it has done.
pub(crate) type Mark = (u32, RingProgress);

/// State of a requester that waits for a full ring.
#[derive(Debug, Default)]
pub(crate) struct Backpressure {
    /// The deadline that is armed, and the mark then. It is not armed again for each wait:
    /// under load a ring is full thousands of times a second.
    pub(crate) deadline: Option<(u64, Mark)>,
}

#[cfg(test)]
impl Backpressure {
    /// The deadline that is armed.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.deadline.map(|(token, _)| token)
    }
}
